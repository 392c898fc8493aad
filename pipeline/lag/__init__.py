"""Consumer lag, its history, what retention takes from groups, and both as metrics."""
