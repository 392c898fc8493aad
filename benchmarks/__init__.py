"""Benchmarks: each figure as a ratio to a peer measured in the same run. `python -m benchmarks --help`."""
