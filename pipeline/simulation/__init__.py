"""`pullsim simulate`: a scenario file -> plans, one for each variant and seed -> Spark tasks -> tables, a summary, a picture."""
