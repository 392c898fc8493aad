"""Rows of a frame that are computed once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

# on two executors: in memory, or on disk when memory is full
_TWICE = StorageLevel(useDisk=True, useMemory=True, useOffHeap=False, deserialized=True, replication=2)


def is_one_process(session: SparkSession) -> bool:
    """Whether driver and executors are one process."""
    return (session.conf.get("spark.master", "") or "").partition("[")[0] == "local"


def computed_once(rows: DataFrame, *, eager: bool = True) -> DataFrame:
    """The rows of a frame, computed once: now if `eager`, else by the first job that needs them. Later plans begin with these rows.

    On a cluster, two executors hold each row: Spark cannot compute these rows again, and the loss of a row would fail the job.
    """
    return rows.localCheckpoint(eager) if is_one_process(rows.sparkSession) else rows.localCheckpoint(eager, _TWICE)


@contextmanager
def kept(rows: DataFrame) -> Iterator[DataFrame]:
    """Yield a frame whose rows Spark keeps from their first computation to the end of the block; it computes lost rows again."""
    cached = rows.persist()
    try:
        yield cached
    finally:
        cached.unpersist()
