"""What the operator's commands list: a view each, the columns of its table, and the line below it."""
