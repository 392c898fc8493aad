"""The lake: the Spark session, its brokers, the commit point of all tables, SQL views and functions."""
