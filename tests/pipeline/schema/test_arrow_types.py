"""Arrow schemas that are made from DDL."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pipeline.schema.arrow_types import arrow_of, arrow_schema, arrow_table
from pipeline.schema.table import Column, Table


def test_columns_of_each_type() -> None:
    ddl = "a STRING, `b` INT, c BIGINT, d BOOLEAN, e BINARY, f TIMESTAMP, g ARRAY<STRING>, h MAP<STRING, BIGINT>"
    assert arrow_of(ddl) == pa.schema(
        {
            "a": pa.string(),
            "b": pa.int32(),
            "c": pa.int64(),
            "d": pa.bool_(),
            "e": pa.binary(),
            "f": pa.timestamp("us", "UTC"),
            "g": pa.list_(pa.string()),
            "h": pa.map_(pa.string(), pa.int64()),
        }
    )


def test_types_in_types() -> None:
    found = arrow_of("a ARRAY<STRUCT<x: INT, y: MAP<STRING, ARRAY<INT>>, `z`: STRUCT<u: INT, v: STRING>>>, b INT")
    inner = pa.struct({"u": pa.int32(), "v": pa.string()})
    struct = pa.struct({"x": pa.int32(), "y": pa.map_(pa.string(), pa.list_(pa.int32())), "z": inner})
    assert found == pa.schema({"a": pa.list_(struct), "b": pa.int32()})


@pytest.mark.parametrize("ddl", ["a TEXT", "a", "", "a ARRAY<TEXT>", "a INT,", "a SET<INT>"])
def test_another_type_is_an_error(ddl: str) -> None:
    with pytest.raises(KeyError):
        arrow_of(ddl)


def test_rows_become_a_table_of_the_columns_types() -> None:
    table = Table("made", "", (Column("a", "STRING", ""), Column("m", "MAP<STRING, STRING>", ""), Column("n", "INT", "")))
    found = arrow_table(table, [("x", {"k": "v"}, None), ("half \ud800 pair", None, 7)])
    assert found.schema == arrow_schema(table)
    assert found.to_pylist() == [{"a": "x", "m": [("k", "v")], "n": None}, {"a": "half ? pair", "m": None, "n": 7}]
    assert arrow_table(table, []).to_pylist() == []
