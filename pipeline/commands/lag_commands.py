"""`pullsim lag`: shows the consumer lag of groups, and records it over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from pipeline.commands.cli import (
    Engine,
    ExampleCommand,
    cli,
    engine_option,
    engine_options,
    format_option,
    lake_option,
    moment,
    now,
    run_id,
)
from pipeline.settings.quantities import milliseconds
from pipeline.terminal import say, show_rows, show_streamed, show_table, start_page

if TYPE_CHECKING:
    from pipeline.embedded.database import EmbeddedLake


@cli.command(
    "lag",
    cls=ExampleCommand,
    example="pullsim lag --lake lake --group orders-consumer --watch\n  pullsim lag --lake lake --record --keep 30",
)
@lake_option
@click.option("--group", metavar="NAME", help="Only this consumer group.")
@click.option("--topic", metavar="NAME", help="Only this topic.")
@click.option("--now", "until_now", is_flag=True, help="Count waiting time until now instead of the store's last message.")
@click.option("--watch", is_flag=True, help="Show the lag again whenever the lake has changed, until Ctrl-C or SIGTERM.")
@click.option(
    "--record", is_flag=True, help="Append the lag of all groups of a broker to lag_history, if it is new, instead of showing it."
)
@click.option(
    "--observed-at", callback=moment, metavar="TIME", help="With --record: the time of the store; ms, or a time in UTC. Now by default."
)
@click.option(
    "--keep", type=click.IntRange(1, 36_500), metavar="DAYS", help="With --record: drop older observations, and compact the others."
)
@click.option("--broker", metavar="NAME", help="Only this broker, all by default; with --record needed if the lake holds more than one.")
@format_option
@engine_option
@engine_options
def lag_command(
    lake: str,
    group: str | None,
    topic: str | None,
    until_now: bool,
    watch: bool,
    record: bool,
    observed_at: int | None,
    keep: int | None,
    broker: str | None,
    form: str,
    reader: str,
    engine: Engine,
) -> None:
    """Show the lag of each group: the columns of mqadmin consumerProgress, and how long the next message has waited.

    An unknown value is NULL, and #Reason has the reason: `pullsim sql --lake DIR "DESCRIBE consume_lag"` explains each. #LastTime is in
    UTC. As json and csv the rows are those of consume_lag, with its column names.

    --record, for example after each import, appends an observation of the broker to lag_history, which group_status and retention_risk
    need. Nothing is appended if the broker's tables have not changed since the last observation.
    """
    if record:
        if group or topic or until_now or watch or form != "table":
            raise click.UsageError(
                "--record takes all groups and topics of a broker as they are: leave --group, --topic, --now, --watch and --format out"
            )
        _record(engine, lake, broker, observed_at, keep)
    elif observed_at is not None or keep is not None:
        raise click.UsageError("--observed-at and --keep say how to record: give --record too")
    else:
        asked = Asked(group=group, topic=topic, broker=broker, until_now=until_now, watch=watch, form=form)
        if not engine.without_spark(reader, lake, asked.show_quickly):
            asked.show(engine, lake)


def _record(engine: Engine, lake: str, broker: str | None, observed_at: int | None, keep: int | None) -> None:
    from pipeline.lag.lag_history import record
    from pipeline.lake.opened_broker import OpenedBroker

    committed_at = now()
    at = milliseconds(committed_at) if observed_at is None else observed_at
    with engine.session(reads=lake) as spark:
        opened = OpenedBroker.of(spark, lake, broker)
        recorded = record(opened, observed_at=at, keep_days=keep, run_id=run_id(), committed_at=committed_at)
    if recorded is None:
        say(f"nothing new of broker {opened.name}: the lake has not changed since its last observation, or has one of {at} ms")
    else:
        say(f"recorded {recorded.queues:,} queues of broker {opened.name} at {at} ms, lake version {recorded.lake_version}")


@dataclass(frozen=True)
class Asked:
    """What lag is asked for: the options of `pullsim lag`."""

    group: str | None
    topic: str | None
    broker: str | None
    until_now: bool
    watch: bool
    form: str

    def show_quickly(self, lake: EmbeddedLake) -> None:
        """Show the lag with the embedded engine."""
        from pipeline.embedded.questions import errors_told
        from pipeline.files.stopping import told_to_stop
        from pipeline.lag.lag_sql import GROUPS, TOPICS, known_names, require_name
        from pipeline.lake.committed import require_among

        def names(column: str, tables: Sequence[str]) -> list[str]:
            return sorted(row[0] for row in lake.query(known_names(column, tables)).rows)

        with errors_told():
            if self.broker is not None:
                require_among(lake.root, self.broker, names("brokerName", ("broker",)))
            for given, (column, what, tables) in ((self.group, GROUPS), (self.topic, TOPICS)):
                if given is not None:
                    require_name(what, given, names(column, tables))
            self._show_once(lake)
        if self.watch:
            with told_to_stop() as stop:
                for newer in lake.changes(stop):
                    self._start_page(newer.at.version)
                    with errors_told():
                        self._show_once(newer)

    def _show_once(self, lake: EmbeddedLake) -> None:
        from pipeline.lag.lag_sql import AskedLag

        asked = AskedLag(broker=self.broker, group=self.group, topic=self.topic, until=now() if self.until_now else None)
        answer = lake.query(asked.consumer_progress if self.form == "table" else asked.queue_lags)
        if self.form == "table":
            self._show_table(answer.names, list(answer.rows))
        else:
            show_streamed(answer.names, answer.rows, self.form)

    def _show_table(self, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        from pipeline.lag.lag_sql import diff_total

        show_table([f"#{column}" for column in names], rows)
        diffs = names.index("Diff")
        say(f"\n{diff_total([row[diffs] for row in rows])}")

    def _start_page(self, version: int) -> None:
        if self.form == "table":
            start_page(f"lake version {version}, {now():%Y-%m-%d %H:%M:%S} UTC\n")

    def show(self, engine: Engine, lake: str) -> None:
        """Show the lag with Spark."""
        from pipeline.files.stopping import told_to_stop
        from pipeline.lag.lag import LAG_READS, lag_rows, queue_lags
        from pipeline.lake.lake import Lake, changes
        from pipeline.lake.views import create_views

        with engine.session(reads=lake) as spark:
            opened = Lake(spark, lake).require()
            name = None if self.broker is None else opened.broker(self.broker)

            def show() -> None:
                create_views(opened, LAG_READS)
                until = now() if self.until_now else None
                if self.form != "table":
                    show_rows(queue_lags(spark, broker=name, group=self.group, topic=self.topic, until=until), self.form)
                    return
                frame = lag_rows(spark, broker=name, group=self.group, topic=self.topic, until=until)
                self._show_table(frame.columns, frame.collect())

            show()
            if self.watch:
                with told_to_stop() as stop:
                    for version in changes(opened, stop):
                        self._start_page(version.version)
                        show()
