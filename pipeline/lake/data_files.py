"""Let Python tasks read the rows of a large table directly from its Parquet files.

The table's log lists the files of its version, and each task reads some of them. Spark's own reader turns columns into rows and back into
columns for the Python task; that takes longer than the rest of an export.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from pipeline.delta.small_table import files_with
from pipeline.files.store_files import filesystem_of
from pipeline.lake.lake import Lake
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.lake.session import tasks_at_once
from pipeline.schema.table import Table
from pipeline.tasks.work import SparkWork, Tasks, Work
from store_format.errors import StoreError, UnusableInputError

Batches = Iterator[pa.RecordBatch]
# most files of a task: a task writes to nearby places of the output, because the first touch of each page costs it time
_FILES_A_TASK = 64
FOOTERS_AT_ONCE = 8
# files whose first values are in the same stretch of this length count as neighbours, in any order
_STRETCH = 1 << 30
_ROWS_A_BATCH, _LEAST_ROWS = 8192, 32
_BYTES_A_BATCH = 32 << 20
# columns with few distinct values, which are read as dictionaries, as the files store them
_FEW_VALUES = ("bornHost", "storeHost")


def rows_for_tasks(
    tasks: Tasks, broker: OpenedBroker, table: Table, columns: tuple[str, ...], *, column: str
) -> tuple[Work, Callable[[Batches], Batches]]:
    """The work of tasks, and a function that turns a task's batches into batches of the broker's rows with `columns`.

    Rows with near values of `column` are in the same task or in neighbouring tasks, so that a task writes to one part of the output.
    Spark reads the table itself if it is neither on a local or shared file system nor on S3, or if its files alone do not have its rows.

    Raises:
        NoSessionError: only Spark can read the table, and there is no session.
    """
    paths = plain_files(broker, table)
    if paths is None:
        return SparkWork(broker.table(table).select(*columns)), iter
    count = max(-(-len(paths) // _FILES_A_TASK), tasks_at_once(broker.lake.spark) if broker.lake.has_session else 1)
    split = [paths] if count == 1 else split_among(_places(paths, column), count)
    return tasks.of_items(range(count)), partial(_rows_of_tasks, split, broker.name, columns)


def plain_files(broker: OpenedBroker, table: Table) -> list[str] | None:
    """Paths of a table's Parquet files that may have rows of the broker, among others; None if only Spark can read the table."""
    lake = broker.lake
    if table.name not in lake.at.tables:
        return []
    found = plain_table(lake, table)
    return None if found is None else [f"{lake.path(table.name)}/{path}" for path in files_with(found, "brokerName", broker.name)]


def plain_table(lake: Lake, table: Table) -> DeltaTable | None:
    """A written table whose files any process can open with `parquet_file`; None if only Spark can read the table.

    Raises:
        LakeError: the table's log is damaged.
    """
    return lake.opened(table)


@contextmanager
def parquet_file(path: str) -> Iterator[pa.NativeFile]:
    """The Parquet file at a path or URI, opened for reading; errors of the block are those of `named_in_errors`.

    On S3, opening a file asks for its length. So a caller that reads the footer first opens the file only once.
    """
    with named_in_errors(path):
        filesystem, inside = filesystem_of(path)
        with filesystem.open_input_file(inside) as file:
            yield file


def _places(paths: list[str], column: str) -> dict[str, tuple[int, int]]:
    """For each file, the least value of `column`, and the uncompressed size in bytes."""
    with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:
        return dict(zip(paths, pool.map(partial(_first_value_and_size, column), paths), strict=True))


def split_among(files: dict[str, tuple[int, int]], tasks: int) -> list[list[str]]:
    """Divide files into tasks of about equal size.

    Args:
        files: first value and size of each file; files of one task have near first values.
        tasks: number of tasks.

    Returns:
        The paths of each task's files.
    """
    ordered = sorted((first // _STRETCH, path, size) for path, (first, size) in files.items())
    total, before = sum(size for _, _, size in ordered), 0
    split: list[list[str]] = [[] for _ in range(tasks)]
    for _, path, size in ordered:
        split[min((before + size // 2) * tasks // max(total, 1), tasks - 1)].append(path)
        before += size
    return split


def _first_value_and_size(column: str, path: str) -> tuple[int, int]:
    """The least value of `column` in a file, and the file's uncompressed size in bytes."""
    with parquet_file(path) as opened:
        file = pq.read_metadata(opened)
        size = sum(file.row_group(group).total_byte_size for group in range(file.num_row_groups))
        return min((one.min for one in _statistics(file, column)), default=0), size


def _statistics(file: pq.FileMetaData, column: str) -> list[pq.Statistics]:
    """The statistics of `column` in each row group that has any."""
    if column not in file.schema.names:
        return []
    place = file.schema.names.index(column)
    found = [file.row_group(group).column(place).statistics for group in range(file.num_row_groups)]
    return [one for one in found if one is not None and one.has_min_max]


@contextmanager
def named_in_errors(path: str) -> Iterator[None]:
    """Turn errors of the block, which reads the Parquet file `path`, into a StoreError that names the file.

    Raises:
        StoreError: the file cannot be read.
    """
    try:
        yield
    except UnusableInputError:
        raise
    except (OSError, pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise StoreError(path, "a Parquet file of the table", str(error), hint="import the store again") from error


def _rows_of_tasks(paths: list[list[str]], broker: str, columns: tuple[str, ...], tasks: Batches) -> Batches:
    for batch in tasks:
        for task in batch.column(0).to_pylist():
            for path in paths[task]:
                yield from _rows_of_file(path, broker, columns)


def _rows_of_file(path: str, broker: str, columns: tuple[str, ...]) -> Batches:
    with parquet_file(path) as opened:
        found = pq.read_metadata(opened)
        missing = {"brokerName", *columns} - set(found.schema.names)
        if missing:
            raise StoreError(path, "all columns of the table", f"none called {', '.join(sorted(missing))}", hint="import the store again")
        few = [name for name in _FEW_VALUES if name in columns]
        with pq.ParquetFile(opened, metadata=found, read_dictionary=few, page_checksum_verification=True) as file:
            for batch in file.iter_batches(_rows_a_batch(found), columns=["brokerName", *columns], use_threads=False):
                yield _of_broker(batch, broker)


def _of_broker(batch: pa.RecordBatch, broker: str) -> pa.RecordBatch:
    is_ours = pc.equal(batch.column("brokerName"), broker)
    ours = batch if pc.all(is_ours).as_py() else batch.filter(is_ours)
    return ours.drop_columns(["brokerName"])


def _rows_a_batch(file: pq.FileMetaData) -> int:
    """The number of rows of a batch: few enough for _BYTES_A_BATCH if all are the file's largest records, but at least _LEAST_ROWS."""
    largest = max((one.max for one in _statistics(file, "storeSize")), default=_BYTES_A_BATCH)
    return max(min(_ROWS_A_BATCH, _BYTES_A_BATCH // max(largest, 1)), _LEAST_ROWS)
