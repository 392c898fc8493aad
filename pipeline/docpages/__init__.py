"""Pages of docs/ that are made from commands, tables, views and functions."""
