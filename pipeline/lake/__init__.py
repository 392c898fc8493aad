"""The lake: its session, its Delta tables, its one commit point, its views and functions in SQL."""
