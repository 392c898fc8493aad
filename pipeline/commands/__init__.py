"""The command line; each module has a group of commands."""
