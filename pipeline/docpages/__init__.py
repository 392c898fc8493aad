"""The pages of docs/ that are generated from commands, tables, views and functions."""
