"""Makes Arrow batches of the tables from the bytes of store files, and the bytes from the tables."""
