"""Bounds of a queue, and the end of the log, as of each request's time, and as a slave has them that is behind.

Rule: maxOffset(t) = 1 + the greatest queueOffset with storeTimestamp <= t, the minimum if there is none; entries without a stamp are older
than any. The log's end likewise. A slave that lacks the end of the log has of each queue the entries whose messages it has whole: up to the
last one that ends where its log does, or before. A segment whose own values (stamps, or ends of messages), and those of all segments behind
it, lie after the request's cannot hold that entry, so the least value from each segment on (which only grows) says which one to look into.
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
# what of the store was met, if anything, and the matrix, to be written to -> the next key of each request, and whether it needs a wide row
Stage = Callable[[dict[str, Any] | None, Matrix], Placed]
_QUEUE = ("topic", "queueId")
_SEGMENT = (*_QUEUE, "key")
_RUN = ("key",)
# A queue's entries stand in the order of the log: ConsumeQueue.putMessagePositionInfo takes none from before its last one. So the place of
# the first one will do for the least end of a segment's messages; of units before a queue's first message it is 0.
_LEAST_PLACE = "coalesce(try_cast(conv(hex(substring(entries, 1, 8)), 16, 10) AS BIGINT), 0)"


def with_bounds_as_of(
    broker: OpenedBroker, log_start: int, packed: DataFrame, place: Place, times: tuple[int | None, int | None] | None
) -> DataFrame:
    """Packed rows with maxOffset and the log's end as of each request's time.

    Args:
        broker: whose store it is.
        log_start: where its commit log begins.
        packed: packed rows, with the bounds of the whole store.
        place: the key of each request of the result.
        times: the least and the greatest time, where it pays to look first for what few requests need of a large store.
    """
    segments = broker.table(t.CONSUME_QUEUE_SEGMENT)
    placed = _with_index(segments, "minStoreTimestamp", packed).mapInArrow(_place_by_time, SCHEMA)
    log = broker.table(t.COMMIT_LOG_SEGMENT)
    index_of_log = _Index.of_log(log)
    if times is not None:
        segments = only_touched(segments, TouchedSegments.of(placed.select("topic", "queueId", F.col("key").alias("segment")), "segment"))
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
    """Packed rows with maxOffset and the log's end of a slave that lacks the last bytes of what the rows see of the log.

    Args:
        broker: the master.
        log_start: where its commit log begins.
        lag_bytes: length of the end of the master's log that the slave does not have.
        packed: packed rows, with the bounds that its master has.
        queues: topic and queueId of those that the rows ask for; no others are read.
        place: the key of each request of the result.
    """
    segments = broker.table(t.CONSUME_QUEUE_SEGMENT)
    segments = segments.join(F.broadcast(queues), ["topic", "queueId"], "left_semi")
    placed = _with_index(segments, _LEAST_PLACE, packed).mapInArrow(partial(_place_by_log_end, log_start, lag_bytes), SCHEMA)
    entries = segments.selectExpr("topic", "queueId", "segment AS key", "firstQueueOffset AS first", "entryCount", "entries")
    return after_stored(entries, placed, _SEGMENT).mapInArrow(
        partial(_placed_after_stored, _SEGMENT, partial(_whole_messages, place)), SCHEMA
    )


def _with_index(segments: DataFrame, least: str, packed: DataFrame) -> DataFrame:
    """Packed rows with the `index` of their queue: of each segment the least value that is looked for, or less."""
    index = segments.groupBy("topic", "queueId").agg(F.expr(f"sort_array(collect_list(struct(segment, {least} AS least))) AS index"))
    return packed.join(index, ["topic", "queueId"], "left").drop("key")


@dataclass(frozen=True, slots=True)
class _Index:
    """Runs of entries or records: what each is called, and the least stamp from there on."""

    keys: NDArray[np.int64]
    least: NDArray[np.int64]

    @classmethod
    def of_log(cls, log: DataFrame) -> _Index:
        """Of the commit log; a run has some megabytes."""
        rows = log.select("firstPhysicOffset", "minStoreTimestamp").orderBy("firstPhysicOffset").toArrow()
        starts, least = (column.to_numpy() for column in rows.columns)
        return cls(starts, _from_here_on(least))

    def last_at_most(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """The last run that holds a stamp of at most each time; NO_KEY where none does."""
        return np.append(np.int64(NO_KEY), self.keys)[np.searchsorted(self.least, times, side="right")]


def _from_here_on(stamps: NDArray[np.int64]) -> NDArray[np.int64]:
    """The least stamp from each place on."""
    return np.minimum.accumulate(stamps[::-1])[::-1]


def _placed_after_stored(key: tuple[str, ...], stage: Stage, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Packed rows behind what they need, by the keys that the stage gives."""
    return packed_again((packed, *stage(stored, packed.matrix)) for stored, _, packed in colocated(rows_of(batches), key, *_QUEUE))


def _place_by_time(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Packed rows with the `index` of their queue by the last segment that holds a stamp of at most a request's time."""
    return packed_again(_placed(row["index"] or [], Packed.of(row), Col.TIME) for batch in batches for row in batch.to_pylist())


def _place_by_log_end(log_start: int, lag_bytes: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Packed rows with the `index` of their queue by the last segment that may hold a message which ends where a slave's log does."""

    def cut(packed: Packed) -> Packed:
        packed.matrix[:, Col.LOG_END] = np.maximum(packed.matrix[:, Col.LOG_END] - lag_bytes, log_start)
        return packed

    return packed_again(_placed(row["index"] or [], cut(Packed.of(row)), Col.LOG_END) for batch in batches for row in batch.to_pylist())


def _placed(index: list[dict[str, int]], packed: Packed, column: Col) -> tuple[Packed, NDArray[np.int64], NDArray[np.bool_]]:
    starts, least = (np.array([entry[name] for entry in index], np.int64) for name in ("segment", "least"))
    keys = _Index(starts, _from_here_on(least)).last_at_most(packed.matrix[:, column])
    return packed, keys, np.zeros(len(keys), np.bool_)


def _last_at_most(stamps: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Position of the last stamp that is at most each time; -1 where there is none."""
    return np.searchsorted(_from_here_on(stamps), times, side="right") - 1


def _max_offset(log: _Index, segment: dict[str, Any] | None, matrix: Matrix) -> Placed:
    """Set maxOffset, and place requests by the run of the log that they need next."""
    if segment is None:
        matrix[:, Col.MAX_OFFSET] = matrix[:, Col.MIN_OFFSET]
    else:
        found = segment["first"] + _last_at_most(np.frombuffer(segment["storeTimestamps"], "<i8"), matrix[:, Col.TIME]) + 1
        matrix[:, Col.MAX_OFFSET] = np.maximum(found, matrix[:, Col.MIN_OFFSET])
    return log.last_at_most(matrix[:, Col.TIME]), np.zeros(len(matrix), np.bool_)


def _whole_messages(place: Place, segment: dict[str, Any] | None, matrix: Matrix) -> Placed:
    """Set maxOffset behind the last message that ends where the log does or before, and place requests by what they scan."""
    found = matrix[:, Col.MIN_OFFSET]
    if segment is not None:
        units = units_of(np.frombuffer(segment["entries"], np.uint8))[: segment["entryCount"]]
        ends = units["physicOffset"].astype(np.int64) + units["size"]
        found = segment["first"] + _last_at_most(ends, matrix[:, Col.LOG_END]) + 1
    matrix[:, Col.MAX_OFFSET] = np.maximum(found, matrix[:, Col.MIN_OFFSET])
    return place(matrix)


def _log_end(log_start: int, place: Place, run: dict[str, Any] | None, matrix: Matrix) -> Placed:
    """Set the log's end, and place requests by what they scan."""
    if run is None:
        matrix[:, Col.LOG_END] = log_start
    else:
        ends = np.frombuffer(run["ends"], "<i8")
        matrix[:, Col.LOG_END] = ends[_last_at_most(np.frombuffer(run["storeTimestamps"], "<i8"), matrix[:, Col.TIME])]
    return place(matrix)
