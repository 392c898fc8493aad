"""Shows views over tables of a few rows: on DuckDB, and in `./run long` on Spark too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.embedded.database import EmbeddedLake
from pipeline.schema.table import Table
from pipeline.schema.tables import TABLES
from pipeline.sql.statements import view_sql
from tests.makers.plain_lakes import plain_lake
from tests.runs.sampling import slow_proof

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES = ["duckdb", pytest.param("spark", marks=slow_proof)]
# (rows by table, each the values of the table's columns in order; the views that are needed, the one to show last) -> its rows
Show = Callable[..., list[dict[str, Any]]]
Tables = Mapping[Table, Sequence[tuple[Any, ...]]]


def shown_by(request: pytest.FixtureRequest, folder: Path, engine: str) -> Show:
    """A function that shows a view: `show(tables, *views)`."""
    if engine == "spark":
        return lambda tables, *views: in_spark(request.getfixturevalue("spark"), tables, *views)
    numbers = count()
    return lambda tables, *views: on_duckdb(folder / f"lake-{next(numbers)}", tables, views[-1])


def on_duckdb(folder: Path, tables: Tables, shown: str) -> list[dict[str, Any]]:
    """The rows of a view, or of a call of a function, over tables of a lake that is made in `folder`."""
    named = {table.name: [dict(zip(table.names, row, strict=True)) for row in rows] for table, rows in tables.items()}
    [rows] = EmbeddedLake(str(plain_lake(folder, named))).asked([f"SELECT * FROM {shown}"])  # noqa: S608
    return list(map(dict, rows))


def in_spark(spark: SparkSession, tables: Tables, *views: str) -> list[dict[str, Any]]:
    """The rows of the last view, or of a call of a function, over tables and the other views."""
    for table in TABLES.values():
        spark.createDataFrame(list(tables.get(table, [])), table.schema).coalesce(1).createOrReplaceTempView(table.name)
    for name in views:
        if "(" not in name:  # a call is no view
            spark.sql(view_sql(name))
    return [row.asDict() for row in spark.sql(f"FROM {views[-1]}").collect()]
