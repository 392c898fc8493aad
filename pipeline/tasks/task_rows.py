"""Tasks get small descriptions of work, such as a stretch of a file or the name of a queue, and make rows of tables from them.

One job writes all tables that are made from the same input, so tasks read the input once. The tasks write the tables' files themselves;
if only Spark can write a table, its rows are a DataFrame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from pipeline.delta.table_files import FILES_DDL, FileWriter, write_tables
from pipeline.schema.table import Table
from pipeline.tasks.work import Batches, Make, SparkWork, Work, until

# descriptions of a task's work, names of the wanted tables -> batches of rows, each with its table's name
ReadTables = Callable[[Batches, frozenset[str]], Iterator[tuple[str, pa.RecordBatch]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRows:
    """The rows of tables that the same tasks make.

    Attributes:
        work: descriptions of the work; each task gets the rows of a partition.
        tables: the tables.
        read: function that makes the rows; it makes no rows of tables that are not wanted.
    """

    work: Work
    tables: tuple[Table, ...]
    read: ReadTables

    def rows(self, table: Table) -> Work:
        """The rows of one table."""
        read, name = self.read, table.name

        def rows(work: Batches) -> Batches:
            return (batch for _, batch in read(work, frozenset({name})))

        return self.work.mapped(rows, table.schema)

    def frame(self, table: Table) -> DataFrame:
        """The rows of one table as a DataFrame.

        Raises:
            NoSessionError: there is no session.
        """
        return self.rows(table).frame

    def files(self, writers: Iterable[FileWriter]) -> list[dict[str, Any]]:
        """Write the tables of `writers` in one pass over the work; return a row of FILES_DDL for each file, in the order of tasks."""
        read, all_writers, stop = self.read, tuple(writers), self.work.stop
        names = frozenset(writer.table for writer in all_writers)

        def write(work: Batches) -> Batches:
            rows = read(work, names)
            return write_tables(all_writers, rows if stop is None else until(stop, rows))

        return self.work.mapped(write, FILES_DDL).rows() if all_writers else []


def rows_made(table: Table, work: Work, make: Make) -> TaskRows:
    """The rows of one table, which `make` makes from descriptions of the work."""
    return TaskRows(work=work, tables=(table,), read=_OfTable(table.name, make))


def rows_as_they_are(table: Table, rows: Work) -> TaskRows:
    """Rows of one table, which the tasks only write."""
    return rows_made(table, rows, _unchanged)


def rows_of(table: Table, rows: DataFrame) -> TaskRows:
    """Wrap a DataFrame as TaskRows of one table."""
    return rows_as_they_are(table, SparkWork(rows.select(*table.names)))


def _unchanged(rows: Batches) -> Batches:
    return rows


@dataclass(frozen=True, slots=True)
class _OfTable:
    """Makes rows of one table."""

    name: str
    make: Make

    def __call__(self, work: Batches, _wanted: frozenset[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
        return ((self.name, batch) for batch in self.make(work))
