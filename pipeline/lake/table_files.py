"""Write Parquet files of a Delta table in the process that made the rows: in Spark's Python tasks, or in the driver for a few rows.

Rows that go from Python to the JVM are copied one by one; writing them in the task halves its work. A task returns one row for each file,
and the driver commits the files of successful tasks. If a task runs twice, one run's files are not committed, and no reader sees them.
"""

from __future__ import annotations

import datetime as dt
import errno
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.files.output_file import OutputError
from pipeline.schema.arrow_types import arrow_of

# columns of the row that a task returns for each file
FILES_DDL = "path STRING, size BIGINT, modificationTime BIGINT, records BIGINT, stats STRING"
_FILES_ARROW = arrow_of(FILES_DDL)
# uncompressed bytes of a row group and of a file
_ROW_GROUP_BYTES = 64 << 20
_FILE_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class FileWriter:
    """Writes rows of an unpartitioned table to new files in the table's folder.

    Attributes:
        folder: local folder of the table.
        schema: columns of the table.
        stats: columns whose least value, greatest value and number of NULLs go into the log.
        without_dictionary: paths of columns whose values hardly repeat, which are written without a dictionary.
    """

    folder: str
    schema: pa.Schema
    stats: tuple[str, ...]
    without_dictionary: tuple[str, ...] = ()

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of batches, which have the schema's columns in any order; gives a row of FILES_DDL for each file."""
        for rows in _chunks(batches, self.schema):
            first = next(rows, None)
            if first is not None:
                yield pa.RecordBatch.from_pylist([self._file(first, rows)], schema=_FILES_ARROW)

    def _file(self, first: pa.Table, rest: Iterator[pa.Table]) -> dict[str, Any]:
        name = f"part-{uuid.uuid4()}.snappy.parquet"
        path = f"{self.folder}/{name}"
        footers: list[pq.FileMetaData] = []
        repeated = [path for field in self.schema for path in _leaves(field.name, field.type) if path not in self.without_dictionary]
        options: dict[str, Any] = {
            "compression": "snappy",
            "use_dictionary": repeated,
            "write_page_checksum": True,
            "metadata_collector": footers,
        }
        with _removed_if_unfinished(path):
            with _named_in_errors(path):
                os.makedirs(self.folder, exist_ok=True)
                file = pq.ParquetWriter(path, self.schema, **options)
            for rows in chain((first,), rest):
                with _named_in_errors(path):
                    file.write_table(rows)
            with _named_in_errors(path):
                file.close()
        (footer,), file_status = footers, os.stat(path)
        return {
            "path": name,
            "size": file_status.st_size,
            "modificationTime": file_status.st_mtime_ns // 1_000_000,
            "records": footer.num_rows,
            "stats": json.dumps(_statistics(footer, self.schema, self.stats)),
        }


def check_files(folder: str, files: Iterable[Mapping[str, Any]]) -> None:
    """Check before a commit that the driver sees the files that tasks wrote.

    Args:
        folder: folder of the table.
        files: rows of FILES_DDL.

    Raises:
        OutputError: a file is missing or has another size.
    """
    for one in files:
        path = f"{folder}/{one['path']}"
        found = os.stat(path).st_size if os.path.exists(path) else None
        if found != one["size"]:
            size = "none" if found is None else f"{found} bytes"
            raise OutputError(f"{path}: expected {one['size']} bytes that a task wrote, found {size}; do all machines see the same folder?")


def _leaves(path: str, kind: pa.DataType) -> Iterator[str]:
    """The paths of the Parquet columns in which the column `path` of type `kind` is stored."""
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path


@contextmanager
def _removed_if_unfinished(path: str) -> Iterator[None]:
    """Remove the file `path`, which the block writes, if the block fails."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise


@contextmanager
def _named_in_errors(path: str) -> Iterator[None]:
    """Name the file `path` in an error of the block, which writes the file; a full disk keeps its own error.

    Raises:
        OutputError: the file cannot be written.
    """
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise
        raise OutputError(f"{path}: expected a file of the table that can be written, found {error}") from error


def _chunks(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[Iterator[pa.Table]]:
    """Divide rows into files; for each file, tables of one row group each."""
    groups = _row_groups(batches, schema)
    for first in groups:
        yield _until_full(first, groups)


def _until_full(first: pa.Table, more: Iterator[pa.Table]) -> Iterator[pa.Table]:
    written = first.nbytes
    yield first
    while written < _FILE_BYTES and (rows := next(more, None)) is not None:
        written += rows.nbytes
        yield rows


def _row_groups(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not len(batch):
            continue
        gathered.append(batch.select(schema.names).cast(schema))
        size += batch.nbytes
        if size >= _ROW_GROUP_BYTES:
            yield pa.Table.from_batches(gathered, schema)
            gathered, size = [], 0
    if gathered:
        yield pa.Table.from_batches(gathered, schema)


def _statistics(footer: pq.FileMetaData, schema: pa.Schema, names: tuple[str, ...]) -> dict[str, Any]:
    """The statistics of a file in the format of Delta's log; a column needs statistics in every row group to have some here."""
    places = {footer.schema.column(place).path: place for place in range(footer.num_columns)}
    stats: dict[str, Any] = {"numRecords": footer.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for name in names:
        found = [footer.row_group(group).column(places[name]).statistics for group in range(footer.num_row_groups)]
        if any(one is None or not one.has_null_count for one in found):
            continue
        stats["nullCount"][name] = sum(one.null_count for one in found)
        bounds = [(one.min, one.max) for one in found if one.has_min_max]
        if bounds and len(bounds) + sum(one.num_values == 0 for one in found) == len(found):
            stats["minValues"][name] = _logged(min(least for least, _ in bounds))
            stats["maxValues"][name] = _logged(max(most for _, most in bounds), up=dt.timedelta(microseconds=999))
    return stats


def _logged(value: Any, *, up: dt.timedelta = dt.timedelta(0)) -> Any:
    """A bound in the format of Delta's log: times in whole milliseconds; `up` is added first, to round the greatest time up."""
    return f"{(value + up).strftime('%Y-%m-%dT%H:%M:%S.%f')[:-3]}Z" if isinstance(value, dt.datetime) else value
