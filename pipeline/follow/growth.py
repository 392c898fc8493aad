"""Computes the changes that new records make to the tables of their broker: rows to add, and a few rows to replace.

After all records are added, the tables are those that an import of the store would write. Only the bytes between records, the index files
and the checkpoint stay as the last import read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.follow.queue_growth import ENTRY_COLUMNS, grown_properties, grown_segments
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.rows.queue_batches import SCAN_ENTRIES, unpack
from pipeline.schema import tables as t
from pipeline.schema.arrow_types import arrow_schema
from store_format.files.mapped_files import MappedFile
from store_format.store_paths import COMMIT_LOG

_QUEUE = ("topic", "queueId")
SEGMENT_KEY = ("brokerName", "topic", "queueId", "segment")
QUEUE_KEY = ("brokerName", "topic", "queueId")


@dataclass(frozen=True, slots=True)
class Growth:
    """The new records of a broker, as rows of followed_log, that the broker's tables do not have yet."""

    broker: OpenedBroker
    entries_a_file: int
    records: DataFrame

    def entries(self) -> DataFrame:
        """The consume queue entries of the records that get one."""
        named = self.records.withColumnRenamed("storeSize", "size")
        return named.where(F.col("tagsCode").isNotNull()).select(*ENTRY_COLUMNS)

    def known_queues(self) -> DataFrame:
        """The queues that get entries: the number of entries, the first offset, and the queue's bounds in the lake."""
        new = self.entries().groupBy(*_QUEUE)
        counted = new.agg(F.min("queueOffset").alias("first"), F.max("queueOffset").alias("last"), F.count("*").alias("count"))
        return counted.join(self.broker.table(t.QUEUE).select(*_QUEUE, "minOffset", "maxOffset"), list(_QUEUE), "left")

    def queues_that_do_not_follow(self) -> DataFrame:
        """The queues whose new entries leave a gap, or repeat entries that the lake has."""
        follows = F.col("first") == F.coalesce("maxOffset", F.lit(0))
        return self.known_queues().where(~follows | (F.col("last") - F.col("first") + 1 != F.col("count")))

    def commit_log(self) -> DataFrame:
        """The rows to add to commit_log; one task has all rows of a queue."""
        return self.records.repartition(*_QUEUE).sortWithinPartitions(*_QUEUE, "queueOffset", "physicOffset")

    def commit_log_segments(self) -> DataFrame:
        """The rows to add to commit_log_segment."""
        columns = self.records.select("physicOffset", "storeSize", "storeTimestamp").sortWithinPartitions("physicOffset")
        return columns.mapInArrow(partial(_log_segments, self.broker.name), t.COMMIT_LOG_SEGMENT.schema)

    def queues(self) -> DataFrame:
        """The new and changed rows of queue, by QUEUE_KEY."""
        grown = self.known_queues().withColumn("maxOffset", F.col("last") + 1).withColumn("minOffset", F.coalesce("minOffset", "first"))
        return grown.withColumn("brokerName", F.lit(self.broker.name))

    def segments(self) -> DataFrame:
        """The new and changed rows of consume_queue_segment, by SEGMENT_KEY."""
        queues = self.known_queues().select(*_QUEUE, "maxOffset")
        of_queues = self.broker.table(t.CONSUME_QUEUE_SEGMENT).join(F.broadcast(queues), list(_QUEUE))
        last_file = F.floor(F.col("maxOffset") / self.entries_a_file) * self.entries_a_file
        reaches_end = F.col("firstQueueOffset") + F.col("entryCount") + (SCAN_ENTRIES - 1) > F.col("maxOffset")
        open_ones = of_queues.where((F.col("fileFirstOffset") == last_file) & reaches_end).drop("maxOffset")
        broker, entries_a_file = self.broker.name, self.entries_a_file

        def grown(key: tuple[Any, ...], new: pa.Table, known: pa.Table) -> pa.Table:
            return grown_segments(broker, entries_a_file, _plain(key), new, known)

        return self.entries().groupBy(*_QUEUE).cogroup(open_ones.groupBy(*_QUEUE)).applyInArrow(grown, t.CONSUME_QUEUE_SEGMENT.schema)

    def properties(self) -> DataFrame:
        """The rows to add to consume_queue_properties."""
        broker, entries_a_file = self.broker.name, self.entries_a_file

        def grown(key: tuple[Any, ...], new: pa.Table) -> pa.Table:
            return grown_properties(broker, entries_a_file, _plain(key), new)

        return self.entries().groupBy(*_QUEUE).applyInArrow(grown, t.CONSUME_QUEUE_PROPERTIES.schema)

    def consume_queue(self, segments: DataFrame) -> DataFrame:
        """The rows to add to consume_queue, unpacked from the rows of `segments`."""
        first = self.known_queues().select(*_QUEUE, "first")
        rows = segments.mapInArrow(unpack, t.CONSUME_QUEUE.schema).join(F.broadcast(first), list(_QUEUE))
        return rows.where("queueOffset >= first").drop("first")

    def log_files(self, files: Sequence[MappedFile], end: int) -> pa.Table:
        """The rows of store_file for the files of the commit log, which ends at `end`."""
        used = [replace(file, wrote=min(file.length, end - file.from_offset)) for file in files if file.from_offset < end]
        names = ("brokerName", "kind", "name", "fromOffset", "length", "wrote", "mtimeMs", "path")
        rows = [
            (self.broker.name, COMMIT_LOG, f.name, f.from_offset, f.length, f.wrote, f.mtime_ms, f"{COMMIT_LOG}/{f.name}") for f in used
        ]
        return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], arrow_schema(t.STORE_FILE))

    def broker_row(self, row: Mapping[str, Any], least: int, end: int, newest: int | None, *, with_timer: bool) -> pa.Table:
        """The row of broker for a log from offset `least` to `end`, whose greatest store timestamp is at least `newest`, ms.

        `row` is the broker's present row; `with_timer` is whether the same batch reads the timer's files again.
        """
        known = row["maxPhyOffset"] if row["followedFrom"] is None else row["followedFrom"]
        changes = {
            "followedFrom": end if with_timer else known,
            "minPhyOffset": least,
            "maxPhyOffset": end,
            "maxStoreTimestamp": max((time for time in (row["maxStoreTimestamp"], newest) if time is not None), default=None),
        }
        return pa.Table.from_pylist([{**row, **changes}], arrow_schema(t.BROKER))


# what tasks do ------------------------------------------------------------------------------------------------------------------------


def _plain(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """The Python values of a group's key, which Spark gives as Arrow scalars."""
    return tuple(value.as_py() for value in key)


def _log_segments(broker: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if not len(batch):
            continue
        offsets, sizes, stamps = (column.to_numpy().astype(np.int64) for column in batch.columns)
        row = {
            "brokerName": broker,
            "firstPhysicOffset": int(offsets[0]),
            "endPhysicOffset": int(offsets[-1] + sizes[-1]),
            "recordCount": len(offsets),
            "ends": (offsets + sizes).astype("<i8").tobytes(),
            "storeTimestamps": stamps.astype("<i8").tobytes(),
            "minStoreTimestamp": int(stamps.min()),
        }
        yield pa.RecordBatch.from_pylist([row], schema=arrow_schema(t.COMMIT_LOG_SEGMENT))
