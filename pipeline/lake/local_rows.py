"""DataFrames of rows that the driver holds as an Arrow table, or that tasks make from items that the driver holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

Item = TypeVar("Item")


def frame_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """The rows of an Arrow table as a DataFrame.

    Surprise: Spark 4.2 loses the rows after an empty chunk of the table, so the chunks are joined first.
    """
    return spark.createDataFrame(rows.combine_chunks())


def frame_of_tasks(
    spark: SparkSession, items: Sequence[Item], rows_of: Callable[[Item], Iterable[pa.RecordBatch]], schema: StructType | str
) -> DataFrame:
    """The rows of `schema` that tasks make, each from one of the items; the rows stand in the order of the items."""

    def rows(work: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (found for item in items_of(work, items) for found in rows_of(item))

    return work_of(spark, items).mapInArrow(rows, schema)


def work_of(spark: SparkSession, items: Sequence[Item]) -> DataFrame:
    """A row for each item, each in a task of its own, as `items_of` reads them."""
    return spark.range(0, len(items), 1, max(len(items), 1))


def items_of(work: Iterator[pa.RecordBatch], items: Sequence[Item]) -> Iterator[Item]:
    """The items of a task, by the batches of its rows of `work_of`."""
    return (items[index] for batch in work for index in batch.column("id").to_pylist())
