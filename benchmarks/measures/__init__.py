"""What `python -m benchmarks` measures: a module a subject."""
