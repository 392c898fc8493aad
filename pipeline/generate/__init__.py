"""`pullsim generate`: writes the store directory that a broker would have written for a workload."""
