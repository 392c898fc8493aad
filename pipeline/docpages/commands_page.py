"""Generates docs/commands.md from the command line: the `--help` text of each command."""

from __future__ import annotations

from pathlib import Path

import click

import pipeline.main  # noqa: F401 (it brings all commands)
from pipeline.commands.cli import cli

PAGE = Path("docs/commands.md")
_WIDTH = 110

_HEAD = """\
# Commands

The text of `pullsim COMMAND --help` for each command. `python -m pipeline.docpages.commands_page` generates this page from the commands.

Results go to stdout or to files, progress to stderr. Exit codes: 0 done, 1 differences, findings or an alert, 2 bad usage or bad
input (the message names file, position, expected, found), 3 the engine failed.
"""


def commands_page() -> str:
    """The text of docs/commands.md."""
    return "".join([_HEAD, *(_section(name, cli.commands[name]) for name in sorted(cli.commands))])


def _section(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=f"pullsim {name}", terminal_width=_WIDTH, max_content_width=_WIDTH)
    return f"\n## {name}\n\n```text\n{command.get_help(context).rstrip()}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(commands_page(), "utf-8")
