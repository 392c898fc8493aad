"""Spark jobs over the tables of a lake: import, replay, lag, and the command line around them."""
