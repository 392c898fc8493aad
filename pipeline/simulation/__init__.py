"""`pullsim simulate`: a scenario file -> plans, one for each variant and seed -> Spark tasks that run them -> tables, a summary and a picture."""
