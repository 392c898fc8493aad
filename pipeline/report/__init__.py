"""`pullsim report`: one page about the state of a lake's groups; `questions` has a module for each question."""
