"""Lakes with only the tables that consume_lag reads: the state of a few queues, written as an import writes it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.lake.lake import Lake
from pipeline.lake.lake_writer import LakeWriter
from pipeline.schema import tables as t
from tests.makers.plain_lakes import replace_rows
from tests.runs.replaying import NOON
from tests.runs.sampling import ALL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE_SIZE = 1024  # of the commit log
# (topic, queueId) -> (minOffset, maxOffset)
Bounds = Mapping[tuple[str, int], tuple[int, int]]
# (group, topic, queueId) -> offset
Offsets = Mapping[tuple[str, str, int], int]
# (topic, queueId, queueOffset) -> storeTimestamp
Stamps = Mapping[tuple[str, int, int], int]


def write_state(
    spark: SparkSession,
    folder: Path,
    broker: str,
    offsets: Offsets,
    queues: Bounds | None = None,
    *,
    stamps: Stamps | None = None,
    properties: Mapping[str, str] | None = None,
    min_phy_offset: int = 0,
    log_files: Mapping[int, int] | None = None,
    as_of: int = 0,
) -> int:
    """Write the state of a broker into a lake, as an import does, or its offsets only; returns the lake's version.

    `log_files` are the first offset and the modification time of each file of the commit log.
    """
    found: dict[t.Table, list[tuple[Any, ...]]] = {
        t.CONSUMER_OFFSET: [(broker, group, topic, queue_id, offset) for (group, topic, queue_id), offset in offsets.items()]
    }
    if queues is not None:
        found[t.BROKER] = [
            (broker, "", dict(properties or {}), min_phy_offset, 0, FILE_SIZE, 0, 0, 0, as_of, "clustered", "ASYNC_MASTER", False, None)
        ]
        found[t.QUEUE] = [(broker, topic, queue_id, first, end) for (topic, queue_id), (first, end) in queues.items()]
    if stamps is not None:
        found[t.CONSUME_QUEUE] = [
            (broker, topic, queue_id, offset, 0, 100, 0, None, stamp, 100) for (topic, queue_id, offset), stamp in stamps.items()
        ]
    if log_files is not None:
        found[t.STORE_FILE] = [
            (broker, "commitlog", None, None, f"{first:020d}", first, FILE_SIZE, FILE_SIZE, modified, f"commitlog/{first:020d}")
            for first, modified in log_files.items()
        ]
    if not ALL:
        named = {table: [dict(zip(table.names, row, strict=True)) for row in rows] for table, rows in found.items()}
        return replace_rows(folder, broker, named, run_id=f"offsets of {broker}")
    writer = LakeWriter(Lake(spark, str(folder)), run_id=f"offsets of {broker}", what="import", broker=broker)
    for table, rows in found.items():
        writer.replace_rows(table, spark.createDataFrame(rows, table.schema).coalesce(1))
    return writer.commit(NOON)
