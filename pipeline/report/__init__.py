"""`pullsim report`: one page about the state of a lake's groups; each module of a question has the question's name."""
