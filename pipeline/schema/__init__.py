"""The tables of a lake: columns, types, comments, keys and constraints."""
