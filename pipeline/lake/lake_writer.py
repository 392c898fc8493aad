"""Runs that write to a lake: they undo what dead runs left, and commit all their tables at once.

A table that holds nothing but the writing run's broker is written anew in one commit, whatever a dead run left there. Where other rows
stay, the table is put back to its committed version first, and the write must be the very next commit: else a run that writes at the
same time would slip its rows in.
"""

from __future__ import annotations

import copy
import datetime as dt
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

import pyarrow as pa
from delta import exceptions as of_delta
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameWriter
from pyspark.sql import functions as F

from pipeline.lake.delta_log import RUN_PROPERTY, delta_version, is_empty, restored_version, run_of
from pipeline.lake.delta_sql import Placement, create_as, create_empty, delta, literal, merge_into, properties_of, table_properties
from pipeline.lake.lake import Lake, LakeError, LakeVersion, NotAloneError, StreamBatch
from pipeline.lake.session import columns_without_dictionary, set_meanwhile
from pipeline.lake.small_table import reads_without_spark
from pipeline.lake.table_commits import CommitConflictError, Found, append_files, create_table, has_columns
from pipeline.lake.table_files import FILES_DDL, FileWriter, check_files
from pipeline.schema.arrow_types import arrow_schema
from pipeline.schema.tables import BROKER, IMPORTED, LAKE_VERSION, TABLES_VERSION, Layout, Table

# what Spark and Delta say of a table to be created where something has come to be
_CREATED_MEANWHILE = {"TABLE_OR_VIEW_ALREADY_EXISTS", "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"}

# what Delta says of a commit that another one got in the way of; in Python none of these is a kind of another
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
# what the option userMetadata of a write is for a statement
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_NAMING = threading.Lock()
# Delta appends one row for each version of this "application": of two runs that have the same next version, one comes too late
_VERSIONS = "lake_version"
# other runs may commit between two tries
_COMMITS_TRIED = 10
# runs that add files commit after commit join them so often
COMPACTED_EVERY = 50


class LakeWriter:
    """One run that writes to a lake: writes tables, undoing what dead runs left there, and commits them together.

    All methods but `prepare` raise LakeError where another run is found writing; nothing of this one is visible then.
    """

    def __init__(self, lake: Lake, *, run_id: str, what: str, broker: str) -> None:
        self.lake = lake
        self.spark = lake.spark
        self.run_id, self.what, self.broker = run_id, what, broker
        self._versions: dict[str, int] = {}
        self._looking: threading.Thread | None = None

    @cached_property
    def others(self) -> Mapping[str, Layout]:
        """The other brokers in the lake, each with its layout."""
        if not self.lake.at.version:
            return {}
        rows = self.lake.rows(BROKER).to_pylist()
        return {row["brokerName"]: row["layout"] for row in rows if row["brokerName"] != self.broker}

    @cached_property
    def was_clustered(self) -> bool:
        """Whether a table by queue, committed or left by a dead run, ever was clustered."""
        there = [table for table in IMPORTED if table.by_queue and delta_version(self.lake.path(table.name)) is not None]
        return any("clustering" in self.lake.features(table) for table in there)

    def expect_commit(self) -> None:
        """Let Delta look at the commit point while tables are written: what it asks there takes longer than the commit itself."""
        if self.lake.at.version:
            self._looking = threading.Thread(target=self.lake.features, args=(LAKE_VERSION,), daemon=True)
            self._looking.start()

    def replace_broker(self, table: Table, rows: DataFrame | pa.Table, placement: Placement | None = None) -> None:
        """Put `rows` in the place of all that the table holds of the broker.

        Args:
            table: which; it is created where it was never committed.
            rows: with its columns, in any order.
            placement: of a table by queue; where other brokers' rows stay, the layout stays too.
        """
        placement = placement or Placement()
        if not self.others or table.name not in self.lake.at.tables:
            self._write_anew(table, rows, placement)
            return
        self._put_back(table)
        if table.by_queue and not placement.named_folders:
            self._unname_folders(table, placement)
        mine = f"brokerName = {literal(self.broker)}"
        rows = self.spark.createDataFrame(rows) if isinstance(rows, pa.Table) else rows
        with self._alone():
            self._write(rows, table, "overwrite").option("replaceWhere", mine).save(self.lake.path(table.name))
        self._note(table)

    def prepare(self, table: Table, layout: Layout = "clustered") -> None:
        """Have the table at its last committed state for `append`, created where it was never committed; once is enough in a run."""
        if table.name in self._versions:
            return
        if table.name in self.lake.at.tables:
            self._put_back(table)
        else:
            self._create(table, layout)

    def append(self, table: Table, rows: DataFrame | pa.Table) -> None:
        """Add rows to a table that was prepared.

        Args:
            table: which.
            rows: of a DataFrame, whose tasks write them; or a few that the driver writes.
        """
        if self._commits_here(table):
            self.append_files(table, self._written_files(table, rows))
            return
        rows = self.spark.createDataFrame(rows) if isinstance(rows, pa.Table) else rows
        with self._alone():
            # the table may be that of an older version, with fewer columns
            self._write(rows, table, "append").option("mergeSchema", "true").save(self.lake.path(table.name))
        self._note(table)

    def file_writer(self, table: Table) -> FileWriter | None:
        """What writes rows of a prepared table in a task, for `append_files`; None where only Spark can write the table."""
        return _file_writer(table, self.lake.path(table.name)) if self._commits_here(table) else None

    def append_files(self, table: Table, files: Sequence[Mapping[str, Any]]) -> None:
        """Add files that `file_writer` wrote to a table that was prepared."""
        path = self.lake.path(table.name)
        check_files(path, files)
        with self._alone():
            append_files(path, self._versions[table.name], files, self._named)
        self._note(table)

    def _commits_here(self, table: Table) -> bool:
        """Whether the driver commits to the log of the table without Spark."""
        path = self.lake.path(table.name)
        return not table.by_queue and reads_without_spark(path) and has_columns(table, path)

    def _written_files(self, table: Table, rows: DataFrame | pa.Table) -> Sequence[Mapping[str, Any]]:
        """Rows of a table in new files of its folder: those of FILES_DDL."""
        writer = _file_writer(table, self.lake.path(table.name))
        if isinstance(rows, pa.Table):
            files: list[dict[str, Any]] = [row for batch in writer.write(iter(rows.to_batches())) for row in batch.to_pylist()]
            return files
        return [row.asDict() for row in rows.select(*table.names).mapInArrow(writer.write, FILES_DDL).collect()]

    def replace_rows(self, table: Table, rows: DataFrame, where: str) -> None:
        """Put `rows` in the place of those that a condition of SQL finds; the table is created where it was never committed."""
        if table.name not in self.lake.at.tables:
            self._write_anew(table, rows, Placement())
            return
        self._put_back(table)
        with self._alone():
            self._write(rows, table, "overwrite").option("replaceWhere", where).save(self.lake.path(table.name))
        self._note(table)

    def merge(self, table: Table, rows: DataFrame, keys: Sequence[str], *, all_of: str | None = None) -> None:
        """Change and add rows of a table that was prepared.

        Args:
            table: which.
            rows: with its columns, and one row at most for the same keys: it takes the place of the table's row with them.
            keys: columns that tell rows apart.
            all_of: the rows are all those of this broker; its others are deleted.
        """
        with self._alone(), self._view(table, rows) as new, self._commits_named():
            self.spark.sql(merge_into(table, self.lake.path(table.name), new, keys, all_of=all_of))
        self._note(table)

    def compact(self, table: Table) -> None:
        """Join the small files of a table that the run wrote to."""
        with self._alone(), self._commits_named():
            self.spark.sql(f"OPTIMIZE {delta(self.lake.path(table.name))}")
        self._note(table)

    def written(self, table: Table) -> DataFrame:
        """A table as this run wrote it."""
        return self.spark.read.format("delta").option("versionAsOf", self._versions[table.name]).load(self.lake.path(table.name))

    def as_written(self) -> Lake:
        """The lake with the tables as this run has them so far, at the version that it builds on."""
        lake = copy.copy(self.lake)
        lake.at = LakeVersion(lake.at.version, {**lake.at.tables, **self._versions})
        return lake

    def commit(self, committed_at: dt.datetime, batch: StreamBatch | None = None) -> int:
        """Make all that was written visible at once; returns the new version of the lake.

        Runs that wrote other tables meanwhile do not matter: what they committed stays.
        """
        if self._looking is not None:
            self._looking.join()
        of_stream = (None, None) if batch is None else (batch.checkpoint, batch.number)
        for _ in range(_COMMITS_TRIED):
            at = LakeVersion(self.lake.at.version + 1, {**self.lake.at.tables, **self._versions})
            values = (at.version, self.run_id, self.what, self.broker, at.tables, committed_at, *of_stream, TABLES_VERSION)
            row = dict(zip(LAKE_VERSION.names, values, strict=True))
            if (delta_at := self._committed(row)) is not None:
                self.lake.committed(at, delta_at)
                if at.version % COMPACTED_EVERY == 0:
                    self._compact_versions()
                return at.version
            newest = self.lake.newest()
            if any(newest.tables.get(name) != self.lake.at.tables.get(name) for name in self._versions):
                break
            self.lake.at = newest
        raise self._not_alone()

    def _compact_versions(self) -> None:
        """Join the rows of lake_version, which all runs read first, into one file."""
        with suppress(*_CONCURRENT):  # another run commits, and the next one that is due does this
            self.spark.sql(f"OPTIMIZE {delta(self.lake.path(LAKE_VERSION.name))}")

    def _committed(self, row: dict[str, Any]) -> int | None:
        """The Delta version that has the row; None where another run's row has its version of the lake."""
        path, rows = self.lake.path(LAKE_VERSION.name), pa.Table.from_pylist([row], arrow_schema(LAKE_VERSION))
        before = delta_version(path)
        if before is None:
            self._create_versions(path)
            before = delta_version(path) or 0
        try:
            if self._commits_here(LAKE_VERSION):
                append_files(path, before, self._written_files(LAKE_VERSION, rows), self._named, (_VERSIONS, row["version"]))
            else:
                write = self._write(self.spark.createDataFrame(rows), LAKE_VERSION, "append").option("mergeSchema", "true")
                write.option("txnAppId", _VERSIONS).option("txnVersion", row["version"]).save(path)
        except (CommitConflictError, *_CONCURRENT):
            return None
        versions = range(delta_version(path) or 0, before, -1)
        return next((version for version in versions if run_of(path, version) == self.run_id), None)

    def _create_versions(self, path: str) -> None:
        """Create lake_version where no other run has created it meanwhile."""
        with self._alone():
            if reads_without_spark(path):
                create_table(LAKE_VERSION, path, {}, (), self._named, found="kept")
            else:
                self.spark.sql(create_empty(LAKE_VERSION, path))

    @property
    def _named(self) -> str:
        """What a commit of the run says of it."""
        return json.dumps({"runId": self.run_id, "what": self.what, "brokerName": self.broker})

    def _write(self, rows: DataFrame, table: Table, mode: str) -> DataFrameWriter:
        return rows.select(*table.names).write.format("delta").mode(mode).option("userMetadata", self._named)

    @contextmanager
    def _commits_named(self) -> Iterator[None]:
        """Commits of statements, which take no options, name the run too: by a setting that all threads of the session share."""
        with _NAMING, set_meanwhile(self.spark, {_USER_METADATA: self._named}):
            yield

    def _create(self, table: Table, layout: Layout) -> None:
        """Create the table without rows, in the place of what a dead run left."""
        self._write_anew(table, arrow_schema(table).empty_table(), Placement(layout))

    def _write_anew(self, table: Table, rows: DataFrame | pa.Table, placement: Placement) -> None:
        """Create the table with some rows, in the place of what there is."""
        path = self.lake.path(table.name)
        with self._alone():
            if table.by_queue or not reads_without_spark(path):
                rows = self.spark.createDataFrame(rows) if isinstance(rows, pa.Table) else rows
                properties = properties_of(table, placement, {RUN_PROPERTY: self.run_id})
                # to replace a table, Delta asks for the files it has; that alone takes as long as to create one
                with self._view(table, rows) as view:
                    self.spark.sql(create_as(table, path, placement, properties, view, replace=not is_empty(path)))
            else:
                found: Found = "refused" if is_empty(path) else "replaced"
                files = self._written_files(table, rows)
                check_files(path, files)
                create_table(table, path, table_properties(table, placement), files, self._named, found=found)
        self._versions.pop(table.name, None)
        self._note(table)

    @contextmanager
    def _view(self, table: Table, rows: DataFrame) -> Iterator[str]:
        """A temporary view of rows with the table's columns, types and comments; yields its name."""
        columns = [F.col(one.name).cast(one.type).alias(one.name, metadata={"comment": one.comment}) for one in table.columns]
        name = f"{table.name}_of_{re.sub(r'[^0-9A-Za-z]', '_', self.run_id)}"
        rows.select(*columns).createOrReplaceTempView(name)
        try:
            yield name
        finally:
            self.spark.catalog.dropTempView(name)

    def _put_back(self, table: Table) -> None:
        """Undo what dead runs left in a committed table."""
        path, committed = self.lake.path(table.name), self.lake.at.tables[table.name]
        newest = delta_version(path)
        if newest is None:
            raise LakeError(f"{path}: expected the Delta table at version {committed} or later, found none")
        if newest != committed and restored_version(path, newest) != committed:
            with self._alone(), self._commits_named():
                self.spark.sql(f"RESTORE TABLE {delta(path)} TO VERSION AS OF {committed}")
            newest += 1
            if restored_version(path, newest) != committed:
                raise self._not_alone()
        self._versions[table.name] = newest

    def _unname_folders(self, table: Table, placement: Placement) -> None:
        properties = properties_of(table, placement, {RUN_PROPERTY: self.run_id})
        with self._alone():
            self.spark.sql(f"ALTER TABLE {delta(self.lake.path(table.name))} SET TBLPROPERTIES ({properties})")
        self._note(table)

    def _note(self, table: Table) -> None:
        """Remember the version just written: the next one where it builds on a known one, or the same where nothing changed."""
        path, base = self.lake.path(table.name), self._versions.get(table.name)
        newest = delta_version(path)
        if newest is None or newest != base:
            versions = range(-1 if newest is None else newest, -1 if base is None else base, -1)
            newest = next((version for version in versions if run_of(path, version) == self.run_id), None)
            if newest is None or (base is not None and newest != base + 1):
                raise self._not_alone()
        self._versions[table.name] = newest

    def _not_alone(self) -> NotAloneError:
        return NotAloneError(
            f"{self.lake.root}: expected no other run to write to the lake since its version {self.lake.at.version}, found one; "
            "nothing of this run is visible, start it again when the other one has ended"
        )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            yield
        except (CommitConflictError, *_CONCURRENT) as error:
            raise self._not_alone() from error
        except AnalysisException as error:
            if error.getCondition() in _CREATED_MEANWHILE:
                raise self._not_alone() from error
            raise


def _file_writer(table: Table, folder: str) -> FileWriter:
    """What writes files of a table into its folder, with the statistics that its log gets."""
    schema = arrow_schema(table)
    plain = (field.name for field in schema if not (pa.types.is_nested(field.type) or pa.types.is_binary(field.type)))
    return FileWriter(folder, schema, table.stats or tuple(plain), columns_without_dictionary())
