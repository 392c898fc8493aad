"""Bounds of a queue, and the end of the log, as of each request's time.

Rule: maxOffset(t) = 1 + the greatest queueOffset with storeTimestamp <= t, the minimum if there is none; entries without a stamp are older
than any. The log's end likewise. A segment whose own stamps, and those of all segments behind it, lie after t cannot hold that entry, so
the least stamp from each segment on (which only grows) says which one segment to look into.
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

from pipeline import tables as t
from pipeline.lake import Lake
from pipeline.packing import NO_KEY, SCHEMA, Col, Packed, Repacker

Stage = Callable[[dict[str, Any]], tuple[Packed, NDArray[np.int64]]]


def with_bounds_as_of(lake: Lake, broker: str, log_start: int, packed: DataFrame) -> DataFrame:
    """Packed rows (with the bounds of the whole store) with maxOffset and the log's end as of each request's time."""
    segments = lake.table(t.CONSUME_QUEUE_SEGMENT).where(F.col("brokerName") == broker)
    index = segments.groupBy("topic", "queueId").agg(_index("segment"))
    stamps = segments.select("topic", "queueId", F.col("segment").alias("key"), F.col("firstQueueOffset").alias("first"), "storeTimestamps")
    placed = packed.join(index, ["topic", "queueId"], "left").drop("key").mapInArrow(partial(_run, _place), SCHEMA)
    bounded = placed.join(stamps, ["topic", "queueId", "key"], "left").mapInArrow(partial(_run, _max_offset), SCHEMA)
    log = lake.table(t.COMMIT_LOG_SEGMENT).where(F.col("brokerName") == broker)
    index_of_log = _LogIndex.of(log)
    ends = log.select(F.col("firstPhysicOffset").alias("key"), "ends", "storeTimestamps")
    log_placed = bounded.mapInArrow(partial(_run, index_of_log.place), SCHEMA)
    return log_placed.join(ends, "key", "left").mapInArrow(partial(_run, partial(_log_end, log_start)), SCHEMA)


@dataclass(frozen=True, slots=True)
class _LogIndex:
    """Runs of the commit log (some megabytes each): where they start, and the least stamp from there on."""

    starts: NDArray[np.int64]
    from_here_on: NDArray[np.int64]

    @classmethod
    def of(cls, log: DataFrame) -> _LogIndex:
        rows = log.select("firstPhysicOffset", "minStoreTimestamp").orderBy("firstPhysicOffset").toArrow()
        starts, least = (column.to_numpy() for column in rows.columns)
        return cls(starts, np.minimum.accumulate(least[::-1])[::-1])

    def place(self, row: dict[str, Any]) -> tuple[Packed, NDArray[np.int64]]:
        """Key each request by the last run that holds a stamp of at most its time; NO_KEY where none does."""
        packed = Packed.of(row)
        places = np.searchsorted(self.from_here_on, packed.matrix[:, Col.TIME], side="right")
        return packed, np.append(np.int64(NO_KEY), self.starts)[places]


def _index(key: str) -> Any:
    return F.sort_array(F.collect_list(F.struct(F.col(key).alias("segment"), "minStoreTimestamp"))).alias("index")


def _run(stage: Stage, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    repacked = Repacker()
    for batch in batches:
        for row in batch.to_pylist():
            repacked.add(*stage(row))
            if repacked.full():
                yield from repacked.take()
    yield from repacked.take()


def _place(row: dict[str, Any]) -> tuple[Packed, NDArray[np.int64]]:
    """Key each request by the last segment that holds a stamp of at most its time; NO_KEY where none does."""
    packed = Packed.of(row)
    index = row["index"] or []
    if not index:
        return packed, np.full(len(packed.matrix), NO_KEY, np.int64)
    segments = np.array([NO_KEY, *(entry["segment"] for entry in index)], np.int64)
    least = np.array([entry["minStoreTimestamp"] for entry in index], np.int64)
    from_here_on = np.minimum.accumulate(least[::-1])[::-1]
    return packed, segments[np.searchsorted(from_here_on, packed.matrix[:, Col.TIME], side="right")]


def _last_at_most(stamps: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Position of the last stamp that is at most each time; -1 where there is none."""
    from_here_on = np.minimum.accumulate(stamps[::-1])[::-1]
    return np.searchsorted(from_here_on, times, side="right") - 1


def _max_offset(row: dict[str, Any]) -> tuple[Packed, NDArray[np.int64]]:
    packed = Packed.of(row)
    matrix = packed.matrix
    if row["storeTimestamps"] is None:
        matrix[:, Col.MAX_OFFSET] = matrix[:, Col.MIN_OFFSET]
    else:
        stamps = np.frombuffer(row["storeTimestamps"], "<i8")
        found = row["first"] + _last_at_most(stamps, matrix[:, Col.TIME]) + 1
        matrix[:, Col.MAX_OFFSET] = np.maximum(found, matrix[:, Col.MIN_OFFSET])
    return packed, np.zeros(len(matrix), np.int64)


def _log_end(log_start: int, row: dict[str, Any]) -> tuple[Packed, NDArray[np.int64]]:
    packed = Packed.of(row)
    matrix = packed.matrix
    if row["ends"] is None:
        matrix[:, Col.LOG_END] = log_start
    else:
        ends = np.frombuffer(row["ends"], "<i8")
        matrix[:, Col.LOG_END] = ends[_last_at_most(np.frombuffer(row["storeTimestamps"], "<i8"), matrix[:, Col.TIME])]
    return packed, np.zeros(len(matrix), np.int64)
