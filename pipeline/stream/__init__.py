"""Streams of pull requests: read, answered and committed batch by batch."""
