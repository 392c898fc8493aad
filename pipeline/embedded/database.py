"""A lake opened by DuckDB: tables at the lake's version, views and functions, defined when a question names them."""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Final, TypeVar

import duckdb
import pyarrow as pa
from sqlglot import exp

from pipeline.delta.delta_log import delta_version
from pipeline.embedded.opened_tables import (
    CONFIG,
    NotSupportedError,
    create_table_view,
    quoted,
    require_local,
    spark_type,
    text_literal,
    with_bigint_sums,
)
from pipeline.embedded.table_functions import with_table_functions
from pipeline.embedded.translation import BINARY_TEXT, TRANSLATED_CALLS, duckdb_sql, is_binary, parsed
from pipeline.files.object_store import is_s3, require_bucket
from pipeline.lake.asking import Row
from pipeline.lake.committed import LakeVersion, lake_root, newest_version, no_lake, require_there
from pipeline.schema.tables import LAKE_VERSION, TABLES
from pipeline.sql.definitions import body_of, documented
from pipeline.sql.statements import VIEWS, view_sql

T = TypeVar("T")

# every name that FROM may have
RELATIONS: Final = (*TABLES, LAKE_VERSION.name, *VIEWS)
_ROWS = 10_000
# pause between two attempts to end a query
_INTERRUPT_SECONDS = 0.05
_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a query.

    Attributes:
        names: names of the columns.
        types: Spark's names of the columns' types; None for a type whose values the engines may show differently.
        rows: the rows, which are computed as they are read.
    """

    names: Sequence[str]
    types: Sequence[str | None]
    rows: Iterator[tuple[Any, ...]]


class EmbeddedLake:
    """A lake's tables, views and functions in a DuckDB of their own, which reads the files of the lake and no others."""

    def __init__(self, root: str, at: LakeVersion | None = None) -> None:
        """Open the lake in the directory `root`, at the version `at` or at its newest version.

        Raises:
            NotSupportedError: only Spark can open the lake.
            LakeError: there is no lake, or it is damaged or of another version.
            ObjectStoreError: the lake is on S3, which cannot be opened.
        """
        self.root = lake_root(root)
        require_local(self.root)
        if is_s3(self.root):
            require_bucket(self.root)
        require_there(self.root)
        newest, self._by = self._newest()
        self.at = at or newest
        self._defined: set[str] = set()

    def _newest(self) -> tuple[LakeVersion, int]:
        """The last committed version, and the Delta version of lake_version that has it."""
        path = f"{self.root}/{LAKE_VERSION.name}"
        by = delta_version(path)
        if by is None:
            raise no_lake(self.root)
        newest = newest_version(self.root, by)
        if newest is None:
            raise NotSupportedError(f"the table {LAKE_VERSION.name} has features of Delta that only Spark reads")
        if not newest.version:
            raise no_lake(self.root)
        return newest, by

    def changes(self, stop: threading.Event) -> Iterator[EmbeddedLake]:
        """The lake at each of its new versions until `stop` is set."""
        lake = self
        while not stop.wait(_LOOK_SECONDS):
            if delta_version(f"{self.root}/{LAKE_VERSION.name}") != lake._by:
                newest = EmbeddedLake(self.root)
                is_new, lake = newest.at != lake.at, newest
                if is_new:
                    yield lake

    @cached_property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The connection; it may read files below the lake's directory, and its settings are locked."""
        connection = duckdb.connect(config=CONFIG)
        spilled = tempfile.mkdtemp(prefix="pullsim-duckdb-")  # only this user may enter it
        weakref.finalize(self, shutil.rmtree, spilled, ignore_errors=True)
        for setting in (
            f"temp_directory = {text_literal(spilled)}",
            "TimeZone = 'UTC'",
            "error_on_division_by_zero = true",
            f"allowed_directories = [{text_literal(self.root + '/')}, {text_literal(spilled + '/')}]",
            "enable_external_access = false",
            "lock_configuration = true",
        ):
            connection.execute(f"SET {setting}")
        return connection

    def rows(self, tree: exp.Expr) -> Answer:
        """The result of a query in Spark's SQL, as `parsed` gives it.

        Raises:
            NotSupportedError: the query reads a table that only Spark reads.
            duckdb.Error: DuckDB refuses the query, or it fails while it runs.
        """
        query = self._sql(tree)
        run = self._answered(lambda: self.connection.execute(query))
        described = run.description or []
        return Answer([column[0] for column in described], [spark_type(column[1]) for column in described], self._fetched(run))

    def table(self, tree: exp.Expr) -> pa.Table:
        """The result of a query as an Arrow table with the types of Spark's `toArrow`.

        Raises:
            NotSupportedError: the query reads a table that only Spark reads, or a column has a type in which the engines differ.
            pyarrow.ArrowInvalid: a sum does not fit into a BIGINT.
            duckdb.Error: as in `rows`.
        """
        found = self.connection.sql(self._sql(tree))
        for name, kind in zip(found.columns, found.types, strict=True):
            if spark_type(kind) is None:
                raise NotSupportedError(f"the type of {name} is left to Spark")
        return with_bigint_sums(self._answered(found.to_arrow_table))

    def query(self, text: str) -> Answer:
        """The result of a query of the project in Spark's SQL; errors are those of `rows`."""
        return self.rows(parsed(text))

    def asked(self, queries: Sequence[str]) -> Iterator[Sequence[Row]]:
        """The rows of queries of the project in Spark's SQL, as `pipeline.lake.asking.AskAll` says.

        Raises:
            NotSupportedError: a query reads a table that only Spark reads.
        """
        for query in queries:
            answer = self.query(query)
            yield [dict(zip(answer.names, row, strict=True)) for row in answer.rows]

    def _answered(self, run: Callable[[], T]) -> T:
        """Run a query of DuckDB in a thread of its own: while DuckDB waits for its other threads, it does not look for Ctrl-C.

        Raises:
            KeyboardInterrupt: Ctrl-C; the query has ended.
        """
        with ThreadPoolExecutor(1) as beside:
            answer = beside.submit(run)
            try:
                return answer.result()
            except KeyboardInterrupt:
                while not answer.done():  # more than once, as the query may begin only after an interrupt
                    self.connection.interrupt()
                    wait([answer], _INTERRUPT_SECONDS)
                raise

    def _fetched(self, run: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
        while rows := self._answered(lambda: run.fetchmany(_ROWS)):
            yield from rows

    def define(self, name: str) -> None:
        """Define a table, view or function, and before it everything that it reads; do nothing for other names."""
        if name in self._defined:
            return
        self._defined.add(name)
        if name in VIEWS:
            self._create_view(name)
        elif name == LAKE_VERSION.name:
            create_table_view(self.connection, self.root, LAKE_VERSION, self._by)
        elif name in TABLES:
            create_table_view(self.connection, self.root, TABLES[name], self.at.tables.get(name))
        elif name in rule_functions():
            from pipeline.embedded.functions import create_function

            create_function(self.connection, name)

    def _sql(self, tree: exp.Expr) -> str:
        """Define everything that a query reads; return the query in DuckDB's SQL."""
        return self._after_definitions(*_translated(tree))

    def _after_definitions(self, names: Collection[str], query: str) -> str:
        for name in sorted(names):
            self.define(name)
        return query

    def _create_view(self, name: str) -> None:
        given = ", ".join(quoted(column.name) for column in documented(view_sql(name)).columns)
        query = f"SELECT * FROM ({self._after_definitions(*_translated_view(name))}) AS found({given})"
        if "sum(" in query.lower():  # DuckDB's sums are wider than Spark's; DESCRIBE takes as long as CREATE VIEW, so only sums pay it
            columns = self.connection.execute(f"DESCRIBE {query}").fetchall()
            shown = ", ".join(_narrow(column) if kind == "HUGEINT" else quoted(column) for column, kind, *_ in columns)
            query = f"SELECT {shown} FROM ({query})"
        self.connection.execute(f"CREATE VIEW {quoted(name)} AS {query}")


def _translated(tree: exp.Expr) -> tuple[frozenset[str], str]:
    """A query in DuckDB's SQL, and the names of the lake's tables, views and functions that it reads."""
    whole = with_table_functions(tree)
    return frozenset(named(whole)), duckdb_sql(whole)


@cache
def _translated_view(name: str) -> tuple[frozenset[str], str]:
    return _translated(parsed(body_of(view_sql(name))))


def _narrow(column: str) -> str:
    return f"CAST({quoted(column)} AS BIGINT) AS {quoted(column)}"


def named(tree: exp.Expr) -> set[str]:
    """Names of the lake's tables, views and functions in a tree; a name that the query defines itself may be among them."""
    tables = {node.name.lower() for node in tree.find_all(exp.Table)}
    calls = {node.name.lower() for node in tree.find_all(exp.Anonymous)} - TRANSLATED_CALLS
    calls |= {BINARY_TEXT for node in tree.find_all(exp.Cast) if is_binary(node.this)}  # the translation calls it
    found = {name for name in RELATIONS if name.lower() in tables}
    return found | {name for name in rule_functions() if name.lower() in calls} if calls else found


def rule_functions() -> frozenset[str]:
    """Names of the rules' functions."""
    from pipeline.embedded.functions import NAMES

    return NAMES
