"""Queue bounds and log end as of each request's time, or on a slave with a slave lag.

Rule: maxOffset(t) = 1 + the greatest queueOffset with storeTimestamp <= t, or minOffset if there is none. An entry without a timestamp is
older than any time. The log end at t is found in the same way. A slave with a lag in bytes has a shorter log; its maxOffset follows the
last entry whose message lies completely in that log.
For each segment, an index has the least value (timestamp, or end of a message) of this segment and of all later ones. The index never
decreases, so a binary search finds the one segment that holds the wanted entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay.entry_colocation import Colocated, Row, after_stored, by_rows, colocated
from pipeline.replay.touched_segments import TouchedSegments, only_touched
from pipeline.requests.packing import NO_KEY, SCHEMA, Col, Matrix, Packed, Place, packed_again
from pipeline.schema import tables as t
from pipeline.tasks.computed_once import computed_once
from store_format.queue.consume_queue import units_of

Placed = tuple[NDArray[np.int64], NDArray[np.bool_]]
Stored = tuple[Row, ...]
_QUEUE = ("topic", "queueId")
SEGMENT = (*_QUEUE, "key")
PART = ("key",)
# columns that order the rows of a part
IN_PART = ("run", *_QUEUE)
# To get their log end, requests are packed by parts of the log of this many bytes: a part's records take at most 12 MB, and the requests
# of a queue's segment make few packed rows. By the runs of records, which are smaller, a million requests made 80,000 packed rows.
PART_BYTES = 64 << 20
# A queue's entries are in the order of the log: ConsumeQueue.putMessagePositionInfo rejects an entry older than the last one. So the first
# entry's physicOffset is a lower bound for the ends of the segment's messages. Units before a queue's first message have physicOffset 0.
_LEAST_PLACE = "coalesce(try_cast(conv(hex(substring(entries, 1, 8)), 16, 10) AS BIGINT), 0)"


def with_bounds_as_of(
    broker: OpenedBroker, log_start: int, packed: DataFrame, place: Place, times: tuple[int | None, int | None] | None
) -> DataFrame:
    """Set maxOffset and log end of packed requests as of each request's time.

    Args:
        broker: the broker whose store is read.
        log_start: first offset of the broker's commit log.
        packed: packed rows, with the bounds of the whole store.
        place: gives the key of each request in the result.
        times: the least and the greatest time of the requests, if only the parts of the store that they need are to be read; else None.
    """
    segments = broker.table(t.CONSUME_QUEUE_SEGMENT)
    placed = _with_index(segments, "minStoreTimestamp", packed).mapInArrow(partial(by_rows, place_by_time), SCHEMA)
    log = broker.table(t.COMMIT_LOG_SEGMENT)
    parts = Index.of_log(log.groupBy(_part_of_run().alias("part")).agg(F.min("minStoreTimestamp").alias("least")).toArrow())
    if times is not None:
        placed = computed_once(placed, eager=False)
        touched = TouchedSegments.of(placed.select("topic", "queueId", F.col("key").alias("segment")), "segment")
        segments = only_touched(segments, touched)
        first, last = parts.last_at_most(np.array([time or 0 for time in times], np.int64)).tolist()
        log = log.where(F.col("firstPhysicOffset").between(first * PART_BYTES, (last + 1) * PART_BYTES - 1))
    stamps = segments.select("topic", "queueId", F.col("segment").alias("key"), F.col("firstQueueOffset").alias("first"), "storeTimestamps")
    bounded = after_stored(stamps, placed, SEGMENT).mapInArrow(partial(by_rows, partial(set_max_offset_by_time, parts)), SCHEMA)
    ends = log.select(_part_of_run().alias("key"), F.col("firstPhysicOffset").alias("run"), "ends", "storeTimestamps")
    to_entries = partial(by_rows, partial(set_log_end_by_time, log_start, place))
    return after_stored(ends, bounded, PART, *IN_PART).mapInArrow(to_entries, SCHEMA)


def with_bounds_of_slave(
    broker: OpenedBroker, log_start: int, lag_bytes: int, packed: DataFrame, queues: DataFrame, place: Place
) -> DataFrame:
    """Set maxOffset and log end of packed requests to the values of a slave with a lag in bytes.

    Args:
        broker: the master.
        log_start: first offset of the master's commit log.
        lag_bytes: length of the end of the master's log that the slave does not have.
        packed: packed rows, with the bounds of the master.
        queues: topic and queueId of the queues to read: all queues of the requests.
        place: gives the key of each request in the result.
    """
    segments = broker.table(t.CONSUME_QUEUE_SEGMENT)
    segments = segments.join(F.broadcast(queues), ["topic", "queueId"], "left_semi")
    by_log_end = partial(by_rows, partial(_place_by_log_end, log_start, lag_bytes))
    placed = _with_index(segments, _LEAST_PLACE, packed).mapInArrow(by_log_end, SCHEMA)
    entries = segments.selectExpr("topic", "queueId", "segment AS key", "firstQueueOffset AS first", "entryCount", "entries")
    to_entries = partial(_staged_after_stored, SEGMENT, _ends_of_segment, partial(_set_max_offset, Col.LOG_END, place))
    return after_stored(entries, placed, SEGMENT).mapInArrow(partial(by_rows, to_entries), SCHEMA)


def _with_index(segments: DataFrame, least: str, packed: DataFrame) -> DataFrame:
    """Add to packed rows a column `index`: for each segment of the queue, a lower bound of the values in it.

    Args:
        segments: rows of consume_queue_segment.
        least: SQL expression for the lower bound of a segment.
        packed: packed rows; their column `key` is dropped.
    """
    index = segments.groupBy("topic", "queueId").agg(F.expr(f"sort_array(collect_list(struct(segment, {least} AS least))) AS index"))
    return packed.join(index, ["topic", "queueId"], "left").drop("key")


@dataclass(frozen=True, slots=True)
class Index:
    """Index of a queue's segments or of the log's parts.

    Attributes:
        keys: number of each segment or part, in order.
        least: the least value in this segment or part and in all later ones.
    """

    keys: NDArray[np.int64]
    least: NDArray[np.int64]

    @classmethod
    def of_log(cls, parts: pa.Table) -> Index:
        """The index of the commit log's parts, from `part` and the `least` timestamp of each."""
        keys, least = (parts.sort_by("part")[name].to_numpy() for name in ("part", "least"))
        return cls(keys, _from_here_on(least))

    def last_at_most(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each time, the key of the last segment or part with a value <= time; NO_KEY if there is none."""
        return np.append(np.int64(NO_KEY), self.keys)[np.searchsorted(self.least, times, side="right")]

    def by_time(self, matrix: Matrix) -> Placed:
        """The key of each request by its time."""
        return self.last_at_most(matrix[:, Col.TIME]), np.zeros(len(matrix), np.bool_)


def _part_of_run() -> Column:
    return F.expr(f"firstPhysicOffset DIV {PART_BYTES}")


@dataclass(frozen=True, slots=True)
class _Steps:
    """The queue offset or log offset that a store has reached at a time, or at a log end; it rises with each entry or record.

    Attributes:
        least: the least value (time or end) of each entry or record and of all later ones.
        reached: the offset reached before the first entry or record, and after each.
    """

    least: NDArray[np.int64]
    reached: NDArray[np.int64]

    def at(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each of `values`, the offset reached with the last entry or record whose value is at most this one."""
        return self.reached[np.searchsorted(self.least, values, side="right")]


def _from_here_on(stamps: NDArray[np.int64]) -> NDArray[np.int64]:
    """The minimum of each stamp and all later stamps."""
    return np.minimum.accumulate(stamps[::-1])[::-1]


def place_by_time(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Pack the requests of rows with `index` again, by the last segment that has a timestamp <= the request's time.

    `index` has the number and the least timestamp of each segment of the queue.
    """
    return packed_again(_placed(row["index"] or [], Packed.of(row), Col.TIME) for row in rows)


def set_max_offset_by_time(parts: Index, rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Set maxOffset as of each request's time, and pack the requests again by the part of the log that has their log end.

    Args:
        parts: of the log.
        rows: requests packed by the keys of `place_by_time`, after rows with `first` (queue offset) and `storeTimestamps` of their
            segments.
    """
    return _staged_after_stored(SEGMENT, _times_of_segment, partial(_set_max_offset, Col.TIME, parts.by_time), rows)


def set_log_end_by_time(log_start: int, place: Place, rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Set the log end as of each request's time, and pack the requests again by the keys that `place` gives.

    Args:
        log_start: first offset of the commit log.
        place: gives the keys.
        rows: requests packed by the keys of `set_max_offset_by_time`, after rows with `ends` and `storeTimestamps` of the runs in their
            part.
    """
    return _staged_after_stored(PART, partial(_ends_of_log, log_start), partial(_set_log_end, place), rows)


def _staged_after_stored(
    key: tuple[str, ...], steps_of: Callable[[Stored], _Steps], stage: Callable[[_Steps, Matrix], Placed], rows: Iterable[Row]
) -> Iterator[pa.RecordBatch]:
    """Apply a stage to packed rows, which follow the stored rows of their key, and pack the requests again by the keys of the stage.

    Args:
        key: names of the key's columns.
        steps_of: gives the steps of the stored rows of a key.
        stage: changes the matrix of requests, and gives the next key of each request and whether it is wide.
        rows: as `after_stored` sorts them.
    """
    return packed_again(_staged(colocated(rows, key, *_QUEUE), steps_of, stage))


def _staged(
    found: Iterator[Colocated], steps_of: Callable[[Stored], _Steps], stage: Callable[[_Steps, Matrix], Placed]
) -> Iterator[tuple[Packed, NDArray[np.int64], NDArray[np.bool_]]]:
    last, steps = None, None
    for stored, _, packed in found:
        if steps is None or stored is not last:
            last, steps = stored, steps_of(stored)
        yield packed, *stage(steps, packed.matrix)


def _place_by_log_end(log_start: int, lag_bytes: int, rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Shorten the log of each request by the slave lag, and pack the requests by the last segment with a message in that log."""

    def cut(packed: Packed) -> Packed:
        packed.matrix[:, Col.LOG_END] = np.maximum(packed.matrix[:, Col.LOG_END] - lag_bytes, log_start)
        return packed

    return packed_again(_placed(row["index"] or [], cut(Packed.of(row)), Col.LOG_END) for row in rows)


def _placed(index: list[dict[str, int]], packed: Packed, column: Col) -> tuple[Packed, NDArray[np.int64], NDArray[np.bool_]]:
    starts, least = (np.array([entry[name] for entry in index], np.int64) for name in ("segment", "least"))
    keys = Index(starts, _from_here_on(least)).last_at_most(packed.matrix[:, column])
    return packed, keys, np.zeros(len(keys), np.bool_)


def _times_of_segment(stored: Stored) -> _Steps:
    """Queue offsets by the times of a segment's entries."""
    return _steps_of_entries(stored[0]["first"], np.frombuffer(stored[0]["storeTimestamps"], "<i8")) if stored else _NO_ENTRIES


def _ends_of_segment(stored: Stored) -> _Steps:
    """Queue offsets by the ends of the messages of a segment's entries."""
    if not stored:
        return _NO_ENTRIES
    units = units_of(np.frombuffer(stored[0]["entries"], np.uint8))[: stored[0]["entryCount"]]
    return _steps_of_entries(stored[0]["first"], units["physicOffset"].astype(np.int64) + units["size"])


def _steps_of_entries(first: int, values: NDArray[np.int64]) -> _Steps:
    return _Steps(_from_here_on(values), first + np.arange(len(values) + 1))


_NO_ENTRIES = _Steps(np.empty(0, np.int64), np.zeros(1, np.int64))


def _ends_of_log(log_start: int, stored: Stored) -> _Steps:
    """Offsets of the log by the times of a part's records."""
    times, ends = (
        np.concatenate([np.empty(0, np.int64), *(np.frombuffer(run[name], "<i8") for run in stored)])
        for name in ("storeTimestamps", "ends")
    )
    return _Steps(_from_here_on(times), np.append(np.int64(log_start), ends))


def _set_max_offset(by: Col, then: Place, steps: _Steps, matrix: Matrix) -> Placed:
    """Set maxOffset to what the queue has reached at each request's time or log end; `then` gives the next keys."""
    matrix[:, Col.MAX_OFFSET] = np.maximum(steps.at(matrix[:, by]), matrix[:, Col.MIN_OFFSET])
    return then(matrix)


def _set_log_end(place: Place, steps: _Steps, matrix: Matrix) -> Placed:
    """Set the log end to what the log has reached at each request's time; `place` gives the next keys."""
    matrix[:, Col.LOG_END] = steps.at(matrix[:, Col.TIME])
    return place(matrix)
