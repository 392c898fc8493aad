"""Queries in Spark's SQL over rows at hand, on either engine: DataFrames in a session, or Arrow tables in DuckDB."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import duckdb
import pyarrow as pa

from pipeline.embedded.functions import create_function
from pipeline.embedded.opened_tables import CONFIG, quoted, with_bigint_sums
from pipeline.embedded.translation import duckdb_sql, parsed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]


class Relations(Protocol):
    """Rows under names; queries have the names in braces: SELECT count(*) FROM {pulls}."""

    def rows(self, query: str) -> list[Row]:
        """The rows of a query that has few."""
        ...


class SparkRelations:
    """DataFrames of a session.

    Surprise: when a temporary view is dropped, Spark also drops the cached rows of the view's frame. `sql(query, name=frame)` would drop
    its view at once. So the views of this class stay until the end of the block.
    """

    def __init__(self, spark: SparkSession, **frames: DataFrame) -> None:
        self._spark = spark
        self._names = {name: f"pullsim_{name}_{uuid.uuid4().hex}" for name in frames}
        for name, frame in frames.items():
            frame.createTempView(self._names[name])

    def __enter__(self) -> SparkRelations:
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._names.values():
            self._spark.catalog.dropTempView(name)

    def rows(self, query: str) -> list[Row]:
        """As Relations says."""
        return [row.asDict(recursive=True) for row in self.frame(query).collect()]

    def frame(self, query: str) -> DataFrame:
        """The rows of a query."""
        return self._spark.sql(query.format_map(self._names))


# DuckDB reads the given tables only, and writes no files, even if memory runs short
_CONFIG = {**CONFIG, "enable_external_access": "false", "temp_directory": ""}


class DriverRelations:
    """Arrow tables of this process; queries may call the rules' `functions`."""

    def __init__(self, functions: Sequence[str] = (), **tables: pa.Table) -> None:
        self._connection = duckdb.connect(config=_CONFIG)
        for function in functions:
            create_function(self._connection, function)
        self._names = {name: quoted(name) for name in tables}
        for name, table in tables.items():
            self._connection.from_arrow(table).create_view(name)

    def rows(self, query: str) -> list[Row]:
        """As Relations says."""
        rows: list[Row] = self.table(query).to_pylist()
        return rows

    def table(self, query: str) -> pa.Table:
        """The rows of a query; sums, which DuckDB makes wider, are BIGINT as in Spark."""
        return with_bigint_sums(self._connection.sql(duckdb_sql(parsed(query.format_map(self._names)))).to_arrow_table())
