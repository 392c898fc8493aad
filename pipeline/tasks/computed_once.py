"""Rows of a frame that are computed once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

# in memory, as long as there is room, and on the disks of two executors
_TWICE = StorageLevel(useDisk=True, useMemory=True, useOffHeap=False, deserialized=True, replication=2)


def is_one_process(session: SparkSession) -> bool:
    """Whether driver and executors are one process."""
    return (session.conf.get("spark.master", "") or "").partition("[")[0] == "local"


def computed_once(rows: DataFrame, *, eager: bool = True) -> DataFrame:
    """The rows of a frame, computed once, now or with the first job that needs them; later plans begin with them.

    On a cluster two executors hold each row. Spark cannot compute rows again whose only executor has died: the job would fail.
    """
    return rows.localCheckpoint(eager) if is_one_process(rows.sparkSession) else rows.localCheckpoint(eager, _TWICE)


@contextmanager
def kept(rows: DataFrame) -> Iterator[DataFrame]:
    """Yield rows that Spark keeps, once they are computed, until the block ends; it computes lost ones again."""
    cached = rows.persist()
    try:
        yield cached
    finally:
        cached.unpersist()
