"""`pullsim generate`: a workload -> the store directory that a broker would have written."""
