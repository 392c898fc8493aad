"""A lake: the Delta tables in one directory, and one commit point for all of them.

Delta commits each table separately. A run writes its tables and then appends one row to `lake_version` with the Delta version of each
table. Readers read every table at the version in the last row, so the writes of a run that died are invisible.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeVar

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from pipeline.delta.delta_log import delta_version
from pipeline.delta.delta_sql import delta
from pipeline.delta.small_table import added_files, has_plain_path, opened_table, small_table
from pipeline.delta.table_rows import Wanted, rows_with
from pipeline.files.store_files import is_uri
from pipeline.lake.committed import (
    LakeVersion,
    chosen_broker,
    lake_root,
    named_in_errors,
    newest_version,
    no_lake,
    require_there,
    version_of,
)
from pipeline.lake.lake_errors import LakeConflictError, LakeError
from pipeline.schema.arrow_types import arrow_schema
from pipeline.schema.tables import BROKER, LAKE_VERSION, Table
from pipeline.tasks.work import NoSessionError

__all__ = ["Lake", "LakeConflictError", "LakeError", "LakeVersion", "StreamBatch", "changes", "require_there"]

T = TypeVar("T")

_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """A batch of a stream: the path of its checkpoint and its number in the checkpoint."""

    checkpoint: str
    number: int


class Lake:
    """The tables in the directory `root`, read at one version of the lake (`at`).

    Attributes:
        read: names of the tables that were read since `at` was set.
    """

    def __init__(self, spark: SparkSession | None, root: str) -> None:
        self._spark = spark
        self.root = lake_root(root)
        self._made: dict[str, tuple[tuple[int | None, ...], Any]] = {}
        self._newest: tuple[int, LakeVersion] | None = None
        if not is_uri(self.root) and (file := _file_on_the_way(self.root)):
            raise LakeError(f"{self.root}: expected a directory for the tables, found a file {file}; give another --lake")
        try:
            self.at = self.newest()
        except (OSError, pa.ArrowInvalid) as error:
            raise LakeError(f"{self.root}: expected a path or a URI that can be opened, found {error}") from error

    @property
    def has_session(self) -> bool:
        """Whether there is a Spark session; without one, the driver reads and writes what it can alone."""
        return self._spark is not None

    @property
    def spark(self) -> SparkSession:
        """The session.

        Raises:
            NoSessionError: there is none.
        """
        if self._spark is None:
            raise NoSessionError(f"a table of {self.root} needs Spark, and there is no session")
        return self._spark

    @property
    def at(self) -> LakeVersion:
        """The version of the lake at which tables are read."""
        return self._at

    @at.setter
    def at(self, version: LakeVersion) -> None:
        self._at = version
        self.read: set[str] = set()

    def path(self, name: str) -> str:
        """The path of a table's folder."""
        return f"{self.root}/{name}"

    def newest(self) -> LakeVersion:
        """The last committed version; lake_version is read again only after a new commit."""
        path = self.path(LAKE_VERSION.name)
        seen = delta_version(path)
        if seen is None:
            return LakeVersion()
        if self._newest is None or self._newest[0] != seen:
            found = newest_version(self.root, seen)
            if found is None:
                found = version_of(self.root, self._rows_at(LAKE_VERSION, seen).sort_by([("version", "descending")]).slice(0, 1))
            self._newest = (seen, found)
        return self._newest[1]

    def committed(self, version: LakeVersion, by: int) -> None:
        """Read the lake at `version` from now on; `by` is the Delta version of lake_version that committed it."""
        self.at = version
        self._newest = (by, version)

    def require(self) -> Lake:
        """Return this lake.

        Raises:
            LakeError: nothing was ever committed to the lake.
        """
        if self.at.version == 0:
            raise no_lake(self.root)
        return self

    def table(self, table: Table) -> DataFrame:
        """The rows of a table at this version of the lake; no rows if the table was never written."""
        version = self.at.tables.get(table.name)
        self.read.add(table.name)
        if version is None:
            return self.spark.createDataFrame([], table.schema)
        read = self.spark.read.format("delta").option("versionAsOf", version)
        return self.remembered(table.name, [table], lambda: read.load(self.path(table.name)))

    def rows(self, table: Table) -> pa.Table:
        """All rows of a small table at this version of the lake; the driver reads them once for each version of the table."""
        version = self.at.tables.get(table.name)
        self.read.add(table.name)
        if version is None:
            return arrow_schema(table).empty_table()
        return self.remembered(f"rows of {table.name}", [table], lambda: self._rows_at(table, version))

    def rows_with(self, table: Table, wanted: Wanted, columns: Sequence[str], any_of: Sequence[Wanted] = ()) -> pa.Table:
        """The rows with wanted values of a table of any size, read by the driver; arguments are as for `table_rows.rows_with`.

        Raises:
            NoSessionError: only Spark can read the table.
            LakeError: the table's log or one of its files is damaged.
        """
        schema, path = arrow_schema(table), self.path(table.name)
        if table.name not in self.at.tables:
            self.read.add(table.name)
            return pa.schema([schema.field(name) for name in columns]).empty_table()
        found = self.opened(table)
        if found is None:
            raise self._left_to_spark(table)
        with named_in_errors(path, self.at.tables[table.name]):
            return rows_with(found, path, schema, columns, wanted, any_of)

    def count(self, table: Table) -> int:
        """The number of rows of a table, from the table's log.

        Raises:
            NoSessionError: only Spark can read the table.
            LakeError: the table's log is damaged.
        """
        if table.name not in self.at.tables:
            return 0
        found = self.opened(table)
        if found is None:
            raise self._left_to_spark(table)
        return sum(added_files(found)["num_records"].to_pylist())

    def _left_to_spark(self, table: Table) -> NoSessionError:
        return NoSessionError(f"only Spark reads the table {table.name} of {self.root}")

    def opened(self, table: Table) -> DeltaTable | None:
        """A written table at this version of the lake, to read its log; None if only Spark can read the table.

        Raises:
            LakeError: the table's log is damaged.
        """
        version, path = self.at.tables[table.name], self.path(table.name)
        self.read.add(table.name)
        with named_in_errors(path, version):
            return opened_table(path, version, to_read=True) if has_plain_path(path) else None

    def columns(self, table: Table) -> list[str]:
        """The names of the columns that a table has at this version of the lake."""
        found = self.opened(table) if table.name in self.at.tables else None
        return self.table(table).columns if found is None else pa.schema(found.schema()).names

    def _rows_at(self, table: Table, version: int) -> pa.Table:
        """All rows of a small table at a Delta version.

        Raises:
            LakeError: the table's log or one of its files is damaged.
        """
        path, schema = self.path(table.name), arrow_schema(table)
        with named_in_errors(path, version):
            found = small_table(path, version, schema) if has_plain_path(path) else None
        if found is None:
            rows = self.spark.read.format("delta").option("versionAsOf", version).load(path)
            none = self.spark.createDataFrame([], table.schema)
            return none.unionByName(rows, allowMissingColumns=True).select(*table.names).toArrow().cast(schema)
        return found

    def remembered(self, what: str, tables: Sequence[Table], make: Callable[[], T]) -> T:
        """The result of `make`, kept under the name `what` until one of `tables` has another version.

        Each batch of a stream needs the same results again.
        """
        versions = tuple(self.at.tables.get(table.name) for table in tables)
        self.read.update(table.name for table in tables)
        known = self._made.get(what)
        if known is None or known[0] != versions:
            known = self._made[what] = (versions, make())
        made: T = known[1]
        return made

    def features(self, table: Table) -> set[str]:
        """The Delta features that a table uses."""
        detail = self.spark.sql(f"DESCRIBE DETAIL {delta(self.path(table.name))}").first()
        return set() if detail is None else set(detail["tableFeatures"])

    def version_rows(self) -> pa.Table:
        """All rows of lake_version, also of versions after this one, read by the driver."""
        newest = delta_version(self.path(LAKE_VERSION.name))
        return arrow_schema(LAKE_VERSION).empty_table() if newest is None else self._rows_at(LAKE_VERSION, newest)

    def versions(self) -> DataFrame:
        """All rows of lake_version, also of versions after this one."""
        none = self.spark.createDataFrame([], LAKE_VERSION.schema)
        if delta_version(self.path(LAKE_VERSION.name)) is None:
            return none
        rows = self.spark.read.format("delta").load(self.path(LAKE_VERSION.name))
        return none.unionByName(rows, allowMissingColumns=True)  # a lake of an earlier release has fewer columns

    def brokers(self, *others: Table) -> list[str]:
        """Sorted names of the brokers that were imported, or that have rows in one of the tables `others`."""
        names = set(self.rows(BROKER)["brokerName"].to_pylist())
        frames = [self.table(table).select("brokerName") for table in others if table.name in self.at.tables]
        if frames:
            names.update(row["brokerName"] for row in reduce(DataFrame.union, frames).distinct().collect())
        return sorted(names)

    def broker(self, name: str | None, *others: Table) -> str:
        """The broker `name` (option --broker); the lake's only broker if `name` is None.

        Args:
            name: name of a broker, or None.
            others: tables whose brokers count too, besides the imported brokers.

        Raises:
            LakeError: there is no such broker, or no name was given and there is not exactly one broker.
        """
        return chosen_broker(self.root, name, self.brokers(*others))

    def create_view(self, table: Table) -> None:
        """Create a temporary view of the table with the table's name."""
        self.table(table).createOrReplaceTempView(table.name)


def changes(lake: Lake, stop: threading.Event) -> Iterator[LakeVersion]:
    """Yield each new version of the lake until `stop` is set; `lake.at` is then that version."""
    while not stop.wait(_LOOK_SECONDS):
        newest = lake.newest()
        if newest != lake.at:
            lake.at = newest
            yield newest


def _file_on_the_way(path: str) -> str | None:
    """The path itself or its nearest existing parent, if this is not a directory; else None."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return None if os.path.isdir(path) else path
