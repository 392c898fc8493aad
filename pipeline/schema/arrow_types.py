"""Arrow types and schemas, made from DDL texts of Spark SQL, so that a schema is written once, as DDL.

Rule: the types are those of the DataFrames that tasks exchange with Spark. Spark parses DDL only in the JVM, which tasks cannot call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import pyarrow as pa

from pipeline.schema.table import Table

_SIMPLE = {
    "STRING": pa.string(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "BOOLEAN": pa.bool_(),
    "BINARY": pa.binary(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
}


@cache
def arrow_schema(table: Table) -> pa.Schema:
    """Return the table's columns as an Arrow schema."""
    return arrow_of(table.schema)


def commented_schema(table: Table) -> pa.Schema:
    """Return the table's columns as an Arrow schema with the columns' comments."""
    comments = {column.name: {"comment": column.comment} for column in table.columns}
    return pa.schema([field.with_metadata(comments[field.name]) for field in arrow_schema(table)])


def arrow_table(table: Table, rows: Iterable[Sequence[Any]]) -> pa.Table:
    """Return rows, each with a value for each column, as an Arrow table; half surrogate pairs become question marks, as in Java."""
    columns = list(zip(*rows, strict=True)) or [()] * len(table.names)
    return pa.table([_column(values, field.type) for values, field in zip(columns, arrow_schema(table), strict=True)], arrow_schema(table))


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        whole = (value.encode("utf-8", "replace").decode() if isinstance(value, str) else value for value in values)
        return pa.array(whole, kind)


@cache
def arrow_of(ddl: str) -> pa.Schema:
    """Return the Arrow schema of columns in DDL: `NAME TYPE, NAME TYPE`; names may be in backticks.

    Raises:
        KeyError: a type is not among the types that tables and tasks use.
    """
    return pa.schema(_fields(ddl, " "))


def _type(ddl: str) -> pa.DataType:
    outer, _, inner = ddl.removesuffix(">").partition("<")
    if outer == "ARRAY":
        return pa.list_(_type(inner))
    if outer == "MAP":
        return pa.map_(*map(_type, _parts(inner)))
    if outer == "STRUCT":
        return pa.struct(list(_fields(inner, ": ")))
    return _SIMPLE[ddl]


def _fields(ddl: str, between: str) -> Iterator[tuple[str, pa.DataType]]:
    for part in _parts(ddl):
        name, _, kind = part.partition(between)
        yield name.strip("`"), _type(kind)


def _parts(ddl: str) -> Iterator[str]:
    """Yield the parts of a text between commas outside brackets."""
    start = depth = 0
    for place, letter in enumerate(ddl):
        depth += (letter == "<") - (letter == ">")
        if letter == "," and depth == 0:
            yield ddl[start:place].strip()
            start = place + 1
    yield ddl[start:].strip()
