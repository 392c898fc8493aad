"""The rows of a small Delta table, read by the driver without a Spark job.

A command first needs a few rows: the committed version of the lake, its brokers, the starts of the log's files. The first Spark query of a
session takes three seconds; this read takes three milliseconds.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from pipeline.files.store_files import is_uri


def reads_without_spark(path: str) -> bool:
    """Whether `small_table` can read the table at `path`: it lies in a local folder without a `%` in its name.

    Surprise: deltalake 1.6 decodes the percent-encoding of a path twice.
    """
    return not is_uri(path) and "%" not in path


def small_table(path: str, version: int, schema: pa.Schema) -> pa.Table:
    """The rows of an unpartitioned Delta table at one version, with the columns of `schema`; columns that the table lacks are NULL.

    Args:
        path: local folder of the table.
        version: Delta version to read.
        schema: columns and their types.

    Raises:
        deltalake.exceptions.DeltaError, OSError, pyarrow.ArrowInvalid: the log or a data file cannot be read.
    """
    # not DeltaTable.to_pyarrow_table: its file system aborts the interpreter at exit (deltalake 1.6.6)
    table = DeltaTable(Path(path).as_uri(), version=version)
    names = pa.table(table.get_add_actions())["path"].to_pylist()
    parts = [_with_columns(pq.ParquetFile(f"{path}/{name}").read(), schema) for name in names]
    return pa.concat_tables(parts) if parts else schema.empty_table()


def _with_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    there = set(rows.column_names)
    columns = [rows[field.name].cast(field.type) if field.name in there else pa.nulls(rows.num_rows, field.type) for field in schema]
    return pa.table(columns, schema=schema)
