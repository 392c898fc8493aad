"""`pullsim verify`: every file of a store parsed, written again, compared, and held against the tables."""
