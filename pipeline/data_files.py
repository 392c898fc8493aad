"""Rows of a large table read by the tasks themselves, straight from its Parquet files.

Delta says which files a version of the table has, and Spark which task reads which. Spark's own reader would make rows of the columns,
and columns of the rows for a task to take, which costs more than all that an export does with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.lake import Lake
from pipeline.session import tasks_at_once
from pipeline.store_files import is_uri
from pipeline.table import Table
from store_format.errors import StoreError

Batches = Iterator[pa.RecordBatch]
# so many at most: what a task writes to lies near each other, and each page of it costs the first time that a task touches it
_FILES_A_TASK = 64
_FOOTERS_AT_ONCE = 8
# values of a column that lie as near as this are as good as in order
_STRETCH = 1 << 30
_ROWS_A_BATCH, _LEAST_ROWS = 8192, 32
_BYTES_A_BATCH = 32 << 20
# a table with one of these has rows or names that its Parquet files alone do not tell
_NOT_PLAIN = {"deletionVectors", "columnMapping"}


def rows_for_tasks(
    lake: Lake, table: Table, broker: str, columns: tuple[str, ...], *, column: str
) -> tuple[DataFrame, Callable[[Batches], Batches]]:
    """The rows of one broker: a frame, and what a task makes of the frame's batches to have batches with `columns`.

    Tasks that follow each other have rows with values of `column` that lie near each other, so that they write to the same places.

    A table that is not on a local or shared file system, or that has features beyond Parquet, is read by Spark.
    """
    rows = lake.table(table).where(F.col("brokerName") == broker)
    if is_uri(lake.root) or _NOT_PLAIN & lake.features(table):
        return rows.select(*columns), iter
    paths = _in_order([path.removeprefix("file:") for path in rows.inputFiles()], column)
    tasks = max(-(-len(paths) // _FILES_A_TASK), tasks_at_once(lake.spark))
    return lake.spark.range(0, len(paths), 1, tasks), partial(_rows_of_files, paths, broker, columns)


def _in_order(paths: list[str], column: str) -> list[str]:
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
        starts = pool.map(partial(_first_value, column), paths)
        return [path for _, path in sorted((start // _STRETCH, path) for start, path in zip(starts, paths, strict=True))]


def _first_value(column: str, path: str) -> int:
    with _told(path):
        return min((one.min for one in _statistics(pq.read_metadata(path), column)), default=0)


def _statistics(file: pq.FileMetaData, column: str) -> list[pq.Statistics]:
    """Of each row group that has them."""
    place = file.schema.names.index(column)
    found = [file.row_group(group).column(place).statistics for group in range(file.num_row_groups)]
    return [one for one in found if one is not None and one.has_min_max]


@contextmanager
def _told(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, pa.ArrowException) as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(path, "a Parquet file of the table", str(error), hint="import the store again") from error


def _rows_of_files(paths: list[str], broker: str, columns: tuple[str, ...], numbers: Batches) -> Batches:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from _rows_of_file(paths[number], broker, columns)


def _rows_of_file(path: str, broker: str, columns: tuple[str, ...]) -> Batches:
    with _told(path), pq.ParquetFile(path) as file:
        missing = {"brokerName", *columns} - set(file.schema_arrow.names)
        if missing:
            found = f"none called {', '.join(sorted(missing))}"
            raise StoreError(path, "all columns of the table", found, hint="import the store again")
        for batch in file.iter_batches(_rows_a_batch(file.metadata), columns=["brokerName", *columns], use_threads=False):
            yield _of_broker(batch, broker)


def _of_broker(batch: pa.RecordBatch, broker: str) -> pa.RecordBatch:
    is_ours = pc.equal(batch.column("brokerName"), broker)
    ours = batch if pc.all(is_ours).as_py() else batch.filter(is_ours)
    return ours.drop_columns(["brokerName"])


def _rows_a_batch(file: pq.FileMetaData) -> int:
    """So many that the largest records of the file, one after the other, stay within a batch."""
    largest = max((one.max for one in _statistics(file, "storeSize")), default=_BYTES_A_BATCH)
    return max(min(_ROWS_A_BATCH, _BYTES_A_BATCH // max(largest, 1)), _LEAST_ROWS)
