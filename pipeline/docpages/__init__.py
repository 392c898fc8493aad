"""The pages of docs/ that are generated from commands, tables, views, functions, version rules and findings."""
