"""Queue bounds and log end as of each request's time, or on a slave with a slave lag.

Rule: maxOffset(t) = 1 + the greatest queueOffset with storeTimestamp <= t, or minOffset if there is none. An entry without a timestamp is
older than any time. The log end at t is found in the same way. A slave with a lag in bytes has a shorter log; its maxOffset follows the
last entry whose message lies completely in that log.
For each segment, an index has the least value (timestamp, or end of a message) of this segment and of all later ones. The index never
decreases, so a binary search finds the one segment that holds the wanted entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay.entry_colocation import after_stored, colocated, rows_of
from pipeline.replay.touched_segments import TouchedSegments, only_touched
from pipeline.requests.packing import NO_KEY, SCHEMA, Col, Matrix, Packed, Place, packed_again
from pipeline.schema import tables as t
from store_format.queue.consume_queue import units_of

Placed = tuple[NDArray[np.int64], NDArray[np.bool_]]
# (the stored row of the key, or None; the matrix of requests, which the stage changes) -> (next key of each request, whether it is wide)
Stage = Callable[[dict[str, Any] | None, Matrix], Placed]
_QUEUE = ("topic", "queueId")
_SEGMENT = (*_QUEUE, "key")
_RUN = ("key",)
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
    placed = _with_index(segments, "minStoreTimestamp", packed).mapInArrow(_place_by_time, SCHEMA)
    log = broker.table(t.COMMIT_LOG_SEGMENT)
    index_of_log = _Index.of_log(log)
    if times is not None:
        touched = TouchedSegments.of(placed.select("topic", "queueId", F.col("key").alias("segment")), "segment")
        segments = only_touched(segments, touched)
        first, last = index_of_log.last_at_most(np.array([time or 0 for time in times], np.int64)).tolist()
        log = log.where(F.col("firstPhysicOffset").between(first, last))
    stamps = segments.select("topic", "queueId", F.col("segment").alias("key"), F.col("firstQueueOffset").alias("first"), "storeTimestamps")
    bounded = after_stored(stamps, placed, _SEGMENT).mapInArrow(
        partial(_placed_after_stored, _SEGMENT, partial(_max_offset, index_of_log)), SCHEMA
    )
    ends = log.select(F.col("firstPhysicOffset").alias("key"), "ends", "storeTimestamps")
    to_entries = partial(_placed_after_stored, _RUN, partial(_log_end, log_start, place))
    return after_stored(ends, bounded, _RUN, *_QUEUE).mapInArrow(to_entries, SCHEMA)


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
    placed = _with_index(segments, _LEAST_PLACE, packed).mapInArrow(partial(_place_by_log_end, log_start, lag_bytes), SCHEMA)
    entries = segments.selectExpr("topic", "queueId", "segment AS key", "firstQueueOffset AS first", "entryCount", "entries")
    return after_stored(entries, placed, _SEGMENT).mapInArrow(
        partial(_placed_after_stored, _SEGMENT, partial(_whole_messages, place)), SCHEMA
    )


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
class _Index:
    """Index of a queue's segments or of the log's runs of records.

    Attributes:
        keys: number of each segment, or first offset of each run, in order.
        least: the least value in this segment or run and in all later ones.
    """

    keys: NDArray[np.int64]
    least: NDArray[np.int64]

    @classmethod
    def of_log(cls, log: DataFrame) -> _Index:
        """The index of the commit log's runs of records, which are some megabytes each."""
        rows = log.select("firstPhysicOffset", "minStoreTimestamp").orderBy("firstPhysicOffset").toArrow()
        starts, least = (column.to_numpy() for column in rows.columns)
        return cls(starts, _from_here_on(least))

    def last_at_most(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each time, the key of the last run with a value <= time; NO_KEY where there is none."""
        return np.append(np.int64(NO_KEY), self.keys)[np.searchsorted(self.least, times, side="right")]


def _from_here_on(stamps: NDArray[np.int64]) -> NDArray[np.int64]:
    """The minimum of each stamp and all later stamps."""
    return np.minimum.accumulate(stamps[::-1])[::-1]


def _placed_after_stored(key: tuple[str, ...], stage: Stage, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Apply a stage to the packed rows after each stored row, and pack the requests again by the keys that the stage returns."""
    return packed_again((packed, *stage(stored, packed.matrix)) for stored, _, packed in colocated(rows_of(batches), key, *_QUEUE))


def _place_by_time(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pack the requests of rows with `index` again, by the last segment that has a timestamp <= the request's time."""
    return packed_again(_placed(row["index"] or [], Packed.of(row), Col.TIME) for batch in batches for row in batch.to_pylist())


def _place_by_log_end(log_start: int, lag_bytes: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Shorten the log of each request by the slave lag, and pack the requests by the last segment with a message in that log."""

    def cut(packed: Packed) -> Packed:
        packed.matrix[:, Col.LOG_END] = np.maximum(packed.matrix[:, Col.LOG_END] - lag_bytes, log_start)
        return packed

    return packed_again(_placed(row["index"] or [], cut(Packed.of(row)), Col.LOG_END) for batch in batches for row in batch.to_pylist())


def _placed(index: list[dict[str, int]], packed: Packed, column: Col) -> tuple[Packed, NDArray[np.int64], NDArray[np.bool_]]:
    starts, least = (np.array([entry[name] for entry in index], np.int64) for name in ("segment", "least"))
    keys = _Index(starts, _from_here_on(least)).last_at_most(packed.matrix[:, column])
    return packed, keys, np.zeros(len(keys), np.bool_)


def _last_at_most(stamps: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each time, the position of the last stamp <= time; -1 where there is none."""
    return np.searchsorted(_from_here_on(stamps), times, side="right") - 1


def _max_offset(log: _Index, segment: dict[str, Any] | None, matrix: Matrix) -> Placed:
    """Set maxOffset as of each request's time; the next key is the run of the log that has the log end."""
    if segment is None:
        matrix[:, Col.MAX_OFFSET] = matrix[:, Col.MIN_OFFSET]
    else:
        found = segment["first"] + _last_at_most(np.frombuffer(segment["storeTimestamps"], "<i8"), matrix[:, Col.TIME]) + 1
        matrix[:, Col.MAX_OFFSET] = np.maximum(found, matrix[:, Col.MIN_OFFSET])
    return log.last_at_most(matrix[:, Col.TIME]), np.zeros(len(matrix), np.bool_)


def _whole_messages(place: Place, segment: dict[str, Any] | None, matrix: Matrix) -> Placed:
    """Set maxOffset to the entry after the last complete message of the slave's log; the next key is that of `place`."""
    found = matrix[:, Col.MIN_OFFSET]
    if segment is not None:
        units = units_of(np.frombuffer(segment["entries"], np.uint8))[: segment["entryCount"]]
        ends = units["physicOffset"].astype(np.int64) + units["size"]
        found = segment["first"] + _last_at_most(ends, matrix[:, Col.LOG_END]) + 1
    matrix[:, Col.MAX_OFFSET] = np.maximum(found, matrix[:, Col.MIN_OFFSET])
    return place(matrix)


def _log_end(log_start: int, place: Place, run: dict[str, Any] | None, matrix: Matrix) -> Placed:
    """Set the log end as of each request's time; the next key is that of `place`."""
    if run is None:
        matrix[:, Col.LOG_END] = log_start
    else:
        ends = np.frombuffer(run["ends"], "<i8")
        matrix[:, Col.LOG_END] = ends[_last_at_most(np.frombuffer(run["storeTimestamps"], "<i8"), matrix[:, Col.TIME])]
    return place(matrix)
