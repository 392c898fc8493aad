"""`pullsim lag`: shows the consumer lag of groups, and records it over time."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import click

from pipeline.commands.cli import ExampleCommand, cli
from pipeline.commands.engine import Engine
from pipeline.commands.listed import Names, answer, list_options, show_first
from pipeline.commands.new_run import now, run_id
from pipeline.commands.options import check_alone, check_needed, lake_option, moment, require_lasting_port
from pipeline.lake.asking import Ask, ask_each
from pipeline.settings.quantities import counted, milliseconds
from pipeline.terminal import is_terminal, progress_to_stderr, safe_text, say, show_table, show_values, start_page

if TYPE_CHECKING:
    from pipeline.embedded.database import EmbeddedLake
    from pipeline.lag.lag_history import ObservedLag
    from pipeline.listings.listing import AskedListing


@cli.command(
    "lag",
    cls=ExampleCommand,
    example="pullsim lag --lake lake --group orders-consumer --watch\n"
    "  pullsim lag --lake lake --min-lag 10000\n"
    "  pullsim lag --lake lake --by group --watch --metrics 9465\n"
    "  pullsim lag --lake lake --record --keep 30",
)
@lake_option
@click.option("--group", metavar="NAME", help="Only this consumer group.")
@click.option("--topic", metavar="NAME", help="Only this topic.")
@click.option("--queue", "queue_id", type=click.IntRange(min=0), metavar="ID", help="Only this queue of the topic; needs --topic.")
@click.option(
    "--by",
    type=click.Choice(["group", "topic", "queue"]),
    help="A row for each group, each topic of a group, or each queue; queue by default, group with --behind and --min-lag.",
)
@click.option("--behind", is_flag=True, help="Only where messages wait.")
@click.option(
    "--min-lag", type=click.IntRange(min=1), metavar="N", help="Only where N messages wait or more; exit code 1 if there are such."
)
@click.option("--now", "until_now", is_flag=True, help="Count waiting time until now instead of the store's last message; for queues.")
@click.option("--watch", is_flag=True, help="Show the lag again whenever the lake has changed, until Ctrl-C or SIGTERM.")
@click.option(
    "--metrics",
    metavar="FILE|PORT",
    help="Prometheus metrics of all groups: a file, written whole each time, or with --watch [HOST:]PORT.",
)
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
@partial(list_options, in_table="in a table 50 groups or topics, and all queues,")
def lag_command(
    lake: str,
    group: str | None,
    topic: str | None,
    queue_id: int | None,
    by: str | None,
    behind: bool,
    min_lag: int | None,
    until_now: bool,
    watch: bool,
    metrics: str | None,
    record: bool,
    observed_at: int | None,
    keep: int | None,
    broker: str | None,
    sort: str | None,
    limit: int | None,
    form: str,
    engine: Engine,
) -> None:
    """Show the lag of each group: the columns of mqadmin consumerProgress, and how long the next message has waited.

    An unknown value is NULL, and #Reason has the reason: `pullsim sql --lake DIR "DESCRIBE consume_lag"` explains each. #LastTime is in
    UTC. As json and csv the rows are those of consume_lag, with its column names.

    Messages that were deleted before the group consumed them count as lag, as in mqadmin; the line below says how many they are.

    --by group shows sums instead, without the retry topic in Lag; as json and csv the rows are those of group_lag, with --by topic
    those of consume_lag_by_group.

    --metrics gives the status of each group, what waits and its dead letters to Prometheus, with the gauges of rocketmq-exporter
    (docs/monitoring.md). --watch makes them again whenever the lake has changed.

    --record, for example after each import, appends an observation of the broker to lag_history, which group_status and retention_risk
    need. Nothing is appended if the broker's tables have not changed since the last observation.
    """
    if record:
        given = {"--group": group, "--topic": topic, "--queue": queue_id, "--by": by, "--behind": behind, "--min-lag": min_lag}
        given |= {"--now": until_now, "--watch": watch, "--metrics": metrics, "--sort": sort, "--limit": limit}
        given["--format"] = None if form == "table" else form
        check_alone("--record", given, "it records all of a broker, and shows nothing")
        _record(engine, lake, broker, observed_at, keep)
        return
    check_needed("--record", {"--observed-at": observed_at, "--keep": keep}, "nothing is recorded without it")
    if topic is None:
        check_needed("--topic", {"--queue": queue_id}, "each topic has a queue of this number")
    least = min_lag or (1 if behind else None)
    by = by or ("queue" if least is None or queue_id is not None else "topic" if topic else "group")
    asked = Asked(
        group=group, topic=topic, queue=queue_id, broker=broker, by=by, least=least, until_now=until_now, sort=sort, limit=limit, form=form
    )
    asked.check()
    shown = list[int]()
    if metrics is not None:
        check_alone("--metrics", {"--group": group, "--topic": topic}, "the metrics have all groups and topics of a broker")
    with _published(metrics, watch=watch) as publish:

        def show(ask: Ask) -> None:
            shown.append(asked.show(ask))
            publish(ask, broker)

        answer(engine, lake, Names(group=group, topic=topic, broker=broker), show, again=asked.start_page if watch else None)
    if min_lag is not None and shown[-1]:
        raise SystemExit(1)


@contextmanager
def _published(target: str | None, *, watch: bool) -> Iterator[Callable[[Ask, str | None], None]]:
    """Yield the function that publishes the metrics of a broker (None for all) at the target of --metrics; it does nothing without one."""
    if target is None:
        yield lambda _ask, _broker: None
        return
    from pipeline.lag.group_metrics import all_metrics
    from pipeline.serving.metrics import LastingPublish, metrics_target

    require_lasting_port(target, lasts=watch, otherwise="give --watch too")
    with metrics_target(target, progress_to_stderr) as publish:
        lasting = LastingPublish(publish, progress_to_stderr)
        yield lambda ask, broker: lasting(all_metrics(ask_each(ask), broker, now()))


def _record(engine: Engine, lake: str, broker: str | None, observed_at: int | None, keep: int | None) -> None:
    committed_at = now()
    recording = Recording(broker, milliseconds(committed_at) if observed_at is None else observed_at, keep, committed_at)
    if not engine.without_spark(lake, recording.record_here):
        recording.record(engine, lake)


@dataclass(frozen=True)
class Recording:
    """The options of `pullsim lag --record`, and the time of the recording."""

    broker: str | None
    at: int
    keep: int | None
    committed_at: dt.datetime

    def record_here(self, lake: EmbeddedLake) -> None:
        """Record without Spark.

        Raises:
            NotSupportedError: only Spark can do that.
        """
        from pipeline.embedded.opened_tables import NotSupportedError
        from pipeline.embedded.questions import errors_told
        from pipeline.lag.lag_history import record_here
        from pipeline.lake.committed import chosen_broker
        from pipeline.tasks.work import NoSessionError

        try:
            with errors_told():
                [brokers] = lake.asked(["SELECT brokerName FROM broker ORDER BY brokerName"])
                name = chosen_broker(lake.root, self.broker, [row["brokerName"] for row in brokers])
                recorded = record_here(
                    lake, name, observed_at=self.at, keep_days=self.keep, run_id=run_id(), committed_at=self.committed_at
                )
        except NoSessionError as error:
            raise NotSupportedError(str(error)) from error
        self._tell(name, recorded)

    def record(self, engine: Engine, lake: str) -> None:
        """Record with Spark."""
        from pipeline.lag.lag_history import record
        from pipeline.lake.opened_broker import OpenedBroker

        with engine.session(reads=lake) as spark:
            opened = OpenedBroker.of(spark, lake, self.broker)
            recorded = record(opened, observed_at=self.at, keep_days=self.keep, run_id=run_id(), committed_at=self.committed_at)
        self._tell(opened.name, recorded)

    def _tell(self, broker: str, recorded: ObservedLag | None) -> None:
        broker = safe_text(broker)
        if recorded is None:
            say(f"nothing new of broker {broker}: the lake has not changed since its last observation, or has one of {self.at} ms")
        else:
            say(f"recorded {counted(recorded.queues, 'queue')} of broker {broker} at {self.at} ms, lake version {recorded.lake_version}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options of `pullsim lag` that choose which lag is shown, and how."""

    group: str | None
    topic: str | None
    queue: int | None
    broker: str | None
    by: str
    least: int | None
    until_now: bool
    sort: str | None
    limit: int | None
    form: str

    def check(self) -> None:
        """Check that the options can be combined.

        Raises:
            click.UsageError: two options cannot be combined.
        """
        if self.until_now and self.by != "queue":
            raise click.UsageError(f"--now cannot be combined with --by {self.by}: sums have the waiting time at the store's last message")
        if self.queue is not None and self.by != "queue":
            raise click.UsageError(f"--queue cannot be combined with --by {self.by}: sums cover all queues")
        if self.topic is not None and self.by == "group":
            raise click.UsageError("--topic cannot be combined with --by group: a group's sums cover all its topics; give --by topic")

    def show(self, ask: Ask) -> int:
        """Show the lag; with --behind or --min-lag, return the number of rows with waiting messages."""
        return self._show_queues(ask) if self.by == "queue" else int(show_first(ask, [self._sums])["rows"])

    def start_page(self, version: int) -> None:
        """Begin a page of --watch, for the lag at a version of the lake."""
        if self.form == "table":
            start_page(f"lake version {version}, {now():%Y-%m-%d %H:%M:%S} UTC\n")

    @property
    def _sums(self) -> AskedListing:
        from pipeline.lag.lag_sql import groups_with_lag
        from pipeline.listings.listing import AskedListing, equal
        from pipeline.listings.operator_lists import LAG_BY_GROUP, LAG_BY_TOPIC

        key = ("brokerName", "consumerGroup", *(("topic",) if self.by == "topic" else ()))
        conditions = [*equal("brokerName", self.broker), *equal("consumerGroup", self.group), *equal("topic", self.topic)]
        if self.least is not None:
            conditions.append(groups_with_lag(self.least, *key))
        listing = LAG_BY_TOPIC if self.by == "topic" else LAG_BY_GROUP
        return AskedListing(listing=listing, conditions=conditions, sort=self.sort, limit=self.limit, form=self.form)

    def _show_queues(self, ask: Ask) -> int:
        from pipeline.lag.lag_sql import AskedLag, diff_total
        from pipeline.listings.listing import AskedListing
        from pipeline.listings.operator_lists import LAG_BY_QUEUE
        from pipeline.listings.table import filled, show_narrow

        asked = AskedLag(
            broker=self.broker,
            group=self.group,
            topic=self.topic,
            queue=self.queue,
            until=now() if self.until_now else None,
            least=self.least,
            order=AskedListing(listing=LAG_BY_QUEUE, sort=self.sort).order,
        )
        names, rows = ask(asked.consumer_progress if self.form == "table" else asked.queue_lags)
        if self.form == "table":
            found = list(rows)
            headers, shown = [f"#{column}" for column in names], found[: self.limit or None]
            if is_terminal():
                show_narrow(headers, shown, optional=["#Broker Name", "#Group", "#LastTime", "#Lag Bytes"])
            else:
                show_table(headers, shown)
            diffs, reasons = names.index("Diff"), names.index("Reason")
            has_deleted = any(row[reasons] == "OFFSET_BELOW_MIN" for row in found)
            deleted = int(next(iter(ask(asked.deleted)[1]))[0]) if has_deleted else 0
            total = diff_total([row[diffs] for row in found], deleted)
            say(f"\n{filled(total) if is_terminal() else total}")
        else:
            show_values(names, islice(rows, self.limit or None), self.form)
        return int(next(iter(ask(asked.count)[1]))[0]) if self.least is not None else 0
