"""The group of all commands, listed under headings, and the form of their help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from pipeline.settings.settings import nearest
from store_format.errors import shown

# headings of `pullsim --help`, with their commands; other commands come last, under the heading More
SECTIONS: Final[Mapping[str, Sequence[str]]] = {
    "Begin": ("demo", "import", "capture", "requests"),
    "See what a broker has": (
        "groups",
        "topics",
        "clients",
        "lag",
        "pulls",
        "offsets",
        "message",
        "dlq",
        "transactions",
        "delays",
        "timers",
        "pop",
        "retention",
        "report",
        "serve",
        "sql",
    ),
    "Ask why, and what if": ("explain", "whatif", "upgrade", "replay"),
    "Answer as pulls arrive": ("stream", "pace"),
    "Simulate": ("simulate", "answer", "generate"),
    "Check and convert stores": ("verify", "recover", "lookup", "export", "frames"),
    "Tend a lake": ("vacuum",),
}
_OF_SPARK = {"master", "conf", "verbose"}


class ExampleCommand(click.Command):
    """A command whose help text ends with the options of Spark and an example."""

    def __init__(self, *args: Any, example: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.epilog = f"\b\nExample:\n  {example}"

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, those of Spark under a heading of their own."""
        own, of_spark = list[tuple[str, str]](), list[tuple[str, str]]()
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                (of_spark if parameter.name in _OF_SPARK else own).append(record)
        for heading, records in (("Options", own), ("Options of Spark", of_spark)):
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


class Commands(click.Group):
    """The group of commands, listed under headings; the error for an unknown command names the nearest known ones."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each command with the first sentence of its help, under the headings of SECTIONS."""
        named = {name for names in SECTIONS.values() for name in names}
        others = [name for name in self.list_commands(ctx) if name not in named]
        for heading, names in {**SECTIONS, "More": others}.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            rows = [(name, _summary(command)) for name, command in commands if command is not None]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; refuse those that are not UTF-8, because pyarrow, deltalake and Java take no other paths and names."""
        for one in args:
            try:
                one.encode()
            except UnicodeEncodeError:
                raise click.UsageError(f"expected arguments in UTF-8, found {shown(one)}", ctx) from None
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first of `args` names, and the other arguments; the error for an unknown command has the nearest."""
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            known = ", ".join(nearest(args[0], self.list_commands(ctx)))
            raise click.UsageError(f"there is no command {args[0]!r}; the nearest known: {known}", ctx)
        return super().resolve_command(ctx, args)


def _summary(command: click.Command) -> str:
    """The first paragraph of a command's help."""
    return " ".join((command.help or "").partition("\n\n")[0].split())


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="pullsim")
def cli() -> None:
    """Ask the store of a RocketMQ broker (4.9.3, 4.9.8, 5.5.0) what the broker would have answered, why groups lag, and what if."""
