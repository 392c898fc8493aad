"""`pullsim verify`: every file of a store is parsed, written again and compared, also with the tables of a lake."""
