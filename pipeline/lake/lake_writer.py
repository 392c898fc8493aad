"""Write to a lake: undo the writes of runs that died, write tables, and commit all of them at once.

A table that has only rows of the writing run's broker is replaced in one commit, whatever a dead run left there. A table with other rows
is first restored to its committed version. The write must then be the next commit of the table: a commit in between would be of another
run that writes at the same time, and its rows would become visible too.
"""

from __future__ import annotations

import copy
import datetime as dt
import json
import re
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from delta import exceptions as of_delta
from deltalake.exceptions import DeltaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F

from pipeline.delta.damaged_files import RESTORE
from pipeline.delta.delta_log import RUN_PROPERTY, delta_version, is_empty, restored_version, run_of
from pipeline.delta.delta_sql import (
    Placement,
    create_as,
    create_empty,
    delta,
    literal,
    merge_into,
    partition_columns,
    properties_of,
    table_properties,
)
from pipeline.delta.small_table import files_with, has_plain_path, named_features, opened_table, plain_message
from pipeline.delta.table_commits import (
    CommitConflictError,
    Found,
    append_files,
    create_table,
    delete_rows,
    join_files,
    replace_files,
    takes_files,
)
from pipeline.delta.table_files import FileWriter
from pipeline.delta.table_rows import has_values
from pipeline.files.object_store import is_s3
from pipeline.lake.lake import Lake, LakeConflictError, LakeError, LakeVersion, StreamBatch
from pipeline.lake.session import columns_without_dictionary, temporary_settings
from pipeline.schema.arrow_types import arrow_schema
from pipeline.schema.tables import BROKER, IMPORTED, LAKE_VERSION, TABLES_VERSION, Layout, Table
from pipeline.tasks.local_rows import frame_of
from pipeline.tasks.task_rows import rows_of
from pipeline.tasks.work import DriverWork, NoSessionError, Work

if TYPE_CHECKING:
    from pipeline.lake.driver_lock import WritesAlone

# rows of FILES_DDL
WrittenFiles = list[dict[str, Any]]
# error conditions of Spark and Delta when a table to be created exists already
_CREATED_MEANWHILE = {"TABLE_OR_VIEW_ALREADY_EXISTS", "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"}

# Delta's exceptions for a commit that conflicts with another one; in Python, none of them is a subclass of another
_CONCURRENT = (
    of_delta.ConcurrentAppendException,
    of_delta.ConcurrentDeleteDeleteException,
    of_delta.ConcurrentDeleteReadException,
    of_delta.ConcurrentTransactionException,
    of_delta.ConcurrentWriteException,
    of_delta.DeltaConcurrentModificationException,
    of_delta.MetadataChangedException,
    of_delta.ProtocolChangedException,
)
# setting that does for SQL statements what the option userMetadata does for a write
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_NAMING = threading.Lock()
# name of the Delta "application" whose transaction version is the lake's version: Delta accepts each version from one run only
_VERSIONS = "lake_version"
# most tries to replace a table to which other runs write
_WRITES_TRIED = 5
# most tries to commit, as other runs may commit in between
_COMMITS_TRIED = 100
# number of commits after which small files of a table are compacted
COMPACTED_EVERY = 50
# functions that release the lakes on S3 that the runs of a call took
_TAKEN: ContextVar[list[Callable[[], object]] | None] = ContextVar("_TAKEN", default=None)


@contextmanager
def releasing_lakes() -> Iterator[None]:
    """At the end of the block, release the lakes on S3 that its runs still hold: the traceback of an error keeps their writers alive."""
    taken: list[Callable[[], object]] = []
    token = _TAKEN.set(taken)
    try:
        yield
    finally:
        _TAKEN.reset(token)
        for release in taken:
            release()


class LakeWriter:
    """One run that writes to a lake: it undoes the writes of dead runs, writes tables, and commits them together.

    Methods that write raise LakeConflictError if another run is writing to the same tables; nothing of this run is visible then.
    On S3, no run of another process writes to the lake between the creation of a LakeWriter and its commit or its end.
    """

    def __init__(self, lake: Lake, *, run_id: str, what: str, broker: str, only_looks: bool = False) -> None:
        """With `only_looks`, the run only finds out which tables the driver can write; it then waits for no other process."""
        self.lake = lake
        self.run_id, self.what, self.broker = run_id, what, broker
        self._versions: dict[str, int] = {}
        self._looking: threading.Thread | None = None
        self._alone: WritesAlone | None = None
        if is_s3(lake.root) and not only_looks:
            from pipeline.lake.driver_lock import write_alone  # noqa: PLC0415 (executors import this module without obstore)

            self._alone = write_alone(lake.root, run_id, what)
            self._released = weakref.finalize(self, self._alone.release)
            if (taken := _TAKEN.get()) is not None:
                taken.append(self._released)
            self._look_again()

    @property
    def spark(self) -> SparkSession:
        """The lake's session.

        Raises:
            NoSessionError: there is none.
        """
        return self.lake.spark

    def _look_again(self) -> None:
        """Read the newest version of the lake, because another run may have committed while this run waited.

        Raises:
            LakeConflictError: another run committed to a table that this run has read.
        """
        lake = self.lake
        try:
            newest = lake.newest()
            if lake.at.differs_in(newest, tuple(lake.read)):
                raise self._conflict()
        except BaseException:
            self._released()
            raise
        if newest != lake.at:
            lake.at = newest

    @cached_property
    def others(self) -> Mapping[str, Layout]:
        """The layout of each other broker in the lake, by the broker's name."""
        if not self.lake.at.version:
            return {}
        rows = self.lake.rows(BROKER).to_pylist()
        return {row["brokerName"]: row["layout"] for row in rows if row["brokerName"] != self.broker}

    @cached_property
    def was_clustered(self) -> bool:
        """Whether any table by queue, committed or left by a dead run, uses the feature clustering."""
        there = [table for table in IMPORTED if table.by_queue and delta_version(self.lake.path(table.name)) is not None]
        return any("clustering" in self._named_features(table) for table in there)

    def _named_features(self, table: Table) -> set[str]:
        path = self.lake.path(table.name)
        try:
            return named_features(path) if has_plain_path(path) else self.lake.features(table)
        except (DeltaError, OSError) as error:
            if self.lake.has_session:  # a table with features that only Spark knows
                return self.lake.features(table)
            raise _damaged(path, error) from error

    @property
    def commits_without_spark(self) -> bool:
        """Whether the driver commits a version of the lake without Spark."""
        path = self.lake.path(LAKE_VERSION.name)
        return delta_version(path) is None or self._commits_here(LAKE_VERSION)

    def expect_commit(self) -> None:
        """Start to load lake_version into Delta's cache while tables are written; loading it takes longer than the commit itself."""
        if self.lake.at.version and not self._commits_here(LAKE_VERSION):
            self._looking = threading.Thread(target=self.lake.features, args=(LAKE_VERSION,), daemon=True)
            self._looking.start()

    def replacing_writer(self, table: Table, placement: Placement) -> FileWriter | None:
        """A writer with which tasks write the files for `replace_broker`; None if only Spark can write the table."""
        with self._raising_conflicts():
            if self._keeps_others(table) or not self._creates_here(table, placement):
                return None
        return _file_writer(table, self.lake.path(table.name), placement)

    def replace_broker(self, table: Table, rows: DataFrame | pa.Table | WrittenFiles, placement: Placement | None = None) -> None:
        """Replace all rows of the broker in a table by `rows`.

        Args:
            table: the table; it is created if it was never committed.
            rows: rows with the table's columns, in any order; or rows of FILES_DDL for the files that a `replacing_writer` wrote.
            placement: of the files of a table by queue; the layout of a table with other brokers' rows is not changed.

        If another run writes to the table at the same time, this run writes the table again: the commit of the lake decides which run
        succeeds. Otherwise two runs that begin at the same time would refuse each other again and again.
        """
        for left in reversed(range(_WRITES_TRIED)):
            try:
                self._replace(table, rows, placement or Placement())
            except LakeConflictError:
                if not left or self._alone is not None or self.lake.at.differs_in(self.lake.newest(), (table.name,)):
                    raise
            else:
                return

    def _replace(self, table: Table, rows: DataFrame | pa.Table | WrittenFiles, placement: Placement) -> None:
        if isinstance(rows, list) or not self._keeps_others(table):
            self._write_anew(table, rows, placement)
            return
        self._restore(table)
        if table.by_queue and not placement.named_folders:
            self._unname_folders(table, placement)
        mine = f"brokerName = {literal(self.broker)}"
        rows = self._frame(rows)
        with self._writing():
            self._write(rows, table, "overwrite").option("replaceWhere", mine).save(self.lake.path(table.name))
        self._remember_version(table)

    def _keeps_others(self, table: Table) -> bool:
        """Whether the table has rows of other brokers."""
        return bool(self.others) and table.name in self.lake.at.tables

    def prepare(self, table: Table, layout: Layout = "clustered") -> None:
        """Restore a table to its committed version, or create it, before the first `append`; later calls in a run do nothing."""
        if table.name in self._versions:
            return
        if table.name in self.lake.at.tables:
            self._restore(table)
        else:
            self._create(table, layout)

    def append(self, table: Table, rows: DataFrame | pa.Table) -> None:
        """Append rows to a prepared table.

        Args:
            table: the table.
            rows: a DataFrame, whose tasks write the rows; or an Arrow table of a few rows, which the driver writes.
        """
        if self._commits_here(table):
            self.append_files(table, self._written_files(table, rows))
            return
        rows = self._frame(rows)
        with self._writing():
            # mergeSchema: a table of an older version has fewer columns
            self._write(rows, table, "append").option("mergeSchema", "true").save(self.lake.path(table.name))
        self._remember_version(table)

    def file_writer(self, table: Table) -> FileWriter | None:
        """A writer with which tasks write rows of a prepared table to files for `append_files`; None if only Spark can write the table."""
        return _file_writer(table, self.lake.path(table.name)) if self._commits_here(table) else None

    def append_files(self, table: Table, files: Sequence[Mapping[str, Any]]) -> None:
        """Append files that `file_writer` wrote to a prepared table."""
        path = self.lake.path(table.name)
        with self._writing():
            append_files(path, self._versions[table.name], files, self._named)
        self._remember_version(table)

    def _commits_here(self, table: Table) -> bool:
        """Whether the driver commits to the log of the table without Spark."""
        path = self.lake.path(table.name)
        return not table.by_queue and has_plain_path(path) and takes_files(table, path)

    def _creates_here(self, table: Table, placement: Placement) -> bool:
        """Whether the driver creates or replaces the table without Spark."""
        path = self.lake.path(table.name)
        is_plain = not table.by_queue or (placement.layout == "partitioned" and placement.named_folders)
        if not is_plain or not has_plain_path(path):
            return False
        try:
            return delta_version(path) is None or opened_table(path) is not None
        except (DeltaError, OSError) as error:
            raise _damaged(path, error) from error

    def _written_files(self, table: Table, rows: DataFrame | pa.Table) -> WrittenFiles:
        """Write rows to new files in the folder of an unpartitioned table; gives a row of FILES_DDL for each file."""
        writer = _file_writer(table, self.lake.path(table.name))
        if isinstance(rows, pa.Table):
            return [row for batch in writer.write(iter(rows.to_batches())) for row in batch.to_pylist()]
        return rows_of(table, rows).files((writer,))

    def replace_source(self, table: Table, rows: Work, digest: str) -> None:
        """Replace the broker's rows with the sourceDigest `digest` by `rows`; create the table if needed.

        Raises:
            NoSessionError: there is no session, and the table may have rows with the digest, or only Spark can write the table.
        """
        if not isinstance(rows, DriverWork):
            self.replace_rows(table, rows.frame, {"sourceDigest": digest})
        elif table.name not in self.lake.at.tables:
            self._write_anew(table, rows.table(), Placement())
        else:
            there = self.lake.opened(table)
            if there is None or files_with(there, "sourceDigest", digest):
                raise NoSessionError(f"the table {table.name} may have rows of the same file")
            self._restore(table)
            self.append(table, rows.table())

    def replace_rows(self, table: Table, rows: DataFrame | pa.Table, equal: Mapping[str, str] | None = None) -> None:
        """Replace the broker's rows of a table by `rows`; create the table if needed.

        Args:
            table: the table.
            rows: a DataFrame; or an Arrow table of a few rows, which the driver writes.
            equal: values of columns; only rows with these are replaced.
        """
        if table.name not in self.lake.at.tables:
            self._write_anew(table, rows, Placement())
            return
        self._restore(table)
        mine = {"brokerName": self.broker, **(equal or {})}
        if isinstance(rows, pa.Table) and self._commits_here(table):
            are_mine = has_values(arrow_schema(table), {name: [value] for name, value in mine.items()})
            others = self.lake.rows(table).filter(~are_mine)
            files = self._written_files(table, pa.concat_tables([others, rows.select(table.names).cast(others.schema)]))
            with self._writing():
                replace_files(self.lake.path(table.name), self._versions[table.name], files, self._named)
            self._remember_version(table)
            return
        where = " AND ".join(f"{name} = {literal(value)}" for name, value in mine.items())
        with self._writing():
            self._write(self._frame(rows), table, "overwrite").option("replaceWhere", where).save(self.lake.path(table.name))
        self._remember_version(table)

    def delete_rows(self, table: Table, where: str) -> None:
        """Delete the broker's rows for which the SQL condition `where` is true from a small, prepared table."""
        path = self.lake.path(table.name)
        with self._writing():
            if self._commits_here(table) and not self.lake.has_session:
                mine = "\"brokerName\" = '{}'".format(self.broker.replace("'", "''"))
                delete_rows(path, self._versions[table.name], f"{mine} AND {where}", self._named)
            else:
                with self._commits_named():
                    self.spark.sql(f"DELETE FROM {delta(path)} WHERE brokerName = {literal(self.broker)} AND {where}")  # noqa: S608 (literals of ours)
        self._remember_version(table)

    def merge(self, table: Table, rows: DataFrame, keys: Sequence[str], *, all_of: str | None = None) -> None:
        """Merge rows into a prepared table: replace rows with the same keys, and add the others.

        Args:
            table: the table.
            rows: rows with the table's columns, at most one for each combination of keys.
            keys: names of the key columns.
            all_of: name of a broker; its rows that are not in `rows` are deleted. None deletes no rows.
        """
        with self._view(table, rows) as new, self._commits_named(), self._writing():
            self.spark.sql(merge_into(table, self.lake.path(table.name), new, keys, all_of=all_of))
        self._remember_version(table)

    def compact(self, table: Table) -> None:
        """Join small files of a table that the run wrote to."""
        path = self.lake.path(table.name)
        with self._writing():
            if self.lake.has_session:
                with self._commits_named():
                    self.spark.sql(f"OPTIMIZE {delta(path)}")
            else:
                join_files(path, self._named)
        self._remember_version(table)

    def written(self, table: Table) -> DataFrame:
        """The rows of a table at the version that this run wrote, which may not be committed yet."""
        return self.spark.read.format("delta").option("versionAsOf", self._versions[table.name]).load(self.lake.path(table.name))

    def as_written(self) -> Lake:
        """A copy of the lake in which the tables have the versions that this run has written so far."""
        lake = copy.copy(self.lake)
        lake.at = LakeVersion(lake.at.version, {**lake.at.tables, **self._versions})
        return lake

    def commit(self, committed_at: dt.datetime, batch: StreamBatch | None = None) -> int:
        """Commit all tables that the run wrote; returns the new version of the lake.

        Commits of other runs to other tables in the meantime are kept.
        """
        if self._looking is not None:
            self._looking.join()
        of_stream = (None, None) if batch is None else (batch.checkpoint, batch.number)
        for _ in range(_COMMITS_TRIED):
            self._require_alone()
            at = LakeVersion(self.lake.at.version + 1, {**self.lake.at.tables, **self._versions})
            values = (at.version, self.run_id, self.what, self.broker, at.tables, committed_at, *of_stream, TABLES_VERSION)
            row = dict(zip(LAKE_VERSION.names, values, strict=True))
            if (delta_at := self._committed(row)) is not None:
                self.lake.committed(at, delta_at)
                if at.version % COMPACTED_EVERY == 0:
                    self._compact_versions()
                if self._alone is not None:
                    self._released()
                return at.version
            newest = self.lake.newest()
            if self.lake.at.differs_in(newest, self._versions):
                break
            self.lake.at = newest
        raise self._conflict()

    def _compact_versions(self) -> None:
        """Join the files of lake_version, which every run reads first, into one."""
        with suppress(LakeError, DeltaError, CommitConflictError, *_CONCURRENT):  # another run commits; a later run compacts the table
            self._require_alone()
            if self._commits_here(LAKE_VERSION):
                join_files(self.lake.path(LAKE_VERSION.name), self._named)
            else:
                self.spark.sql(f"OPTIMIZE {delta(self.lake.path(LAKE_VERSION.name))}")

    def _committed(self, row: dict[str, Any]) -> int | None:
        """Append a row to lake_version; return its Delta version, or None if another run has committed this version of the lake."""
        path, rows = self.lake.path(LAKE_VERSION.name), pa.Table.from_pylist([row], arrow_schema(LAKE_VERSION))
        before = delta_version(path)
        if before is None:
            self._create_versions(path)
            before = delta_version(path) or 0
        try:
            if self._commits_here(LAKE_VERSION):
                files = self._written_files(LAKE_VERSION, rows)
                append_files(path, before, files, self._named, (_VERSIONS, row["version"]))
            else:
                write = self._write(frame_of(self.spark, rows), LAKE_VERSION, "append").option("mergeSchema", "true")
                write.option("txnAppId", _VERSIONS).option("txnVersion", row["version"]).save(path)
        except (CommitConflictError, *_CONCURRENT):
            return None
        versions = range(delta_version(path) or 0, before, -1)
        return next((version for version in versions if run_of(path, version) == self.run_id), None)

    def _create_versions(self, path: str) -> None:
        """Create lake_version, unless another run has created it in the meantime."""
        with self._writing():
            if has_plain_path(path):
                create_table(LAKE_VERSION, path, table_properties(LAKE_VERSION, Placement()), (), self._named, found="kept")
            else:
                self.spark.sql(create_empty(LAKE_VERSION, path))

    @property
    def _named(self) -> str:
        """The userMetadata of the run's commits: JSON with its runId, what and brokerName."""
        return json.dumps({"runId": self.run_id, "what": self.what, "brokerName": self.broker})

    def _frame(self, rows: DataFrame | pa.Table) -> DataFrame:
        return frame_of(self.spark, rows) if isinstance(rows, pa.Table) else rows

    def _write(self, rows: DataFrame, table: Table, mode: str) -> DataFrameWriter:
        return rows.select(*table.names).write.format("delta").mode(mode).option("userMetadata", self._named)

    @contextmanager
    def _commits_named(self) -> Iterator[None]:
        """Put the run's userMetadata into the commits of SQL statements, which have no options.

        The setting is shared by all threads of the session, so only one block runs at a time.
        """
        with _NAMING, temporary_settings(self.spark, {_USER_METADATA: self._named}):
            yield

    def _create(self, table: Table, layout: Layout) -> None:
        """Create the table without rows, replacing what a dead run left."""
        self._write_anew(table, arrow_schema(table).empty_table(), Placement(layout))

    def _write_anew(self, table: Table, rows: DataFrame | pa.Table | WrittenFiles, placement: Placement) -> None:
        """Create the table with `rows`, replacing an existing table."""
        path = self.lake.path(table.name)
        with self._raising_conflicts():
            if not isinstance(rows, list) and (table.by_queue or not self._creates_here(table, placement)):
                rows = self._frame(rows)
                named = properties_of(table, placement, {RUN_PROPERTY: self.run_id})
                # replace only if needed: to replace a table, Delta lists its files, which doubles the time
                with self._view(table, rows) as view:
                    self._require_alone()
                    self.spark.sql(create_as(table, path, placement, named, view, replace=not is_empty(path)))
            else:
                found: Found = "refused" if is_empty(path) else "replaced"
                files = rows if isinstance(rows, list) else self._written_files(table, rows)
                properties, partitioned_by = table_properties(table, placement), partition_columns(table, placement)
                self._require_alone()
                create_table(table, path, properties, files, self._named, found=found, partitioned_by=partitioned_by)
        self._versions.pop(table.name, None)
        self._remember_version(table)

    @contextmanager
    def _view(self, table: Table, rows: DataFrame) -> Iterator[str]:
        """Create a temporary view of `rows` with the table's columns, types and comments for the block; yields its name."""
        columns = [F.col(one.name).cast(one.type).alias(one.name, metadata={"comment": one.comment}) for one in table.columns]
        name = f"{table.name}_of_{re.sub(r'[^0-9A-Za-z]', '_', self.run_id)}"
        rows.select(*columns).createOrReplaceTempView(name)
        try:
            yield name
        finally:
            self.spark.catalog.dropTempView(name)

    def _restore(self, table: Table) -> None:
        """Restore a table to its committed version, if dead runs have written to it."""
        path, committed = self.lake.path(table.name), self.lake.at.tables[table.name]
        newest = delta_version(path)
        if newest is None:
            raise LakeError(f"{path}: expected the Delta table at version {committed} or later, found none")
        if newest != committed and restored_version(path, newest) != committed:
            with self._commits_named(), self._writing():
                self.spark.sql(f"RESTORE TABLE {delta(path)} TO VERSION AS OF {committed}")
            newest += 1
            if restored_version(path, newest) != committed:
                raise self._conflict()
        self._versions[table.name] = newest

    def _unname_folders(self, table: Table, placement: Placement) -> None:
        properties = properties_of(table, placement, {RUN_PROPERTY: self.run_id})
        with self._writing():
            self.spark.sql(f"ALTER TABLE {delta(self.lake.path(table.name))} SET TBLPROPERTIES ({properties})")
        self._remember_version(table)

    def _remember_version(self, table: Table) -> None:
        """Remember the Delta version that the run has just written to a table.

        Raises:
            LakeConflictError: the version does not directly follow the last remembered version, or is not of this run.
        """
        path, base = self.lake.path(table.name), self._versions.get(table.name)
        newest = delta_version(path)
        if newest is None or newest != base:
            versions = range(-1 if newest is None else newest, -1 if base is None else base, -1)
            newest = next((version for version in versions if run_of(path, version) == self.run_id), None)
            if newest is None or (base is not None and newest != base + 1):
                raise self._conflict()
        self._versions[table.name] = newest

    def _conflict(self) -> LakeConflictError:
        return LakeConflictError(
            f"{self.lake.root}: expected no other run to write to the lake since its version {self.lake.at.version}, found one; "
            "nothing of this run is visible, start it again when the other one has ended"
        )

    def _require_alone(self) -> None:
        """Check, before each write to a table on S3, that no other process has taken the lake over."""
        if self._alone is not None:
            self._alone.require()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._raising_conflicts():
            self._require_alone()
            yield

    @contextmanager
    def _raising_conflicts(self) -> Iterator[None]:
        try:
            yield
        except (CommitConflictError, *_CONCURRENT) as error:
            raise self._conflict() from error
        except AnalysisException as error:
            if error.getCondition() in _CREATED_MEANWHILE:
                raise self._conflict() from error
            raise
        except DeltaError as error:
            told = f"cannot write a Delta table: {plain_message(error)}; may this process write there?"
            raise LakeError(f"{self.lake.root}: {told}") from error


def _damaged(path: str, error: Exception) -> LakeError:
    return LakeError(f"{path}: cannot read the log of the Delta table: {plain_message(error)}; {RESTORE}")


def _file_writer(table: Table, folder: str, placement: Placement | None = None) -> FileWriter:
    """A writer of data files for a table, with statistics of `table.stats`, or of all columns that are neither nested nor binary."""
    schema, partitioned_by = arrow_schema(table), partition_columns(table, placement or Placement())
    plain = (field.name for field in schema if not (pa.types.is_nested(field.type) or pa.types.is_binary(field.type)))
    stats = tuple(name for name in table.stats or plain if name not in partitioned_by)
    return FileWriter(table.name, folder, schema, stats, columns_without_dictionary(), partitioned_by, table.row_group_bytes)
