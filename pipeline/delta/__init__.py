"""Delta tables without Spark: logs, commits, files, small reads; and the SQL statements that make or change a table."""
