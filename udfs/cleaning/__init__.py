"""Deletion of old commit log files, and the messages that groups lose by it."""
