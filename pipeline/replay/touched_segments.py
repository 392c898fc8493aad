"""Find which segments of entries the requests touch, before a large store is read.

A condition on the segments lets Delta skip files, and Parquet skip row groups, by their statistics.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.delta.delta_sql import literal
from pipeline.replay.entry_colocation import rows_of
from pipeline.requests.packing import NONE, Col, Packed
from pipeline.rows.queue_batches import segment_of, segment_of_sql
from pipeline.tasks.computed_once import computed_once
from pipeline.tasks.local_rows import frame_of

# most terms of a condition; Spark still evaluates such a condition in no time
_FEW_RANGES = 100
# most segments that are listed by name on the driver and in each task
SOME_SEGMENTS = 10_000

Ranges = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class TouchedSegments:
    """The segments, or the queue files, that requests touch.

    Attributes:
        name: the column of consume_queue_segment that numbers them: "segment" or "fileFirstOffset".
        segments: topic, queueId and the column `name`. As a table: distinct, each with a `count` of its requests. As a DataFrame, if
            there are more than SOME_SEGMENTS: a row for each request, or for some requests of a segment.
    """

    name: str
    segments: pa.Table | DataFrame

    @classmethod
    def of(cls, rows: DataFrame, name: str, *more: Column, count: Column | None = None) -> TouchedSegments:
        """The touched segments, from rows with topic, queueId and the column `name`; a table also has the aggregates `more`.

        `count` is the number of requests in some rows; None if each row is a request.
        """
        counted = (F.count("*") if count is None else count).alias("count")
        found = rows.groupBy("topic", "queueId", name).agg(counted, *more).limit(SOME_SEGMENTS + 1).toArrow()
        return cls(name, found if len(found) <= SOME_SEGMENTS else rows)

    @property
    def known(self) -> pa.Table | None:
        """The distinct segments as a table; None if there are too many."""
        return self.segments if isinstance(self.segments, pa.Table) else None

    @property
    def few(self) -> bool:
        """Whether a condition can name each segment."""
        return self.known is not None and len(self.known) <= _FEW_RANGES


def start_segment(entries_a_file: int) -> Column:
    """The number of the segment that a request starts in; its queueOffset must not be negative."""
    return F.expr(segment_of_sql("queueOffset", entries_a_file))


def touched_segments(requests: DataFrame, *, entries_a_file: int, whole_files: bool) -> TouchedSegments:
    """The segments that requests start in, each with the greatest `maxMsgNums` of its requests.

    Args:
        requests: rows with topic, queueId, queueOffset and maxMsgNums.
        entries_a_file: entries of a queue file.
        whole_files: whether to give queue files instead of segments.
    """
    name, unit = "segment", start_segment(entries_a_file)
    if whole_files:
        name, unit = "fileFirstOffset", F.expr(f"queueOffset DIV {entries_a_file} * {entries_a_file}")
    rows = requests.where("queueOffset >= 0").select("topic", "queueId", unit.alias(name), "maxMsgNums")
    return TouchedSegments.of(rows, name, F.max("maxMsgNums").alias("maxMsgNums"))


def touched_by_packed(packed: DataFrame, *, entries_a_file: int, whole_files: bool) -> TouchedSegments:
    """As `touched_segments`, from packed rows."""
    name = "fileFirstOffset" if whole_files else "segment"
    number = partial(_file_of if whole_files else segment_of, entries_a_file=entries_a_file)
    rows = packed.mapInArrow(partial(_numbers, name, number), f"topic STRING, queueId INT, {name} BIGINT, count BIGINT, maxMsgNums BIGINT")
    return TouchedSegments.of(rows, name, F.max("maxMsgNums").alias("maxMsgNums"), count=F.sum("count"))


def _file_of(offsets: NDArray[np.int64], *, entries_a_file: int) -> NDArray[np.int64]:
    return offsets // entries_a_file * entries_a_file


def _numbers(
    name: str, number: Callable[[NDArray[np.int64]], NDArray[np.int64]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The numbers of segments or files of packed rows, each with the count and the greatest maxMsgNums of its requests."""
    for row in rows_of(batches):
        matrix = Packed.of(row).matrix
        matrix = matrix[matrix[:, Col.OFFSET] >= 0]
        found, inverse = np.unique(number(matrix[:, Col.OFFSET]), return_inverse=True)
        most = np.full(len(found), np.iinfo(np.int64).min)
        np.maximum.at(most, inverse, matrix[:, Col.MAX_MSG_NUMS])
        queue = {"topic": pa.repeat(row["topic"], len(found)), "queueId": pa.repeat(pa.scalar(row["queueId"], pa.int32()), len(found))}
        yield pa.RecordBatch.from_pydict(queue | {name: found, "count": np.bincount(inverse, minlength=len(found)), "maxMsgNums": most})


def times_of_packed(packed: DataFrame) -> tuple[int | None, int | None]:
    """The least and the greatest time of the requests of packed rows."""
    least, greatest = packed.mapInArrow(_times, "time BIGINT").agg(F.min("time"), F.max("time")).collect()[0]
    return least, greatest


def _times(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The least and the greatest time in each packed row."""
    for row in rows_of(batches):
        times = Packed.of(row).matrix[:, Col.TIME]
        times = times[times != NONE]
        yield pa.RecordBatch.from_pydict({"time": np.array([times.min(), times.max()] if len(times) else [], np.int64)})


def only_touched(segments: DataFrame, touched: TouchedSegments) -> DataFrame:
    """Filter rows of consume_queue_segment to the touched segments; some untouched rows may remain.

    Args:
        segments: rows of consume_queue_segment.
        touched: the segments, or files, to keep.
    """
    name, wanted = touched.name, touched.segments
    if isinstance(wanted, DataFrame):
        return segments.where(range_condition(wanted, name))
    if touched.few:
        of_queues: dict[tuple[str, int], list[int]] = defaultdict(list)
        for row in wanted.to_pylist():
            of_queues[row["topic"], row["queueId"]].append(row[name])
        return segments.where(" OR ".join(_of_queue(*queue, name, numbers) for queue, numbers in of_queues.items()) or "FALSE")
    key = ["topic", "queueId", name]
    listed = frame_of(segments.sparkSession, wanted.select(key))
    return segments.join(F.broadcast(listed), key, "left_semi").where(_known_range_condition(wanted, name))


def range_condition(wanted: DataFrame, name: str) -> str:
    """A short SQL condition that is true for all wanted segments: one range for each queue, for each topic, or for all queues.

    Args:
        wanted: topic, queueId, and a column that numbers the segments or their files.
        name: name of this column.
    """
    of_queues = computed_once(wanted.groupBy("topic", "queueId").agg(F.min(name).alias("first"), F.max(name).alias("last")))

    def ranges(by: tuple[str, ...]) -> Ranges:
        of_each = of_queues.groupBy(*by).agg(F.min("first").alias("first"), F.max("last").alias("last")).limit(_FEW_RANGES + 1)
        return [row.asDict() for row in of_each.where("first IS NOT NULL").collect()]

    return _few_ranges(name, ranges)


def _known_range_condition(known: pa.Table, name: str) -> str:
    """`range_condition` for segments in a table, which needs no Spark job."""

    def ranges(by: tuple[str, ...]) -> Ranges:
        of_each = known.group_by(list(by)).aggregate([(name, "min"), (name, "max")])
        found: Ranges = of_each.rename_columns([*by, "first", "last"]).to_pylist()
        return found

    return _few_ranges(name, ranges)


def _few_ranges(name: str, ranges: Callable[[tuple[str, ...]], Ranges]) -> str:
    """The condition with the finest ranges that has few terms; `ranges` gives `first` and `last` for each value of some columns."""
    for by in (("topic", "queueId"), ("topic",), ()):
        found = ranges(by)
        if len(found) <= _FEW_RANGES:
            break
    return " OR ".join(f"({_one_of(one, *by)}{name} BETWEEN {one['first']} AND {one['last']})" for one in found) or "FALSE"


def _one_of(row: dict[str, Any], *by: str) -> str:
    return "".join(f"{column} = {literal(row[column]) if column == 'topic' else row[column]} AND " for column in by)


def _of_queue(topic: str, queue_id: int, name: str, numbers: list[int]) -> str:
    return f"(topic = {literal(topic)} AND queueId = {queue_id} AND {name} IN ({', '.join(map(str, numbers))}))"
