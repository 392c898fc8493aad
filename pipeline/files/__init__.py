"""Reads and writes the files of commands, local or by URI; a written file appears only when it is complete."""
