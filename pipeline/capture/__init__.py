"""Captured traffic: a file of packets -> connections -> frames -> pull requests with the broker's answers."""
