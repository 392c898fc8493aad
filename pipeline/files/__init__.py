"""Files that a command reads and writes: local or by URI, whole or not at all."""
