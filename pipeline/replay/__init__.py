"""Replays: answer pull requests from the tables of a lake, all at once."""
