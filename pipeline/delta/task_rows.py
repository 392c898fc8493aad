"""Spark tasks get small descriptions of work, such as a stretch of a file or the name of a queue, and make rows of tables from them.

One job writes all tables that are made from the same input, so tasks read the input once. The tasks write the tables' files themselves;
where only Spark can write a table, its rows are a DataFrame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from pipeline.delta.table_files import FILES_DDL, FileWriter, write_tables
from pipeline.schema.table import Table

# descriptions of a task's work, names of the wanted tables -> batches of rows, each with its table's name
ReadTables = Callable[[Iterator[pa.RecordBatch], frozenset[str]], Iterator[tuple[str, pa.RecordBatch]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRows:
    """The rows of tables that the same tasks make.

    Attributes:
        work: descriptions of the work; each task gets the rows of a partition.
        tables: the tables.
        read: function that makes the rows; it makes no rows of tables that are not wanted.
    """

    work: DataFrame
    tables: tuple[Table, ...]
    read: ReadTables

    def frame(self, table: Table) -> DataFrame:
        """The rows of one table."""
        read, name = self.read, table.name

        def rows(work: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return (batch for _, batch in read(work, frozenset({name})))

        return self.work.mapInArrow(rows, table.schema)

    def files(self, writers: Iterable[FileWriter]) -> list[dict[str, Any]]:
        """Write the tables of `writers` with one Spark job; gives a row of FILES_DDL for each file, in the order of tasks."""
        read, all_writers = self.read, tuple(writers)
        names = frozenset(writer.table for writer in all_writers)

        def write(work: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return write_tables(all_writers, read(work, names))

        return [row.asDict() for row in self.work.mapInArrow(write, FILES_DDL).collect()] if all_writers else []


def rows_made(table: Table, work: DataFrame, make: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> TaskRows:
    """The rows of one table, which `make` makes from descriptions of the work."""
    return TaskRows(work=work, tables=(table,), read=_OfTable(table.name, make))


def rows_of(table: Table, rows: DataFrame) -> TaskRows:
    """Wrap a DataFrame as TaskRows of one table."""
    return rows_made(table, rows.select(*table.names), _unchanged)


def _unchanged(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return rows


@dataclass(frozen=True, slots=True)
class _OfTable:
    """Makes rows of one table."""

    name: str
    make: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

    def __call__(self, work: Iterator[pa.RecordBatch], _wanted: frozenset[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
        return ((self.name, batch) for batch in self.make(work))
