"""`pullsim report`: writes one page about a lake; `pullsim serve`: the same page, live."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from pipeline.commands.cli import ExampleCommand, cli
from pipeline.commands.engine import Engine, engine_option, engine_options
from pipeline.commands.given_settings import VERSIONS, GivenSettings
from pipeline.commands.listed import Names, require_before_spark
from pipeline.commands.new_run import now
from pipeline.commands.options import lake_option, span_options
from pipeline.report.scope import Filters, require_span
from pipeline.terminal import progress_to_stderr, say
from store_format.broker_version import BrokerVersion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from pipeline.embedded.database import EmbeddedLake
    from pipeline.lake.asking import AskAll
    from pipeline.report.answered import Section
    from pipeline.report.compared import Compared


@cli.command(
    "report",
    cls=ExampleCommand,
    example="pullsim report --lake lake --out report.html\n"
    "  pullsim report --lake lake --group orders-consumer --from 2024-05-01T12:00:00 --out group.html\n"
    "  pullsim report --lake lake --format json --out monday.json\n"
    "  pullsim report --lake lake --compare monday.json --out since-monday.html",
)
@lake_option
@click.option("--out", required=True, metavar="FILE", help="File for the page.")
@click.option("--format", "form", type=click.Choice(["html", "json"]), default="html", show_default=True, help="A page, or its figures.")
@click.option("--broker", metavar="NAME", help="Only this broker of the lake; all of them by default.")
@click.option("--group", metavar="NAME", help="Only this consumer group.")
@click.option("--topic", metavar="NAME", help="Only this topic.")
@span_options("pulls, commits and messages")
@click.option("--compare", metavar="FILE", help="Say what changed since another report, which --format json wrote.")
@click.option("--upgrade-to", "later", type=VERSIONS, help="Also tell what an upgrade of the broker to this version would change.")
@engine_option
@engine_options
def report_command(
    lake: str,
    out: str,
    form: str,
    broker: str | None,
    group: str | None,
    topic: str | None,
    since: int | None,
    until: int | None,
    compare: str | None,
    later: str | None,
    engine: Engine,
) -> None:
    """Write a page about the state of the groups: lag, failures, clients, pulls, moved offsets, losses, throughput.

    The page is one HTML file for a browser or for print; it has no scripts and loads no other files. It has the SQL of each answer. As
    json, FILE has the same sentences and figures, and what each group and topic has.

    --from and --to narrow pulls, commits, observations and stored messages. What waits and what will be lost is that of the store's last
    message in any case.

    --upgrade-to compares the version of the import with a later one, as pullsim upgrade does; that needs Spark.
    """
    from pipeline.files.given_files import require_output

    require_span(since, until, named=("--from", "--to"))
    if later is not None and engine.choice == "duckdb":
        raise click.UsageError("--upgrade-to cannot be combined with --engine duckdb: an upgrade is compared with Spark")
    require_output("--out", out, read=lake)
    only = Filters(broker=broker, group=group, topic=topic, since=since, until=until)
    asked = AskedReport(lake, out, form, only, _before(compare), None if later is None else BrokerVersion(later))
    if later is not None or not engine.without_spark(lake, asked.write_quickly):
        asked.write(engine)
    say(f"report written to {out}")


@cli.command("serve", cls=ExampleCommand, example="pullsim serve --lake lake\n  pullsim serve --lake lake --listen 0.0.0.0:8099")
@lake_option
@click.option(
    "--listen",
    metavar="[HOST:]PORT",
    default="8099",
    show_default=True,
    help="Where the page is served. A port alone is open to this machine only; with a HOST nobody is asked who they are.",
)
def serve_command(lake: str, listen: str) -> None:
    """Serve the report on a local port: groups and topics to click on, filters and times, made again when the lake has changed.

    The page is at http://127.0.0.1:8099/ until Ctrl-C or SIGTERM; /report.json has its figures. It takes the filters of `pullsim report`
    as fields: /?group=NAME&from=TIME. It needs no Java; a lake that only Spark reads is not served.
    """
    from pipeline.embedded.database import EmbeddedLake
    from pipeline.embedded.opened_tables import NotSupportedError
    from pipeline.files.stopping import told_to_stop
    from pipeline.report.live import LiveReport
    from pipeline.serving.http_server import serving

    try:
        EmbeddedLake(lake)
    except NotSupportedError as error:
        raise click.UsageError(f"{error}; pullsim report writes the page with Spark") from error
    with told_to_stop() as stop, serving(listen, LiveReport(lake, now), "the report") as authority:
        say(f"the report is at http://{authority}/")
        stop.wait()


def _before(path: str | None) -> Compared | None:
    from pipeline.report.compared import read_report

    return None if path is None else read_report(path)


@dataclass(frozen=True)
class AskedReport:
    """The options of `pullsim report`."""

    lake: str
    out: str
    form: str
    only: Filters
    before: Compared | None
    later: BrokerVersion | None

    def write_quickly(self, lake: EmbeddedLake) -> None:
        """Write the report with the embedded engine."""
        from pipeline.embedded.questions import errors_told

        with errors_told():
            self._write(lake.asked)

    def write(self, engine: Engine) -> None:
        """Write the report with Spark."""
        require_before_spark(self.lake, Names(group=self.only.group, topic=self.only.topic))
        later = self.later
        with engine.session("short" if later is None else "long", reads=self.lake, workers=later is not None) as spark:
            from pipeline.lake.lake import Lake
            from pipeline.lake.views import asking

            more = () if later is None else (_upgrade(spark, self.lake, self.only.broker, later),)
            self._write(asking(Lake(spark, self.lake).require()), more)

    def _write(self, ask: AskAll, more: Sequence[Section] = ()) -> None:
        from pipeline.files.output_file import write_text
        from pipeline.report.build import report
        from pipeline.report.page import page
        from pipeline.report.report_json import as_json

        is_json, told = self.form == "json", progress_to_stderr
        found = report(ask, only=self.only, named=self.lake, made=now(), progress=told, before=self.before, has_state=is_json)
        found = replace(found, sections=[*found.sections, *more])
        write_text(self.out, lambda: as_json(found) if is_json else page(found))


def _upgrade(spark: SparkSession, lake: str, broker: str | None, later: BrokerVersion) -> Section:
    """Return the section about an upgrade of a broker of the lake, from the version of its import to `later`."""
    from pipeline.lake.opened_broker import OpenedBroker
    from pipeline.upgrade.upgrade_job import run_upgrade
    from pipeline.upgrade.upgrade_section import upgrade_section

    opened = OpenedBroker.of(spark, lake, broker)
    settings = GivenSettings().over(opened.properties())
    earlier = settings.version
    if earlier.place >= later.place:
        raise click.UsageError(f"--upgrade-to: expected a later version than {earlier.value}, that of the import, found {later.value}")
    return upgrade_section(
        run_upgrade(opened, None, None, versions=(earlier, later), settings_of=lambda _: settings, at=None, progress=progress_to_stderr)
    )
