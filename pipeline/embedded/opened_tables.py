"""A lake's Delta tables as views of DuckDB: deltalake reads the log, DuckDB the Parquet files, pyarrow those on S3.

Rule: a view has the columns of the table at its version, in its order. A partition column has the value that the log names for the file,
joined by the file's path; the names of folders are not read.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

import duckdb
import pyarrow as pa
from deltalake.exceptions import DeltaError
from duckdb.sqltypes import DuckDBPyType

from pipeline.delta.small_table import PARTITION, added_files, has_plain_path, opened_table, plain_message
from pipeline.files.object_store import is_s3
from pipeline.lake.lake_errors import LakeError
from pipeline.schema.arrow_types import arrow_schema
from pipeline.schema.table import Table

# DuckDB takes these letters of a path for a pattern
_PATTERN = re.compile(r"[*?\[\]]")
_SIMPLE = {
    pa.string(): "VARCHAR",
    pa.large_string(): "VARCHAR",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.bool_(): "BOOLEAN",
    pa.binary(): "BLOB",
    pa.float64(): "DOUBLE",
    pa.timestamp("us", "UTC"): "TIMESTAMP WITH TIME ZONE",
}
# settings of every connection: it loads no extensions, and reads no variables of Python as tables
CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}


class NotSupportedError(Exception):
    """The embedded engine cannot answer the question as Spark would; the message says why."""


def require_local(root: str) -> None:
    """Check that deltalake and DuckDB can open the files of a lake.

    Raises:
        NotSupportedError: the lake is neither local nor on S3, or its path has letters that one of them misreads.
    """
    if not has_plain_path(root) or _PATTERN.search(root):
        raise NotSupportedError(f"{root} is no local path, and none on S3, without the letters % \\ * ? [ ]")


def create_table_view(connection: duckdb.DuckDBPyConnection, root: str, table: Table, version: int | None) -> None:
    """Create the view of a table, with the table's name.

    Args:
        connection: connection of DuckDB, which may read the lake's files.
        root: absolute path of the lake.
        table: the table.
        version: its Delta version; None if it was never written: then the view has no rows.

    Raises:
        NotSupportedError: only Spark reads the table.
        LakeError: the table's log is damaged.
    """
    if version is None:
        _create(connection, table.name, _empty(arrow_schema(table)))
        return
    path = f"{root}/{table.name}"
    try:
        delta = opened_table(path, version, to_read=True)
        if delta is None:
            raise NotSupportedError(f"the table {table.name} has features of Delta that only Spark reads")
        schema, adds = pa.schema(delta.schema()), added_files(delta)
    except (DeltaError, OSError) as error:
        raise LakeError(f"{path}: cannot read version {version} of the Delta table: {plain_message(error)}") from error
    names = [unquote(name) for name in adds["path"].to_pylist()]
    if any(map(_PATTERN.search, names)):
        raise NotSupportedError(f"the table {table.name} has data files whose names DuckDB takes for patterns")
    files = [f"{path}/{name}" for name in names]
    if is_s3(path) and files:
        from pipeline.delta.table_rows import dataset_of

        found = f"pullsim data of {table.name}"
        connection.register(found, dataset_of(schema, files, adds))
        _create(connection, table.name, f"SELECT * FROM {quoted(found)}")
        return
    _create(connection, table.name, _of_files(connection, table.name, schema, files, adds) if files else _empty(schema))


def _create(connection: duckdb.DuckDBPyConnection, name: str, query: str) -> None:
    connection.execute(f"CREATE OR REPLACE VIEW {quoted(name)} AS {query}")


def _empty(schema: pa.Schema) -> str:
    columns = ", ".join(f"CAST(NULL AS {duckdb_type(field.type)}) AS {quoted(field.name)}" for field in schema)
    return f"SELECT {columns} WHERE false"


def _of_files(connection: duckdb.DuckDBPyConnection, name: str, schema: pa.Schema, files: list[str], adds: pa.Table) -> str:
    partitions = [column.removeprefix(PARTITION) for column in adds.column_names if column.startswith(PARTITION)]
    stored = [field for field in schema if field.name not in partitions]
    # a file that was written before a column was added has NULL in it
    fields = ", ".join(map(_schema_field, stored))
    listed = ", ".join(map(text_literal, files))
    read = f"read_parquet([{listed}], schema = MAP {{{fields}}}, hive_partitioning = false"
    if not partitions:
        return f"SELECT {', '.join(quoted(field.name) for field in schema)} FROM {read})"
    values = {column: _of_type(adds[PARTITION + column], schema.field(column).type) for column in partitions}
    of_files = f"pullsim files of {name}"
    # not `register`, which imports pandas
    lists = {"file of the row": ("VARCHAR", files)} | {
        name: (duckdb_type(column.type), column.to_pylist()) for name, column in values.items()
    }
    unnested = ", ".join(f"unnest(CAST(? AS {kind}[])) AS {quoted(column)}" for column, (kind, _) in lists.items())
    connection.execute(f"CREATE OR REPLACE TABLE {quoted(of_files)} AS SELECT {unnested}", [one for _, one in lists.values()])
    columns = ", ".join(f"{'f' if field.name in partitions else 'd'}.{quoted(field.name)}" for field in schema)
    return f'SELECT {columns} FROM {read}, filename = true) d JOIN {quoted(of_files)} f ON f."file of the row" = d.filename'


def _of_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return column if column.type == kind else column.cast(kind)  # a cast loads pyarrow.compute, which takes 40 ms


def _schema_field(field: pa.Field) -> str:
    name = text_literal(field.name)
    return f"{name}: {{name: {name}, type: {text_literal(duckdb_type(field.type))}, default_value: NULL}}"


def duckdb_type(kind: pa.DataType) -> str:
    """The type of DuckDB for an Arrow type.

    Raises:
        NotSupportedError: no table of a lake has the type.
    """
    if pa.types.is_struct(kind):
        return f"STRUCT({', '.join(f'{quoted(field.name)} {duckdb_type(field.type)}' for field in kind)})"
    if pa.types.is_map(kind):
        return f"MAP({duckdb_type(kind.key_type)}, {duckdb_type(kind.item_type)})"
    if pa.types.is_list(kind):
        return f"{duckdb_type(kind.value_type)}[]"
    if kind not in _SIMPLE:
        raise NotSupportedError(f"a table has a column of type {kind}")
    return _SIMPLE[kind]


_SPARK: Final = {
    "varchar": "string",
    "integer": "int",
    "bigint": "bigint",
    "boolean": "boolean",
    "blob": "binary",
    "double": "double",
    "date": "date",
    "timestamp with time zone": "timestamp",
    # DuckDB's sums; a value that Spark's BIGINT does not hold is an error
    "hugeint": "bigint",
}


def spark_type(kind: DuckDBPyType) -> str | None:
    """The name that Spark has for a type of DuckDB; None if the values of the two engines may differ, as for decimals."""
    nested = kind.id in {"list", "map", "struct"}
    inner = {name: spark_type(child) for name, child in kind.children if isinstance(child, DuckDBPyType)} if nested else {}
    if None in inner.values():
        return None
    if kind.id == "struct":
        return f"struct<{','.join(f'{name}:{of}' for name, of in inner.items())}>"
    if inner:
        return f"{'array' if kind.id == 'list' else 'map'}<{','.join(map(str, inner.values()))}>"
    return _SPARK.get(kind.id)


def with_bigint_sums(table: pa.Table) -> pa.Table:
    """A result of DuckDB with BIGINT for its sums, which are wider than Spark's.

    Raises:
        pyarrow.ArrowInvalid: a sum does not fit into a BIGINT.
    """
    fields = [field.with_type(pa.int64()) if pa.types.is_decimal(field.type) else field for field in table.schema]
    return table.cast(pa.schema(fields))


def quoted(name: str) -> str:
    """A name in quotes, for DuckDB's SQL."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(value: str) -> str:
    """A text as a literal of DuckDB's SQL."""
    return "'" + value.replace("'", "''") + "'"
