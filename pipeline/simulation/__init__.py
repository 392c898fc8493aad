"""`pullsim simulate`: from a scenario file to a plan for each variant and seed, run as Spark tasks, to tables, a summary and a picture."""
