"""Which segments of entries some requests touch, asked of these before a large store is read.

Delta then leaves out files by their statistics, and Parquet parts of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.lake.delta_sql import literal
from pipeline.rows.queue_batches import SEGMENT_ENTRIES

# a condition of so many terms is judged in no time
_FEW_RANGES = 100
# so many are known to each task
SOME_SEGMENTS = 10_000

Ranges = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class TouchedSegments:
    """What is asked for of the segments.

    Attributes:
        name: of a column of the segments that numbers them, or their files.
        what: topic, queueId, and the column called `name`: the different ones, each with a `count`; or, where these are too many to be
            known here, as often as each is asked for.
    """

    name: str
    segments: pa.Table | DataFrame

    @classmethod
    def of(cls, rows: DataFrame, name: str, *more: Column) -> TouchedSegments:
        """Of such rows; of each in `known`, more can be known."""
        found = rows.groupBy("topic", "queueId", name).agg(F.count("*").alias("count"), *more).limit(SOME_SEGMENTS + 1).toArrow()
        return cls(name, found if len(found) <= SOME_SEGMENTS else rows)

    @property
    def known(self) -> pa.Table | None:
        """The different ones, if they are known."""
        return self.segments if isinstance(self.segments, pa.Table) else None

    @property
    def few(self) -> bool:
        """Whether a condition can name each."""
        return self.known is not None and len(self.known) <= _FEW_RANGES


def start_segment(entries_a_file: int) -> Column:
    """The segment that a request starts in, whose queueOffset is not negative."""
    in_file = F.expr(f"queueOffset % {entries_a_file} DIV {SEGMENT_ENTRIES}")
    return F.expr(f"queueOffset DIV {entries_a_file}") * -(-entries_a_file // SEGMENT_ENTRIES) + in_file


def touched_segments(requests: DataFrame, *, entries_a_file: int, whole_files: bool) -> TouchedSegments:
    """The segments that requests start in, or the files that have these; of each `maxMsgNums`, the most that is asked for there.

    Args:
        requests: with topic, queueId, queueOffset and maxMsgNums.
        entries_a_file: entries of a queue file.
        whole_files: requests may need any segment of the file that they start in.
    """
    name, unit = "segment", start_segment(entries_a_file)
    if whole_files:
        name, unit = "fileFirstOffset", F.expr(f"queueOffset DIV {entries_a_file} * {entries_a_file}")
    rows = requests.where("queueOffset >= 0").select("topic", "queueId", unit.alias(name), "maxMsgNums")
    return TouchedSegments.of(rows, name, F.max("maxMsgNums").alias("maxMsgNums"))


def only_touched(segments: DataFrame, touched: TouchedSegments) -> DataFrame:
    """The segments (rows of consume_queue_segment) without those that are not asked for, as far as few texts can say which these are."""
    name, wanted = touched.name, touched.segments
    if isinstance(wanted, DataFrame):
        return segments.where(range_condition(wanted, name))
    if touched.few:
        of_queues: dict[tuple[str, int], list[int]] = defaultdict(list)
        for row in wanted.to_pylist():
            of_queues[row["topic"], row["queueId"]].append(row[name])
        return segments.where(" OR ".join(_of_queue(*queue, name, numbers) for queue, numbers in of_queues.items()) or "FALSE")
    key = ["topic", "queueId", name]
    listed = segments.sparkSession.createDataFrame(wanted.select(key))
    return segments.join(F.broadcast(listed), key, "left_semi").where(_known_range_condition(wanted, name))


def range_condition(wanted: DataFrame, name: str) -> str:
    """A short condition that holds for all segments that are asked for: a range for each queue, each topic, or for all.

    Args:
        wanted: topic, queueId, and a column of the segments that numbers them, or their files.
        name: of that column.
    """
    of_queues = wanted.groupBy("topic", "queueId").agg(F.min(name).alias("first"), F.max(name).alias("last")).localCheckpoint()

    def ranges(by: tuple[str, ...]) -> Ranges:
        of_each = of_queues.groupBy(*by).agg(F.min("first").alias("first"), F.max("last").alias("last")).limit(_FEW_RANGES + 1)
        return [row.asDict() for row in of_each.where("first IS NOT NULL").collect()]

    return _few_ranges(name, ranges)


def _known_range_condition(known: pa.Table, name: str) -> str:
    """The same of so few that they are known here, which takes no job."""

    def ranges(by: tuple[str, ...]) -> Ranges:
        of_each = known.group_by(list(by)).aggregate([(name, "min"), (name, "max")])
        found: Ranges = of_each.rename_columns([*by, "first", "last"]).to_pylist()
        return found

    return _few_ranges(name, ranges)


def _few_ranges(name: str, ranges: Callable[[tuple[str, ...]], Ranges]) -> str:
    """The condition, of the finest ranges of which there are few; `ranges` gives those by some columns, with their `first` and `last`."""
    for by in (("topic", "queueId"), ("topic",), ()):
        found = ranges(by)
        if len(found) <= _FEW_RANGES:
            break
    return " OR ".join(f"({_one_of(one, *by)}{name} BETWEEN {one['first']} AND {one['last']})" for one in found) or "FALSE"


def _one_of(row: dict[str, Any], *by: str) -> str:
    return "".join(f"{column} = {literal(row[column]) if column == 'topic' else row[column]} AND " for column in by)


def _of_queue(topic: str, queue_id: int, name: str, numbers: list[int]) -> str:
    return f"(topic = {literal(topic)} AND queueId = {queue_id} AND {name} IN ({', '.join(map(str, numbers))}))"
