"""Deletion of old commit log files, and what groups lose by it."""
