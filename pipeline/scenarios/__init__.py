"""`pullsim answer`: scenarios of requests and sleeps, answered by a broker on a virtual clock."""
