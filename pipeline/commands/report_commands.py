"""`pullsim report`: writes one page about a lake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pipeline.commands.cli import Engine, ExampleCommand, cli, engine_option, engine_options, lake_option
from pipeline.terminal import progress_to_stderr, say

if TYPE_CHECKING:
    from pipeline.embedded.database import EmbeddedLake
    from pipeline.lake.asking import AskAll


@cli.command("report", cls=ExampleCommand, example="pullsim report --lake lake --out report.html")
@lake_option
@click.option("--out", required=True, metavar="FILE", help="File for the page.")
@click.option("--broker", metavar="NAME", help="Only this broker of the lake; all of them by default.")
@engine_option
@engine_options
def report_command(lake: str, out: str, broker: str | None, reader: str, engine: Engine) -> None:
    """Write a page about the state of the groups: lag, pulls, filters, moved offsets, lost messages, slow and hot queues.

    The page is one HTML file for a browser or for print; it has no scripts and loads no other files. It has the SQL of each answer.
    """
    from pipeline.files.given_files import require_output

    require_output("--out", out)

    def write(ask: AskAll) -> None:
        from pipeline.files.output_file import write_text
        from pipeline.report.build import report

        write_text(out, lambda: report(ask, broker=broker, named=lake, progress=progress_to_stderr))

    def write_quickly(opened: EmbeddedLake) -> None:
        from pipeline.embedded.questions import errors_told

        with errors_told():
            write(opened.asked)

    if not engine.without_spark(reader, lake, write_quickly):
        with engine.session(reads=lake) as spark:
            from pipeline.lake.lake import Lake
            from pipeline.lake.views import asking

            write(asking(Lake(spark, lake).require()))
    say(f"report written to {out}")
