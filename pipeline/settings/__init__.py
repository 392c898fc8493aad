"""The broker's settings, and quantities in the form of command-line options."""
