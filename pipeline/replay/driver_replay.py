"""Bring few requests together with the entries that they scan, on the driver, without Spark.

The steps are those of `replay.requests_after_entries`, made by the same functions. Where Spark joins tables, the driver reads the stored
rows of the segments that the requests need.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.delta.table_rows import Wanted
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay import as_of
from pipeline.replay.entry_colocation import Row, rows_in_order, rows_of
from pipeline.replay.expression_filters import filter_rules, judge, pulls_into_messages, pulls_with_filter_text, split
from pipeline.replay.kernel_batches import ENTRIES_KEY, Answering, answer_batches
from pipeline.replay.replay import ANSWER_SCHEMA, REQUEST_COLUMNS, At, BrokerStore, broker_store, by_queue, by_segment, cut_at_recorded
from pipeline.requests.packing import Place, pack
from pipeline.rows.queue_batches import SEGMENT_ENTRIES
from pipeline.schema import tables as t
from pipeline.schema.arrow_types import arrow_of
from pipeline.schema.table import Table
from pipeline.settings.settings import PullSettings
from pipeline.tasks.work import NoSessionError
from udfs.pull.pull_filter import FilterRules

# entries of all answers that the driver keeps: 20 bytes each
MOST_ENTRIES = 10_000_000
# entries of queues' segments that are read at once: 40 bytes each, and more with properties
MOST_QUEUE_ENTRIES = 2_000_000
# entries that are read one part after the other: in two seconds
MOST_READ_ENTRIES = 20_000_000
# up to this many queues, each queue has a condition of its own; with more queues, a segment is read if any queue needs its number
_QUEUES_ONE_BY_ONE = 1000
# records of the log whose times the requests need: 16 bytes each
MOST_RECORDS = 10_000_000
Queue = tuple[str, int]
# topic, queueId, number of the segment
Segment = tuple[str, int, int]


class StoredRows(Protocol):
    """The rows of a broker's tables that requests need."""

    @property
    def store(self) -> BrokerStore:
        """Figures of the store."""
        ...

    @property
    def bounds(self) -> Mapping[Queue, tuple[int, int]]:
        """minOffset and maxOffset of each queue."""
        ...

    def segments(self, keys: Set[Segment]) -> Mapping[Segment, Row]:
        """The rows of consume_queue_segment by segment: those of `keys` that exist, and perhaps others."""
        ...

    def stamps(self, keys: Set[Segment]) -> Mapping[Segment, Row]:
        """The firstQueueOffset and storeTimestamps of segments, by segment: those of `keys` that exist, and perhaps others."""
        ...

    def properties(self, keys: Set[Segment]) -> Mapping[Segment, list[Row]]:
        """The rows of consume_queue_properties by segment: those of `keys`, and perhaps others."""
        ...

    def times(self, queues: Set[Queue]) -> Mapping[Queue, list[Row]]:
        """The segments of each of `queues`, in order: the number of each (`segment`) and its `least` timestamp."""
        ...

    def log_parts(self) -> as_of.Index:
        """The index of the log's parts."""
        ...

    def log_runs(self, parts: Set[int]) -> list[Row]:
        """The runs of records in `parts` of the log, each with its part as `key` and its first offset as `run`."""
        ...


@dataclass(frozen=True, slots=True)
class LakeRows:
    """The rows of a lake's tables; of large tables, only files that may have wanted rows are read."""

    broker: OpenedBroker
    store: BrokerStore
    bounds: Mapping[Queue, tuple[int, int]]

    @classmethod
    def of(cls, broker: OpenedBroker, settings: PullSettings) -> LakeRows:
        """The rows of a broker's tables.

        Raises:
            LakeError: as for `broker_store`.
        """
        queues = broker.rows(t.QUEUE).to_pylist()
        bounds = {(row["topic"], row["queueId"]): (row["minOffset"], row["maxOffset"]) for row in queues}
        return cls(broker, broker_store(broker, readable=settings.readable), bounds)

    def segments(self, keys: Set[Segment]) -> Mapping[Segment, Row]:
        """As StoredRows says."""
        return dict(self._of_segments(t.CONSUME_QUEUE_SEGMENT, keys, ["firstQueueOffset", "entryCount", "entries", "extUnits"]))

    def stamps(self, keys: Set[Segment]) -> Mapping[Segment, Row]:
        """As StoredRows says."""
        return dict(self._of_segments(t.CONSUME_QUEUE_SEGMENT, keys, ["firstQueueOffset", "storeTimestamps"]))

    def properties(self, keys: Set[Segment]) -> Mapping[Segment, list[Row]]:
        """As StoredRows says."""
        found: dict[Segment, list[Row]] = defaultdict(list)
        for key, row in self._of_segments(t.CONSUME_QUEUE_PROPERTIES, keys, ["firstQueueOffset", "lengths", "properties"]):
            found[key].append(row)
        return found

    def _of_segments(self, table: Table, keys: Set[Segment], names: list[str]) -> Iterator[tuple[Segment, Row]]:
        of_queues = _of_queues(keys)
        is_exact, numbers = len(of_queues) <= _QUEUES_ONE_BY_ONE, sorted({number for _, _, number in keys})
        read = (min(len(some if is_exact else numbers) * SEGMENT_ENTRIES, self._length(queue)) for queue, some in of_queues.items())
        if sum(read) > MOST_QUEUE_ENTRIES:
            raise NoSessionError(f"the requests need more than {MOST_QUEUE_ENTRIES:,} entries of queues")
        wanted: Wanted = {
            "topic": [*{topic for topic, _ in of_queues}],
            "queueId": [*{queue_id for _, queue_id in of_queues}],
            "segment": numbers,
        }
        each: list[Wanted] = [{"topic": [topic], "queueId": [queue], "segment": some} for (topic, queue), some in of_queues.items()]
        rows = self.broker.rows_with(table, wanted, ["topic", "queueId", "segment", *names], each if is_exact else ())
        return (((row["topic"], row["queueId"], row["segment"]), row) for row in rows.to_pylist())

    def _length(self, queue: Queue) -> int:
        """The number of entries of a queue."""
        least, end = self.bounds.get(queue, (0, 0))
        return end - least

    def times(self, queues: Set[Queue]) -> Mapping[Queue, list[Row]]:
        """As StoredRows says."""
        wanted: Wanted = {"topic": [*{topic for topic, _ in queues}], "queueId": [*{queue_id for _, queue_id in queues}]}
        rows = self.broker.rows_with(t.CONSUME_QUEUE_SEGMENT, wanted, ["topic", "queueId", "segment", "minStoreTimestamp"])
        found: dict[Queue, list[Row]] = defaultdict(list)
        for row in rows.sort_by("segment").rename_columns({"minStoreTimestamp": "least"}).to_pylist():
            found[row["topic"], row["queueId"]].append(row)
        return found

    def log_parts(self) -> as_of.Index:
        """As StoredRows says."""
        runs = self.broker.rows_with(t.COMMIT_LOG_SEGMENT, {}, ["firstPhysicOffset", "minStoreTimestamp"])
        parts = pa.array(runs["firstPhysicOffset"].to_numpy() // as_of.PART_BYTES)
        of_parts = pa.table([parts, runs["minStoreTimestamp"]], ["part", "time"]).group_by("part").aggregate([("time", "min")])
        return as_of.Index.of_log(of_parts.rename_columns({"time_min": "least"}))

    def log_runs(self, parts: Set[int]) -> list[Row]:
        """As StoredRows says."""
        runs = self.broker.rows_with(t.COMMIT_LOG_SEGMENT, {}, ["firstPhysicOffset", "recordCount"]).to_pylist()
        some = [run for run in runs if run["firstPhysicOffset"] // as_of.PART_BYTES in parts]
        if sum(run["recordCount"] for run in some) > MOST_RECORDS:
            raise NoSessionError(f"the requests need the times of more than {MOST_RECORDS:,} messages")
        wanted = [run["firstPhysicOffset"] for run in some]
        names = ["firstPhysicOffset", "ends", "storeTimestamps"]
        rows = self.broker.rows_with(t.COMMIT_LOG_SEGMENT, {"firstPhysicOffset": wanted}, names).to_pylist()
        return [row | {"key": row["firstPhysicOffset"] // as_of.PART_BYTES, "run": row["firstPhysicOffset"]} for row in rows]


def _of_queues(keys: Set[Segment]) -> Mapping[Queue, list[int]]:
    """For each queue, the numbers of its segments."""
    numbers: dict[Queue, list[int]] = defaultdict(list)
    for topic, queue_id, number in keys:
        numbers[topic, queue_id].append(number)
    return numbers


def answers_here(
    broker: OpenedBroker, requests: pa.Table, *, at: At, settings: PullSettings, with_entries: bool, most_entries: int = MOST_ENTRIES
) -> pa.Table:
    """The answers to few requests, rows of ANSWER_SCHEMA in no order.

    Other arguments and errors are as for `requests_after_entries_here`.

    Raises:
        NoSessionError: the answers have more than `most_entries` entries.
    """
    parts = requests_after_entries_here(broker, requests, at=at, settings=settings, with_entries=with_entries)
    found, entries = [], 0
    for answering, rows in parts:
        for answers in answer_batches(answering, rows):
            entries += len(answers.column("entries").flatten())
            if entries > most_entries:
                raise NoSessionError(f"the answers have more than {most_entries:,} entries")
            found.append(answers)
    return pa.Table.from_batches(found, arrow_of(ANSWER_SCHEMA))


def requests_after_entries_here(
    broker: OpenedBroker, requests: pa.Table, *, at: At, settings: PullSettings, with_entries: bool
) -> list[tuple[Answering, Iterator[Row]]]:
    """As `replay.requests_after_entries`, for few requests.

    Args:
        broker: the broker whose store answers.
        requests: rows of request_lines.SCHEMA.
        at: as for `replay`.
        settings: of the broker.
        with_entries: whether an answer lists its entries.

    Raises:
        NoSessionError: only Spark reads a table that is needed.
        LakeError: the store was imported as found, or the tables are damaged.
    """
    rows = LakeRows.of(broker, settings)
    place = partial(by_segment, rows.store, rows.store.has_far_pulls(settings))
    answering = Answering.of(settings, rows.store.entries_a_file, rows.store.log, with_entries=with_entries)
    return after_entries(rows, requests, answering, partial(filter_rules, broker, settings), at=at, place=place, settings=settings)


def after_entries(
    rows: StoredRows,
    requests: pa.Table,
    answering: Answering,
    rules_of: Callable[[], FilterRules],
    *,
    at: At,
    place: Place,
    settings: PullSettings,
) -> list[tuple[Answering, Iterator[Row]]]:
    """Bring packed requests together with the entries that they scan.

    Args:
        rows: the stored rows.
        requests: rows of request_lines.SCHEMA.
        answering: what the kernel needs; the requests that look into messages also get `rules_of()`.
        rules_of: gives the broker's filter rules.
        at: as for `replay`.
        place: gives the final keys.
        settings: of the broker.

    Returns:
        Pairs of what the kernel needs and packed requests, each request after its entries: a pair for requests with TAG filters or none,
        and a pair for requests with filters that look into messages. A pair without requests is left out.
    """
    into_messages = pulls_into_messages(requests, settings)
    by_tag, others = requests.filter(pc.invert(into_messages)), requests.filter(into_messages)
    found = []
    if len(by_tag):
        found.append((answering, _with_blocks(rows, _placed(rows, by_tag, at, place), settings)))
    if len(others):
        rules = rules_of()
        judged = _with_verdicts(rows, rules, _placed(rows, pulls_with_filter_text(others), at, place), settings)
        found.append((replace(answering, rules=rules), _with_blocks(rows, judged, settings, "condition")))
    return found


def _placed(rows: StoredRows, requests: pa.Table, at: At, place: Place) -> list[Row]:
    """The requests packed by the keys of `place`, with the queue bounds and log end that they see."""
    first = by_queue if at == "request-time" else place
    packed = list(rows_of(pack(first, iter(requests.select(REQUEST_COLUMNS).to_batches()))))
    for row in packed:
        row["minOffset"], row["maxOffset"] = rows.bounds.get(_queue(row), (None, None))
        row["logEnd"] = rows.store.log_end
    if at == "request-time":
        return _as_of_times(rows, packed, place)
    return list(rows_of(cut_at_recorded(place, packed))) if at == "recorded-max" else packed


def _queue(row: Row) -> Queue:
    return row["topic"], row["queueId"]


def _as_of_times(rows: StoredRows, packed: list[Row], place: Place) -> list[Row]:
    """The requests packed by the keys of `place`, with maxOffset and log end as of each request's time."""
    indexes = rows.times({_queue(row) for row in packed})
    of_segments = list(rows_of(as_of.place_by_time(row | {"index": indexes.get(_queue(row))} for row in packed)))
    of_parts = list(rows_of(as_of.set_max_offset_by_time(rows.log_parts(), _with_stamps(rows, of_segments))))
    runs = rows.log_runs({row["key"] for row in of_parts})
    ended = as_of.set_log_end_by_time(rows.store.log_start, place, rows_in_order(runs, of_parts, as_of.PART, *as_of.IN_PART))
    return list(rows_of(ended))


def _with_stamps(rows: StoredRows, packed: list[Row]) -> Iterator[Row]:
    """The packed rows by segment; a row with the store timestamps of a segment's entries precedes the segment's packed rows."""
    for some in _parts(rows, packed, as_of.SEGMENT, lambda row: [(*_queue(row), row["key"])]):
        stored = rows.stamps({(*_queue(row), row["key"]) for row in some})
        stamps = (
            {"topic": topic, "queueId": queue_id, "key": key, "first": row["firstQueueOffset"], "storeTimestamps": row["storeTimestamps"]}
            for (topic, queue_id, key), row in stored.items()
        )
        yield from rows_in_order(stamps, some, as_of.SEGMENT)


def _segments_of(rows: StoredRows, row: Row, settings: PullSettings) -> list[Segment]:
    """The segments that the requests of a packed row may scan, in their order."""
    numbers: Iterable[int] = [row["key"]]
    if row["wide"] and row["key"] >= 0:
        first = row["key"] // rows.store.entries_a_file * rows.store.segments_a_file
        numbers = range(first, first + rows.store.segments_a_file * (1 + rows.store.files_ahead(settings)))
    return [(*_queue(row), number) for number in numbers]


def _with_verdicts(rows: StoredRows, rules: FilterRules, packed: list[Row], settings: PullSettings) -> list[Row]:
    """Split packed rows by the conditions of their filters, and add the `verdicts` of a row's condition on the entries that it may scan."""
    parts = [part | {"verdicts": None} for row in packed for part in split(rules, row)]
    judged = [(part, _segments_of(rows, part, settings)) for part in parts if part["condition"] is not None]
    stored = rows.properties({key for _, keys in judged for key in keys})
    for part, keys in judged:
        more = {"wide": part["wide"], "key": part["key"], "conditions": [part["condition"]]}
        part["verdicts"] = list(rows_of(judge(rules, [one | more for key in keys for one in stored.get(key, ())])))
    return parts


def _with_blocks(rows: StoredRows, packed: list[Row], settings: PullSettings, *then_by: str) -> Iterator[Row]:
    """The packed rows by key; a row with a key's entries precedes the key's packed rows."""
    for some in _parts(rows, packed, ENTRIES_KEY, partial(_segments_of, rows, settings=settings)):
        of_keys = {tuple(row[name] for name in ENTRIES_KEY): _segments_of(rows, row, settings) for row in some}
        stored = rows.segments({key for keys in of_keys.values() for key in keys})
        found = (
            dict(zip(ENTRIES_KEY, key, strict=True)) | {"blocks": [stored[one] for one in keys if one in stored]}
            for key, keys in of_keys.items()
        )
        yield from rows_in_order((row for row in found if row["blocks"]), some, ENTRIES_KEY, *then_by)


def _parts(rows: StoredRows, packed: list[Row], key: tuple[str, ...], segments: Callable[[Row], list[Segment]]) -> list[list[Row]]:
    """Divide packed rows into lists whose `segments` have at most MOST_QUEUE_ENTRIES entries, or that have one key.

    The rows of a key are in one list, one after the other.

    Raises:
        NoSessionError: the segments of all rows have more than MOST_READ_ENTRIES entries.
    """
    parts: list[list[Row]] = []
    entries = read = 0
    for _, of_key in groupby(sorted(packed, key=itemgetter(*key)), key=itemgetter(*key)):
        alike = list(of_key)
        least, end = rows.bounds.get(_queue(alike[0]), (0, 0))
        needed = min(len(segments(alike[0])) * SEGMENT_ENTRIES, end - least)
        if not parts or entries + needed > MOST_QUEUE_ENTRIES:
            parts.append([])
            entries = 0
        parts[-1] += alike
        entries += needed
        read += needed
    if read > MOST_READ_ENTRIES:
        raise NoSessionError(f"the requests need more than {MOST_READ_ENTRIES:,} entries of queues")
    return parts
