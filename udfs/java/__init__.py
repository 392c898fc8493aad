"""Java's numbers and texts, where they differ from Python's."""
