"""The rows of a small Delta table, read by the driver without a Spark job.

A command first needs a few rows: the committed version of the lake, its brokers, the starts of the log's files. The first Spark query of a
session takes three seconds; this read takes three milliseconds.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.table import ProtocolVersions

from pipeline.files.object_store import is_s3, s3_access
from pipeline.files.store_files import filesystem_of, is_local_or_s3
from store_format.errors import shown

# deltalake 1.6 decodes the percent-encoding of a path twice, takes a backslash for a slash, and refuses control characters
_MISREAD = re.compile(r"[%\\\x00-\x1f\x7f]")
# a table with these features only has the rows of its files, and a commit that adds files adds rows
_PLAIN_FEATURES = {"appendOnly", "invariants", "changeDataFeed"}
# these features bind writers only: a reader still finds the table's rows in its files
_WRITER_FEATURES = {"clustering", "domainMetadata"}
# prefix of the names that `added_files` gives to partition columns
PARTITION = "partition."
# an absolute path, a URI or .. in a path, percent-encoded or not: Delta's protocol knows the first two, but no table of a lake has them
_OF_ANOTHER_FOLDER = re.compile(r"^(?:[a-z][a-z0-9+.-]*(?::|%3A))?(?:/|%2F)|(?:^|/|%2F)(?:\.|%2E){2}(?:/|%2F|$)", re.IGNORECASE)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def has_plain_path(path: str) -> bool:
    """Whether deltalake can open the table at `path`: it lies in a local folder or on S3, and deltalake reads its name as it is."""
    return is_local_or_s3(path) and not _MISREAD.search(path)


def place_of(path: str) -> tuple[str, dict[str, str] | None]:
    """The URI by which deltalake opens the table at `path`, and its storage options."""
    return (path, s3_access().delta_options()) if is_s3(path) else (Path(path).as_uri(), None)


def opened_table(path: str, version: int | None = None, *, to_read: bool = False) -> DeltaTable | None:
    """The Delta table in the folder `path`, at its newest version by default; None if only Spark handles the table's features.

    With `to_read`, features that bind writers only are accepted too, such as clustering.

    Surprise: deltalake also opens tables with column mapping or deletion vectors, although the rows of their files are not the table's.
    """
    uri, options = place_of(path)
    table = DeltaTable(uri, version=version, storage_options=options)
    protocol = table.protocol()
    features = _features(protocol)
    taken = _PLAIN_FEATURES | _WRITER_FEATURES if to_read else _PLAIN_FEATURES
    is_plain = features <= taken and (protocol.min_writer_version <= 2 or protocol.min_writer_version == 7)
    return table if is_plain and protocol.min_reader_version in {1, 3} else None


def named_features(path: str) -> set[str]:
    """The features that the newest version of the Delta table at `path` names; tables of old protocols name none."""
    uri, options = place_of(path)
    return _features(DeltaTable(uri, storage_options=options).protocol())


def _features(protocol: ProtocolVersions) -> set[str]:
    return {*(protocol.reader_features or ()), *(protocol.writer_features or ())}


def added_files(table: DeltaTable) -> pa.Table:
    """The files of a Delta table: `path` below the table's folder as the log spells it, and `partition.NAME` for each partition column.

    Raises:
        OSError: a path leads out of the table's folder.
    """
    files = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()  # pa.table imports pandas
    for name in files["path"].to_pylist():
        if _OF_ANOTHER_FOLDER.search(name):
            raise OSError(f"expected data files in its folder, found {shown(name)}")
    return files


def files_with(table: DeltaTable, column: str, value: str) -> list[str]:
    """Paths below the table's folder of the files that may have `value` in the text column `column`, by their statistics."""
    files = added_files(table)
    found = zip(files["path"].to_pylist(), statistic(files, "min", column), statistic(files, "max", column), strict=True)
    return [unquote(name) for name, low, high in found if low is None or high is None or low <= value <= high]


def greatest_in_files(table: DeltaTable, column: str) -> dict[str, Any]:
    """The greatest value of a column in each file, by path as in `files_with`; None for a file without statistics of the column."""
    files = added_files(table)
    return {unquote(name): value for name, value in zip(files["path"].to_pylist(), statistic(files, "max", column), strict=True)}


def statistic(files: pa.Table, end: str, column: str) -> list[Any]:
    """The least (`min`) or greatest (`max`) value of a column in each of `added_files`; None if the log has none."""
    name = f"{end}.{column}"
    values: list[Any] = files[name].to_pylist() if name in files.column_names else [None] * len(files)
    return values


def plain_message(error: Exception) -> str:
    """The first line of a message of deltalake, without colours."""
    return _COLOURS.sub("", str(error)).strip().split("\n", 1)[0]


def small_table(path: str, version: int, schema: pa.Schema) -> pa.Table | None:
    """The rows of an unpartitioned Delta table at one version, with the columns of `schema`; columns that the table lacks are NULL.

    None if only Spark can read the table.

    Args:
        path: folder of the table, local or on S3.
        version: Delta version to read.
        schema: columns and their types.

    Raises:
        deltalake.exceptions.DeltaError, OSError, pyarrow.ArrowInvalid: the log or a data file cannot be read.
    """
    # not DeltaTable.to_pyarrow_table: its file system aborts the interpreter at exit (deltalake 1.6.6)
    table = opened_table(path, version)
    if table is None:
        return None
    names = added_files(table)["path"].to_pylist()
    parts = [_with_columns(_data_file(path, name), schema) for name in names]
    return pa.concat_tables(parts) if parts else schema.empty_table()


def greatest_row(path: str, version: int, schema: pa.Schema, column: str) -> pa.Table | None:
    """The row with the greatest value in a column of distinct numbers; no row if the table is empty.

    Arguments, errors and None are as in `small_table`. Only files that may have the row by their statistics are read.
    """
    table = opened_table(path, version)
    if table is None:
        return None
    files = added_files(table)
    greatest = statistic(files, "max", column)
    most = max((value for value in greatest if value is not None), default=None)
    names = [name for name, value in zip(files["path"].to_pylist(), greatest, strict=True) if value in {None, most}]
    parts = [_with_columns(_data_file(path, name), schema) for name in names]
    rows = pa.concat_tables(parts) if parts else schema.empty_table()
    values = rows[column].to_pylist()
    # a damaged table may have NULL there
    return rows.slice(values.index(max((value for value in values if value is not None), default=None)), 1) if values else rows


def _data_file(path: str, name: str) -> pa.Table:
    filesystem, inside = filesystem_of(f"{path}/{name}")
    try:
        rows = pq.ParquetFile(inside, filesystem=filesystem, page_checksum_verification=True).read()
        rows.validate(full=True)  # whether texts are UTF-8
        return rows
    except FileNotFoundError as error:
        raise FileNotFoundError(f"expected its data file {name}, found none: it was deleted or moved") from error
    except (OSError, pa.ArrowInvalid) as error:
        raise OSError(f"expected Parquet in its data file {name}, found a damaged file ({error})") from error


def _with_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    if rows.schema.equals(schema):  # a cast loads pyarrow.compute, which takes 40 ms
        return rows
    there = set(rows.column_names)
    columns = [rows[field.name].cast(field.type) if field.name in there else pa.nulls(rows.num_rows, field.type) for field in schema]
    return pa.table(columns, schema=schema)
