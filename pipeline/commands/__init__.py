"""The command line: each `*_commands` module has a group of commands, `cli` the shared options, and replay, sql and demo."""
