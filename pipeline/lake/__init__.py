"""The lake: Spark session, Delta tables, the commit point of all tables, SQL views and functions."""
