"""`pullsim retention`: shows the messages that groups lose when old files are deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click

from pipeline.commands.cli import ExampleCommand, cli
from pipeline.commands.engine import Engine, engine_option, engine_options
from pipeline.commands.given_settings import GivenSettings, settings_options
from pipeline.commands.options import ROW_LIMIT, FiniteNumber, check_needed, format_option, lake_option, moment
from pipeline.settings.quantities import LAST_OF_YEAR_9999, duration_text, size_in_bytes, size_text
from pipeline.terminal import progress_to_stderr, show_values
from store_format.errors import shown

if TYPE_CHECKING:
    from pipeline.embedded.database import EmbeddedLake
    from pipeline.lag.retention import Forecast, QueueOfGroup, RetentionQuestion
    from pipeline.lake.asking import AskAll, Row

_BY_MESSAGES: Final = (
    "files of the log were copied without their times, by which the broker deletes (cp -p and rsync -t keep them): the times of their "
    "messages are taken"
)


def _size(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    try:
        return None if value is None else size_in_bytes(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _zone(_context: click.Context, _parameter: click.Parameter, value: str) -> ZoneInfo:
    try:
        return ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise click.BadParameter(f"expected a time zone that this machine knows, such as UTC or Asia/Shanghai, found {value!r}") from None


@cli.command(
    "retention",
    cls=ExampleCommand,
    example="pullsim retention --lake lake --group orders-consumer --rate 0\n"
    "  pullsim retention --lake lake --topic orders\n"
    "  pullsim retention --lake lake --set fileReservedTime=48 --disk-size 500G --time-zone Asia/Shanghai",
)
@lake_option
@click.option("--group", metavar="NAME", help="Only this consumer group.")
@click.option("--topic", metavar="NAME", help="Only this topic.")
@click.option(
    "--at", callback=moment, metavar="TIME", help="Look ahead from this time: ms, or UTC. That of the store's last message by default."
)
@click.option(
    "--rate",
    type=FiniteNumber(min=0),
    metavar="MESSAGES",
    help="Messages a second that a group consumes of each queue, 0 for none; as in lag_history by default.",
)
@click.option(
    "--growth", callback=_size, metavar="BYTES", help="Bytes a second that come to the log; as in the last day of the store by default."
)
@click.option("--disk-size", callback=_size, metavar="BYTES", help="Size of the store's disk, as in 500G; without it only age counts.")
@click.option("--disk-used", callback=_size, metavar="BYTES", help="Used bytes of the store's disk; those of the store by default.")
@click.option(
    "--time-zone", "zone", callback=_zone, default="UTC", show_default=True, metavar="NAME", help="Zone of the broker's clock (deleteWhen)."
)
@click.option("--broker", metavar="NAME", help="Only this broker; needed with --growth and --disk-size if the lake holds more than one.")
@click.option(
    "--limit",
    type=ROW_LIMIT,
    metavar="N",
    help="Greatest number of rows, 0 for all; 50 in a table by default, all as json and csv.",
)
@format_option
@settings_options
@engine_option
@engine_options
def retention_command(
    lake: str,
    group: str | None,
    topic: str | None,
    at: int | None,
    rate: float | None,
    growth: int | None,
    disk_size: int | None,
    disk_used: int | None,
    zone: ZoneInfo,
    broker: str | None,
    limit: int | None,
    form: str,
    settings: GivenSettings,
    engine: Engine,
) -> None:
    """Show which messages each group loses when old files are deleted, the time, and a fileReservedTime that would keep them.

    Files are deleted by the broker's rules: fileReservedTime, deleteWhen, diskMaxUsedSpaceRatio, cleanFileForciblyEnable. The settings are
    those of the import, overridden by --properties and --set.

    A row is a group and topic, with --topic a queue. The first time is that at which the file with the next message is deleted, the
    second that at which the group, at its rate, loses messages. Keep h is the least fileReservedTime that keeps them. Where no loss is
    foreseen, the last column says why: NOTHING_WAITS; IN_TIME, all is consumed before; NO_RATE, how fast the group consumes is not known;
    NOT_DELETED, the file stays; NO_OFFSET and NO_QUEUE; NO_FILE, a file of the queue is missing. As json and csv a row is a queue, and
    times are in ms.

    A rate is that between observations of `pullsim lag --record`. That of captured commits is not taken: a capture shows minutes, not days.
    """
    from pipeline.lag.retention import RetentionQuestion

    if disk_size is None:
        check_needed("--disk-size", {"--disk-used": disk_used}, "the room on a disk follows from both")
    settings.check()

    def question(stored: Mapping[str, str]) -> RetentionQuestion:
        return RetentionQuestion(
            settings=settings.over(stored),
            zone=zone,
            group=group,
            topic=topic,
            at=at,
            rate=rate,
            growth=None if growth is None else float(growth),
            disk_size=disk_size,
            disk_used=disk_used,
        )

    of_one = growth is not None or disk_size is not None
    asked = AskedRetention(broker, of_one, form, topic is not None, limit, question)
    if not engine.without_spark(lake, asked.show_quickly):
        asked.show(engine, lake)


def _with_possible_times(newest: Mapping[str, int]) -> list[str]:
    """Return the brokers whose newest message has a time from which a forecast can start; all brokers if none has, to be refused later.

    A damaged record may have any time, and must not prevent the answers for the other brokers. The brokers that are left out are printed.
    """
    possible = [broker for broker, time in newest.items() if 0 <= time <= LAST_OF_YEAR_9999]
    for broker in sorted(newest.keys() - possible) if possible else ():
        progress_to_stderr(
            f"broker {shown(broker)} is left out: expected a newest message from 1970 to the year 9999, in ms, found {newest[broker]}; "
            "give a time to look ahead from with --at"
        )
    return possible or list(newest)


@dataclass(frozen=True)
class AskedRetention:
    """The options of `pullsim retention`.

    Attributes:
        broker: name of the broker; None for all brokers that have messages.
        of_one: whether an option describes the disk or log of one broker, so that only one broker can be answered.
        form: form of the rows.
        by_queue: whether a table has a row for each queue.
        limit: greatest number of rows, 0 for all; None for the default of the form.
        question: makes the arguments of the forecast from the settings of the import.
    """

    broker: str | None
    of_one: bool
    form: str
    by_queue: bool
    limit: int | None
    question: Callable[[Mapping[str, str]], RetentionQuestion]

    def show_quickly(self, lake: EmbeddedLake) -> None:
        """Show the losses with the embedded engine."""
        from pipeline.embedded.questions import errors_told

        with errors_told():
            found = self._found(lake.asked, lake.root)
        self._show(*found)

    def show(self, engine: Engine, lake: str) -> None:
        """Show the losses with Spark."""
        from pipeline.lake.lake import Lake
        from pipeline.lake.views import asking

        with engine.session(reads=lake, broker=self.broker) as spark:
            opened = Lake(spark, lake).require()
            found = self._found(asking(opened), opened.root)
        self._show(*found)

    def _found(self, ask: AskAll, root: str) -> tuple[list[tuple[Forecast, list[Row]]], dict[QueueOfGroup, int], list[RetentionQuestion]]:
        """Return the forecast of each chosen broker with its rows, the offsets that pulls were sent past, and each forecast's arguments."""
        from pipeline.lag.retention import retention, skipped_offsets
        from pipeline.lake.committed import chosen_broker

        [stored] = ask(["SELECT brokerName, properties, maxStoreTimestamp FROM broker ORDER BY brokerName"])
        properties = {row["brokerName"]: row["properties"] or {} for row in stored}
        newest = {row["brokerName"]: row["maxStoreTimestamp"] for row in stored if row["maxStoreTimestamp"] is not None}
        asked = list(newest)
        if self.of_one or self.broker is not None or len(asked) < 2:
            asked = [chosen_broker(root, self.broker, list(properties))]
        elif self.question({}).at is None:
            asked = _with_possible_times(newest)
        questions = [self.question(properties[broker]) for broker in asked]
        found = [retention(ask, broker, question) for broker, question in zip(asked, questions, strict=True)]
        is_told = self.form == "table"
        skipped = skipped_offsets(ask, asked, self.question({})) if is_told else {}
        return found, skipped, questions

    def _rules(self, forecasts: Sequence[Forecast], questions: Iterable[RetentionQuestion]) -> Iterator[str]:
        """Yield notes on what deletes files, if it is the same for all brokers, and on files that were deleted earlier than that."""
        rules = {(one.settings.value("fileReservedTime"), one.settings.value("deleteWhen")) for one in questions}
        if any(one.is_by_messages for one in forecasts):
            yield _BY_MESSAGES
        if len(rules) == 1:
            [(hours, when)] = rules
            disk = "" if self.of_one else "; a disk that fills deletes them earlier (--disk-size)"
            yield f"files are deleted by fileReservedTime={hours} and deleteWhen={when}{disk}"
        if len(forecasts) == 1 and forecasts[0].grew_for:
            growth = f"{size_text(forecasts[0].outlook.growth)} a second, as in the last {duration_text(forecasts[0].grew_for)}"
            yield f"the log goes on to grow by {growth} of its messages (--growth)"
        kept = [one.kept_for for one in forecasts if one.kept_for is not None]
        if kept:
            who = "a full disk, another setting or a person did that, unless traffic paused, and may do it again"
            yield f"files were deleted though the oldest message is only {duration_text(min(kept))} old: {who}"

    def _show(
        self, found: list[tuple[Forecast, list[Row]]], skipped: dict[QueueOfGroup, int], questions: Iterable[RetentionQuestion]
    ) -> None:
        from pipeline.lag.retention import COLUMNS, first_losses_first
        from pipeline.listings.retention_list import show_retention

        rows = first_losses_first(row for _, of_broker in found for row in of_broker)
        if self.form == "table":
            rules = tuple(self._rules([forecast for forecast, _ in found], questions))
            show_retention(rows, by_broker=len(found) > 1, by_queue=self.by_queue, limit=self.limit, skipped=skipped, rules=rules)
        else:
            cut = rows[: self.limit or None]
            show_values(COLUMNS, ([row[name] for name in COLUMNS] for row in cut), self.form)
        if self.form != "table" and any(forecast.is_by_messages for forecast, _ in found):
            progress_to_stderr(_BY_MESSAGES)
