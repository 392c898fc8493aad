"""The table of `pullsim retention`: what each group loses of each topic, or of each queue, and a verdict below it. No Spark here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pipeline.lag.retention import IN_TIME, NO_FILE, NO_RATE, NOT_DELETED, QueueOfGroup
from pipeline.lake.asking import Row
from pipeline.listings.listing import TABLE_ROWS, Kind, Shown, Verdict
from pipeline.listings.table import show_cut
from pipeline.settings.quantities import counted, moment_text

# reasons why no loss is foreseen: messages stay long enough, or a queue's next message is not known
_SAFE: Final = {IN_TIME, NOT_DELETED, "NOTHING_WAITS"}
_UNKNOWN: Final = {"NO_OFFSET", "NO_QUEUE", NO_FILE}
_BROKER: Final = Shown("brokerName", "Broker")
_QUEUE: Final = Shown("queueId", "QID", Kind.COUNT)
_SKIPPED: Final = Shown("skippedOffsets", "Skipped", Kind.COUNT)
_NAMES: Final = (Shown("consumerGroup", "Group"), Shown("topic", "Topic"))
_LOSSES: Final = (
    Shown("lostMessages", "Lost", Kind.COUNT),
    Shown("deletedAt", "File goes (UTC)", Kind.MILLIS),
    Shown("lossAt", "Loses at (UTC)", Kind.MILLIS),
    Shown("lossMessages", "Loses", Kind.COUNT),
    Shown("neededReservedHours", "Keep h", Kind.COUNT),
    Shown("reason", "Why none", Kind.PROSE),
)


def show_retention(
    rows: Sequence[Row], *, by_broker: bool, by_queue: bool, limit: int | None, skipped: Mapping[QueueOfGroup, int], rules: Sequence[str]
) -> None:
    """Print the rows of `retention`, the first losses first, and a verdict.

    Args:
        rows: a row for each group and queue.
        by_broker: whether the table names the broker of a row.
        by_queue: whether the table has a row for each queue; else it has one for each group and topic.
        limit: greatest number of rows; 0 for all, None for TABLE_ROWS.
        skipped: for each queue, how many offsets captured pulls were sent past, because their messages were deleted.
        rules: notes on what deletes files.
    """
    passed = (_SKIPPED,) if skipped else ()
    columns = (*((_BROKER,) if by_broker else ()), *_NAMES, *((_QUEUE,) if by_queue else ()), *passed, *_LOSSES)
    told = [_with_skipped(row, skipped) for row in rows]
    shown = told if by_queue else by_topic(told)
    cut = shown[: TABLE_ROWS if limit is None else limit or None]
    values = [[row[column.name] for column in columns] for row in cut]
    show_cut(columns, values, len(shown), verdict(rows, sum(skipped.values()), rules))


def _with_skipped(row: Row, skipped: Mapping[QueueOfGroup, int]) -> Row:
    queue = row["brokerName"], row["consumerGroup"], row["topic"], row["queueId"]
    return {**row, _SKIPPED.name: skipped.get(queue, 0)}


def by_topic(rows: Iterable[Row]) -> list[Row]:
    """Return a row for each broker, group and topic, in the order of their first rows: sums, first times, greatest hours, each reason."""
    folded: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        folded.setdefault((row["brokerName"], row["consumerGroup"], row["topic"]), []).append(row)
    return [_folded(of_topic) for of_topic in folded.values()]


def _folded(rows: Sequence[Row]) -> Row:
    def known(name: str) -> list[Any]:
        return [row[name] for row in rows if row.get(name) is not None]

    def first(name: str) -> Any:
        return min(known(name), default=None)

    return {
        **{name: rows[0][name] for name in ("brokerName", "consumerGroup", "topic")},
        **{name: sum(known(name)) if known(name) else None for name in (_SKIPPED.name, "lostMessages", "lossMessages")},
        **{name: first(name) for name in ("deletedAt", "lossAt")},
        "neededReservedHours": max(known("neededReservedHours"), default=None),
        "reason": None if known("lossAt") else ", ".join(_reasons(known("reason"))),
    }


def _reasons(reasons: Sequence[str]) -> list[str]:
    """Return each reason once, those of _SAFE only if there are no others."""
    each = list(dict.fromkeys(reasons))
    return [reason for reason in each if reason not in _SAFE] or each


def verdict(rows: Sequence[Row], skipped: int = 0, rules: Sequence[str] = ()) -> Verdict:
    """Return the verdict on all rows; queues of which nothing is known do not count as safe."""
    losing = [row for row in rows if row["lossAt"] is not None]
    lost = sum(row["lostMessages"] or 0 for row in rows)
    without_rate = {row["consumerGroup"] for row in rows if row["reason"] == NO_RATE}
    going = [row for row in rows if row["reason"] == NO_RATE and row["deletedAt"] is not None]
    unplaced = sum(row["reason"] in _UNKNOWN for row in rows)
    told = []
    if losing:
        at = min(row["lossAt"] for row in losing)
        first = Counter[str]()
        for row in losing:
            if row["lossAt"] == at:
                first[row["consumerGroup"]] += row["lossMessages"]
        group, messages = min(first.items(), key=lambda one: (-one[1], one[0]))
        others = f", and {len(first) - 1:,} more then" if len(first) > 1 else ""
        told.append(f"{_groups(losing)} messages; the first is {group}: {messages:,} at {moment_text(at)} UTC{others}")
        if all(row["neededReservedHours"] is None for row in losing):
            told.append("no fileReservedTime keeps them, as these groups consume nothing")
    if lost:
        told.append(f"lost already: {counted(lost, 'message')}, which the lag counts")
    if skipped:
        past = f"captured pulls were sent past {skipped:,} deleted messages, which no lag counts"
        told.append(f"{past} (pullsim pulls --outcome 21 tells when)")
    if going:
        at = min(row["deletedAt"] for row in going)
        groups = sorted({row["consumerGroup"] for row in going if row["deletedAt"] == at})
        more = f" and {len(groups) - 1:,} more" if len(groups) > 1 else ""
        told.append(
            f"the next file with messages that wait goes at {moment_text(at)} UTC: what {groups[0]}{more} did not consume then is lost"
        )
    if without_rate:
        pace = "1 group consumes" if len(without_rate) == 1 else f"{len(without_rate):,} groups consume"
        told.append(
            f"how fast {pace} is not known, for captured commits show minutes and not days: --rate 0 assumes none, "
            "and pullsim lag --record after each import finds rates"
        )
    if unplaced:
        told.append(f"of {unplaced:,} queue{'' if unplaced == 1 else 's'} the next message is not known")
    safe = sum(row["reason"] in _SAFE for row in rows)
    if safe and not losing:
        told.append(f"of {counted(safe, 'other queue')} no loss is foreseen" if told else "no loss is foreseen")
    return Verdict.of("", *(told or ["no group has an offset here: nothing is known"]), *rules)


def _groups(rows: Iterable[Row]) -> str:
    count = len({row["consumerGroup"] for row in rows})
    return "1 group loses" if count == 1 else f"{count:,} groups lose"
