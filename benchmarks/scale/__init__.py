"""The scale measures, which may take hours, and their page. `python -m benchmarks.scale --help`."""
