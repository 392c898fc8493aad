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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from pipeline.files.output_file import OutputError
from pipeline.files.store_files import filesystem_of, is_uri
from pipeline.schema.arrow_types import arrow_of

# columns of the row that a task returns for each file
FILES_DDL = "table STRING, path STRING, partition STRING, size BIGINT, modificationTime BIGINT, records BIGINT, stats STRING"
_FILES_ARROW = arrow_of(FILES_DDL)
# uncompressed bytes that are written at once, and after which a file is full
_WRITTEN_BYTES = 64 << 20
_FILE_BYTES = 256 << 20
# bytes of a page of large rows, and the most rows that pyarrow writes between two checks of a page's size
_PAGE_BYTES = 1 << 20
_ROWS_A_PAGE = 1024


@dataclass(frozen=True, slots=True)
class FileWriter:
    """Writes rows of a table to new files in the table's folder.

    Attributes:
        table: name of the table.
        folder: folder of the table, local or on S3.
        schema: columns of the table.
        stats: columns whose least value, greatest value and number of NULLs go into the log.
        without_dictionary: paths of columns whose values hardly repeat, which are written without a dictionary.
        partitioned_by: partition columns, whose values are in the files too, as Spark writes them; rows with equal values must follow one
            another.
        row_group_bytes: uncompressed bytes of a row group, at most _WRITTEN_BYTES.
    """

    table: str
    folder: str
    schema: pa.Schema
    stats: tuple[str, ...]
    without_dictionary: tuple[str, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    row_group_bytes: int = _WRITTEN_BYTES

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of batches, which have the schema's columns in any order; gives a row of FILES_DDL for each file."""
        return write_tables((self,), ((self.table, batch) for batch in batches))


def write_tables(writers: Iterable[FileWriter], rows: Iterator[tuple[str, pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Write rows of several tables, each batch with its table's name, to files of these tables; gives a row of FILES_DDL for each file."""
    with ExitStack() as stack:
        opened = {writer.table: stack.enter_context(_opened(writer)) for writer in writers}
        for name, batch in rows:
            opened[name].add(batch)
        files = [file for one in opened.values() for file in one.finished()]
    if files:
        yield pa.RecordBatch.from_pylist(files, schema=_FILES_ARROW)


@contextmanager
def _opened(writer: FileWriter) -> Iterator[_TableFiles]:
    files = _TableFiles(writer)
    try:
        yield files
    finally:
        files.abandon()


class _TableFiles:
    """The files of a table that a task has written; the last file is open."""

    def __init__(self, writer: FileWriter) -> None:
        self._writer = writer
        self._files: list[dict[str, Any]] = []
        self._open: _OpenFile | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Append rows to the open file, or to a new one if the open file is full or of another partition."""
        if not len(batch):
            return
        typed = batch.select(self._writer.schema.names).cast(self._writer.schema)
        for values, rows in _partitions(typed, self._writer.partitioned_by):
            if self._open is not None and (self._open.partition != values or self._open.bytes >= _FILE_BYTES):
                self._close()
            self._open = self._open or _OpenFile(self._writer, values)
            self._open.add(rows)

    def finished(self) -> list[dict[str, Any]]:
        """Close the open file; gives a row of FILES_DDL for each file."""
        self._close()
        return self._files

    def abandon(self) -> None:
        """Remove the open file, if there is one."""
        if self._open is not None:
            self._open.remove()

    def _close(self) -> None:
        if self._open is not None:
            self._files.append(self._open.close())
            self._open = None


class _OpenFile:
    """A Parquet file that is being written."""

    def __init__(self, writer: FileWriter, partition: tuple[Any, ...]) -> None:
        self.partition, self.bytes = partition, 0
        self._writer = writer
        self._file: pq.ParquetWriter | None = None
        self._rows: list[pa.RecordBatch] = []
        self._rows_bytes = 0
        folders = (f"{name}={_escaped(str(value))}" for name, value in zip(writer.partitioned_by, partition, strict=True))
        self._name = "/".join((*folders, f"part-{uuid.uuid4()}.snappy.parquet"))
        self._path = f"{writer.folder}/{self._name}"
        self._footers: list[pq.FileMetaData] = []

    def add(self, rows: pa.RecordBatch) -> None:
        """Append rows."""
        self._rows.append(rows)
        self._rows_bytes += rows.nbytes
        if self._rows_bytes >= _WRITTEN_BYTES:
            self._write_groups()

    def _write_groups(self) -> None:
        rows = pa.Table.from_batches(self._rows, self._writer.schema)
        rows_a_byte = len(rows) / max(self._rows_bytes, 1)
        with _named_in_errors(self._path):
            self._file = self._file or self._created(int(_PAGE_BYTES * rows_a_byte))
            self._file.write_table(rows, row_group_size=max(int(self._writer.row_group_bytes * rows_a_byte), 1))
        self.bytes += self._rows_bytes
        self._rows, self._rows_bytes = [], 0

    def _created(self, rows_a_page: int) -> pq.ParquetWriter:
        """Create the file. Surprise: pyarrow compares a page's size with its limit once in `write_batch_size` rows, whatever their size."""
        schema, without_dictionary = self._writer.schema, self._writer.without_dictionary
        filesystem, inside = filesystem_of(self._path)
        if not is_uri(self._path):  # S3 has no folders
            os.makedirs(os.path.dirname(inside), exist_ok=True)
        return pq.ParquetWriter(
            inside,
            schema,
            filesystem=filesystem,
            compression="snappy",
            use_dictionary=[path for field in schema for path in _leaves(field.name, field.type) if path not in without_dictionary],
            # statistics of texts and bytes cost time, and help only if the log has them too
            write_statistics=[field.name for field in schema if field.name in self._writer.stats or pa.types.is_primitive(field.type)],
            write_page_checksum=True,
            write_page_index=True,
            write_batch_size=min(max(rows_a_page, 1), _ROWS_A_PAGE),
            metadata_collector=self._footers,
        )

    def close(self) -> dict[str, Any]:
        """Write the file's last row group and its footer; gives a row of FILES_DDL."""
        if self._rows:
            self._write_groups()
        with _named_in_errors(self._path):
            if self._file is not None:
                self._file.close()
            (found,) = _found([self._path])
        (footer,) = self._footers
        return {
            "table": self._writer.table,
            "path": self._name,
            "partition": json.dumps(dict(zip(self._writer.partitioned_by, map(str, self.partition), strict=True))),
            "size": found.size,
            "modificationTime": found.mtime_ns // 1_000_000,
            "records": footer.num_rows,
            "stats": json.dumps(_statistics(footer, self._writer.schema, self._writer.stats)),
        }

    def remove(self) -> None:
        """Remove the unfinished file; on S3, a file appears only when it is closed."""
        if self._file is not None:
            with suppress(OSError, RuntimeError):  # a second close of a file whose footer failed is a RuntimeError
                self._file.close()
            self._file.is_open = False  # else pyarrow closes it again when the object is deleted
        filesystem, inside = filesystem_of(self._path)
        with suppress(OSError):
            filesystem.delete_file(inside)


def _escaped(value: str) -> str:
    """The value of a partition column in the name of a folder, as Spark writes the values that `can_name_a_folder` allows."""
    return value.replace("%", "%25")


def _partitions(batch: pa.RecordBatch, names: tuple[str, ...]) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """Divide a batch into runs of rows with equal values in the columns `names`; gives the values and rows of each run."""
    if not names:
        yield (), batch
        return
    codes = [batch.column(name).dictionary_encode().indices.to_numpy() for name in names]
    changes = np.flatnonzero(np.any([np.diff(one) != 0 for one in codes], axis=0)) + 1
    for first, after in pairwise((0, *changes.tolist(), len(batch))):
        yield tuple(batch.column(name)[first].as_py() for name in names), batch.slice(first, after - first)


def check_files(folder: str, files: Iterable[Mapping[str, Any]]) -> None:
    """Check before a commit that the driver sees the files that tasks wrote.

    Args:
        folder: folder of the table.
        files: rows of FILES_DDL.

    Raises:
        OutputError: a file is missing or has another size.
    """
    expected = {f"{folder}/{one['path']}": one["size"] for one in files}
    for (path, length), found in zip(expected.items(), _found([*expected]), strict=True):
        if found.size != length:
            size = "none" if found.size is None else f"{found.size} bytes"
            raise OutputError(f"{path}: expected {length} bytes that a task wrote, found {size}; do all machines see the same folder?")


def _found(paths: Sequence[str]) -> list[pafs.FileInfo]:
    """The size and time of each file, all in one file system; a file that is missing has the size None."""
    if not paths:
        return []
    filesystem = filesystem_of(paths[0])[0]
    found: list[pafs.FileInfo] = filesystem.get_file_info([filesystem_of(path)[1] for path in paths])
    return found


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
def _named_in_errors(path: str) -> Iterator[None]:
    """Name the file `path` in errors of the block, which writes the file; the error of a full disk stays unchanged.

    Raises:
        OutputError: the file cannot be written.
    """
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise
        raise OutputError(f"{path}: expected a file of the table that can be written, found {error}") from error


def _statistics(footer: pq.FileMetaData, schema: pa.Schema, names: tuple[str, ...]) -> dict[str, Any]:
    """The statistics of a file in the format of Delta's log; a column without statistics in some row group gets none."""
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
