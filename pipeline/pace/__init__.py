"""`pullsim pace`: a file of requests -> files that appear in a folder over time."""
