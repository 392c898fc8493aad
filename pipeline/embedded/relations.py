"""Queries in Spark's SQL over rows at hand, on either engine: DataFrames in a session, or Arrow tables in DuckDB."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import duckdb
import pyarrow as pa

from pipeline.embedded.functions import create_function
from pipeline.embedded.opened_tables import quoted
from pipeline.embedded.translation import duckdb_sql, parsed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]


class Relations(Protocol):
    """Rows under names, which queries have in braces: SELECT count(*) FROM {pulls}."""

    def rows(self, query: str) -> list[Row]:
        """The rows of a query, few."""
        ...


@dataclass(frozen=True, slots=True)
class SparkRelations:
    """DataFrames of a session."""

    spark: SparkSession
    frames: dict[str, DataFrame]

    def rows(self, query: str) -> list[Row]:
        """As Relations says."""
        frames: dict[str, Any] = {**self.frames}
        return [row.asDict(recursive=True) for row in self.spark.sql(query, **frames).collect()]


class DriverRelations:
    """Arrow tables of this process; queries may call the rules' `functions`."""

    def __init__(self, functions: Sequence[str] = (), **tables: pa.Table) -> None:
        self._connection = duckdb.connect()
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
        found = self._connection.sql(duckdb_sql(parsed(query.format_map(self._names)))).to_arrow_table()
        fields = [field.with_type(pa.int64()) if pa.types.is_decimal(field.type) else field for field in found.schema]
        return found.cast(pa.schema(fields))
