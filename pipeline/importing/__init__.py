"""Store directory -> Delta tables."""
