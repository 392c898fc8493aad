"""`pullsim report`: writes one page about a lake."""

from __future__ import annotations

from dataclasses import dataclass
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
    asked = AskedReport(lake, out, broker)
    if not engine.without_spark(reader, lake, asked.write_quickly):
        asked.write(engine)
    say(f"report written to {out}")


@dataclass(frozen=True)
class AskedReport:
    """What report is asked for: the options of `pullsim report`."""

    lake: str
    out: str
    broker: str | None

    def write_quickly(self, lake: EmbeddedLake) -> None:
        """Write the page with the embedded engine."""
        from pipeline.embedded.questions import errors_told
        from pipeline.lake.committed import require_among
        from pipeline.report.build import NAMING

        with errors_told():
            if self.broker is not None:
                require_among(lake.root, self.broker, lake.names("brokerName", NAMING))
            self._write(lake.asked, self.broker)

    def write(self, engine: Engine) -> None:
        """Write the page with Spark."""
        from pipeline.lake.lake import Lake
        from pipeline.lake.views import asking
        from pipeline.report.build import NAMING
        from pipeline.schema.tables import TABLES

        with engine.session(reads=self.lake) as spark:
            opened = Lake(spark, self.lake).require()
            name = None if self.broker is None else opened.broker(self.broker, *(TABLES[table] for table in NAMING))
            self._write(asking(opened), name)

    def _write(self, ask: AskAll, broker: str | None) -> None:
        from pipeline.files.output_file import write_text
        from pipeline.report.build import report

        write_text(self.out, lambda: report(ask, broker=broker, named=self.lake, progress=progress_to_stderr))
