"""`pullsim report`: writes one page about a lake."""

from __future__ import annotations

import click

from pipeline.commands.cli import Engine, ExampleCommand, cli, engine_options, lake_option
from pipeline.terminal import progress_to_stderr, say


@cli.command("report", cls=ExampleCommand, example="pullsim report --lake lake --out report.html")
@lake_option
@click.option("--out", required=True, metavar="FILE", help="File for the page.")
@click.option("--broker", metavar="NAME", help="Only this broker of the lake; all of them by default.")
@engine_options
def report_command(lake: str, out: str, broker: str | None, engine: Engine) -> None:
    """Write a page about the state of the groups: lag, pulls, filters, moved offsets, lost messages, slow and hot queues.

    The page is one HTML file for a browser or for print; it has no scripts and loads no other files. It has the SQL of each answer.
    """
    from pipeline.files.output_file import write_text
    from pipeline.lake.lake import Lake
    from pipeline.report.build import report
    from pipeline.schema.capture_tables import PULL_REQUEST
    from pipeline.schema.tables import REPLAY_RUN

    with engine.session(reads=lake, outputs={"--out": out}) as spark:
        opened = Lake(spark, lake).require()
        name = None if broker is None else opened.broker(broker, PULL_REQUEST, REPLAY_RUN)
        write_text(out, lambda: report(opened, broker=name, named=lake, progress=progress_to_stderr))
    say(f"report written to {out}")
