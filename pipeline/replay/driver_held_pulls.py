"""Few held pulls on the driver, without Spark: which pulls the broker holds, when it wakes each, and what each gets then.

The steps are those of `replay_job.answer_woken`, made by the same functions. Where Spark joins the segments of a pull's queue, the driver
reads the stored rows of the segments whose messages may arrive while a pull waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay.driver_replay import LakeRows, Queue, Segment, StoredRows, answers_here
from pipeline.replay.entry_colocation import Row
from pipeline.replay.expression_filters import filter_rules, pulls_into_messages
from pipeline.replay.held_pulls import NEVER_WOKEN, NO_RUN, OF_REQUEST, Polling, Waking, may_wait_here
from pipeline.settings.settings import BrokerSettings, PullSettings
from pipeline.tasks.work import NoSessionError
from udfs.pull.codes import ResponseCode
from udfs.pull.pull_request_hold import NEVER

# pairs of a pull and a segment in which the driver looks for the moment of waking, one after the other: in two to eleven seconds
MOST_RUNS = 20_000
# column that `Waking.moment` needs of the properties of a segment's messages -> its name in consume_queue_properties
_OF_PART = {"partFirstOffset": "firstQueueOffset", "lengths": "lengths", "properties": "properties"}


def held_here(broker: OpenedBroker, requests: pa.Table, *, settings: PullSettings) -> pa.Array:
    """The `seq` of the requests that the broker would hold, as `replay_job.held_requests` finds them.

    Args:
        broker: the broker whose store answers.
        requests: rows of request_lines.SCHEMA.
        settings: of the broker.

    Raises:
        NoSessionError: only Spark can answer the requests.
    """
    asking = requests.filter(may_wait_here(requests))
    first = answers_here(broker, asking, at="request-time", settings=settings, with_entries=False)
    is_held = pc.and_(pc.is_null(first["error"]), pc.equal(first["code"], int(ResponseCode.PULL_NOT_FOUND)))
    return first.filter(is_held)["seq"].combine_chunks()


def when_woken_here(broker: OpenedBroker, held: pa.Table, *, settings: BrokerSettings) -> Mapping[int, int]:
    """For each held request by its `seq`, when the broker runs it again, ms, or NEVER; as `replay_job.when_woken`.

    Args:
        broker: the broker whose store answers.
        held: rows of request_lines.SCHEMA, and any other columns.
        settings: of the broker.

    Raises:
        NoSessionError: the segments that the requests wait for are more than MOST_RUNS in total, or only Spark can read the tables.
    """
    if not len(held):
        return {}
    pull, polling = settings.pull_settings(), Polling.of(settings)
    waking = Waking(filter_rules(broker, pull), polling, with_extension=pull.enable_consume_queue_ext)
    looks = pulls_into_messages(held, pull).to_pylist()
    waits = [_Wait(row, looks=bool(look)) for row, look in zip(held.to_pylist(), looks, strict=True)]
    return _moments(LakeRows.of(broker, pull), waking, polling, waits)


def with_woken(requests: pa.Table, woken: Mapping[int, int]) -> pa.Table:
    """The requests with a further column `wokenMillis`, from `woken` by `seq`; NULL for requests that `woken` does not have."""
    return requests.append_column("wokenMillis", pa.array(map(woken.get, requests["seq"].to_pylist()), pa.int64()))


def answers_woken_here(
    broker: OpenedBroker, requests: pa.Table, *, settings: PullSettings, with_entries: bool, most_entries: int
) -> pa.Table:
    """Answers to requests of which some were held; as `replay_job.answer_woken`.

    Args:
        broker: the broker whose store answers.
        requests: rows of request_lines.SCHEMA, and `wokenMillis`: NULL for requests that were not held.
        settings: of the broker.
        with_entries: whether an answer lists its entries.
        most_entries: as for `answers_here`.

    Returns:
        Rows of ANSWER_SCHEMA with heldMillis and wokenMillis, in no order.

    Raises:
        NoSessionError: as for `answers_here`.
    """
    place = requests.column_names.index("timestamp")
    at_wake = requests.set_column(place, "timestamp", pc.coalesce(requests["wokenMillis"], requests["timestamp"]))
    answers = answers_here(broker, at_wake, at="request-time", settings=settings, with_entries=with_entries, most_entries=most_entries)
    rows = pc.index_in(answers["seq"], requests["seq"].combine_chunks())
    woken, asked = requests["wokenMillis"].take(rows), requests["timestamp"].take(rows)
    held = pc.if_else(pc.is_valid(woken), asked, pa.scalar(None, pa.int64()))
    return _without_never_woken(answers.append_column("heldMillis", held).append_column("wokenMillis", woken))


def _without_never_woken(answers: pa.Table) -> pa.Table:
    """As `held_pulls.without_never_woken`."""
    never = pc.fill_null(pc.equal(answers["wokenMillis"], NEVER), fill_value=False)
    if not pc.any(never).as_py():
        return answers
    others = {name: pa.scalar(None, answers.schema.field(name).type) for name in answers.column_names if name not in OF_REQUEST}
    others["error"] = pa.scalar(NEVER_WOKEN)
    columns = [pc.if_else(never, others[name], answers[name]) if name in others else answers[name] for name in answers.column_names]
    return pa.table(columns, answers.schema)


@dataclass(frozen=True, slots=True)
class _Wait:
    """A held pull, and whether its filter looks into messages."""

    pull: Mapping[str, Any]
    looks: bool

    @property
    def queue(self) -> Queue:
        return self.pull["topic"], self.pull["queueId"]


def _moments(rows: StoredRows, waking: Waking, polling: Polling, waits: Sequence[_Wait]) -> dict[int, int]:
    indexes = rows.times({wait.queue for wait in waits})
    runs = [[(*wait.queue, run) for run in _runs_of_wait(polling, wait.pull, indexes.get(wait.queue, ()))] for wait in waits]
    if sum(max(len(some), 1) for some in runs) > MOST_RUNS:
        raise NoSessionError(f"more than {MOST_RUNS:,} pulls wait, or wait long")
    keys = {key for some in runs for key in some}
    segments, stamps = rows.segments(keys), rows.stamps(keys)
    properties = rows.properties({key for wait, some in zip(waits, runs, strict=True) if wait.looks for key in some})
    stored = partial(_stored_rows, segments, stamps, properties)
    return {
        wait.pull["seq"]: min(waking.moment({**wait.pull, **one}) for one in stored(some, looks=wait.looks))
        for wait, some in zip(waits, runs, strict=True)
    }


def _runs_of_wait(polling: Polling, pull: Mapping[str, Any], index: Sequence[Row]) -> Iterator[int]:
    """The numbers of the segments with a message that may arrive while a pull waits, from the segments of its queue in order."""
    asked = pull["timestamp"]
    until = polling.until(asked, pull["suspendTimeoutMillis"])
    leasts = [one["least"] for one in index]
    for one, end in zip(index, [*leasts[1:], None][: len(index)], strict=True):
        if one["least"] is not None and one["least"] <= until and (end is None or end > asked):
            yield one["segment"]


def _stored_rows(
    segments: Mapping[Segment, Row],
    stamps: Mapping[Segment, Row],
    properties: Mapping[Segment, list[Row]],
    keys: Sequence[Segment],
    *,
    looks: bool,
) -> Iterator[Mapping[str, Any]]:
    """Yield the stored columns that `Waking.moment` needs, a row for each segment.

    If the filter `looks` into messages, there is a row for each part of a segment's properties. A pull without segments gets NO_RUN.
    """
    for key in keys:
        run = {**NO_RUN, **segments.get(key, {}), **stamps.get(key, {})}
        parts = properties.get(key, ()) if looks else ()
        of_parts = [{name: part[column] for name, column in _OF_PART.items()} for part in parts]
        yield from ({**run, **of_part} for of_part in of_parts or ({},))
    if not keys:
        yield NO_RUN
