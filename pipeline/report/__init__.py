"""`pullsim report`: one page that says how the groups of a lake are doing, a question a file."""
