"""Bytes of store files -> Arrow batches of the tables, and back."""
