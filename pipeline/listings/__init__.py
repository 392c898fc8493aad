"""The lists of the operator's commands: each has a view, the columns of its table, and a verdict below it."""
