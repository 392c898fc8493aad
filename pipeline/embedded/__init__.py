"""The embedded engine: answers questions about a lake with DuckDB, without Spark and Java."""
