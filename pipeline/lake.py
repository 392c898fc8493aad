"""A lake: the Delta tables under one directory, and the one commit point over all of them.

Delta commits table by table. A run writes its tables and then appends one row to `lake_version`, which says at which Delta version each
table is to be read. Readers resolve every table through the last such row, so a run that died is invisible; the next run that writes
puts such tables back first.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow.fs as pafs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.store_files import is_uri, local_path
from pipeline.tables import LAKE_VERSION, PARTITION_COLUMNS, TABLES, Layout, Table

# a partition's folder is named by its escaped value, and names end at 255 bytes
_LONGEST_FOLDER_VALUE = 240


class LakeError(ValueError):
    """The directory is no lake, or the lake does not hold what was asked for."""


def quoted(path: str) -> str:
    """A path as an identifier of SQL."""
    return "`" + path.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A text as a string literal of SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def delta_version(path: str) -> int | None:
    """Newest version of the Delta table at `path`, None where there is none.

    The names of a table's log say it; asking Spark (DESCRIBE HISTORY) reads every commit and takes a job for each table.
    """
    if is_uri(path):
        filesystem, inside = pafs.FileSystem.from_uri(path)
    else:
        filesystem, inside = pafs.LocalFileSystem(), local_path(path)
    found = filesystem.get_file_info(pafs.FileSelector(f"{inside}/_delta_log", allow_not_found=True))
    versions = [int(name[:20]) for name in (info.base_name for info in found) if name.endswith(".json") and name[:20].isdigit()]
    return max(versions, default=None)


@dataclass(frozen=True, slots=True)
class LakeVersion:
    """One commit of the lake; version 0 is the empty lake."""

    version: int = 0
    tables: Mapping[str, int] = field(default_factory=dict)


class Lake:
    """The tables under `root`, read at one version of the lake."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.spark = spark
        self.root = (root if is_uri(root) else local_path(root)).rstrip("/")
        self.at = self.newest()

    def path(self, name: str) -> str:
        """Where the table is."""
        return f"{self.root}/{name}"

    def newest(self) -> LakeVersion:
        """The last committed version."""
        if delta_version(self.path(LAKE_VERSION.name)) is None:
            return LakeVersion()
        rows = self.spark.read.format("delta").load(self.path(LAKE_VERSION.name))
        row = rows.orderBy(F.col("version").desc()).first()
        return LakeVersion() if row is None else LakeVersion(row["version"], row["tables"])

    def require(self) -> Lake:
        """This lake, if anything was ever committed to it."""
        if self.at.version == 0:
            raise LakeError(
                f"{self.root}: expected a lake, found no table lake_version; fill it with `pullsim import STORE --lake {self.root}`"
            )
        return self

    def table(self, table: Table) -> DataFrame:
        """The table as of this version; empty where it was never written."""
        version = self.at.tables.get(table.name)
        if version is None:
            return self.spark.createDataFrame([], table.schema)
        return self.spark.read.format("delta").option("versionAsOf", version).load(self.path(table.name))

    def brokers(self) -> list[str]:
        """Names of the brokers in the lake, sorted."""
        rows = self.table(TABLES["broker"]).select("brokerName").orderBy("brokerName").collect()
        return [row["brokerName"] for row in rows]

    def broker(self, name: str | None) -> str:
        """The broker meant by --broker, or the only one."""
        names = self.brokers()
        if name is None and len(names) == 1:
            return names[0]
        listed = ", ".join(map(repr, names)) or "none"
        if name is None:
            raise LakeError(f"{self.root} holds {len(names)} brokers ({listed}); say which one with --broker")
        if name not in names:
            raise LakeError(f"{self.root}: expected broker {name!r}, found {listed}")
        return name

    def create_view(self, table: Table) -> None:
        """The table as a temporary view of its own name."""
        self.table(table).createOrReplaceTempView(table.name)


class LakeWriter:
    """One run that writes to a lake: clears what a dead run left, writes tables, and commits them together."""

    def __init__(self, lake: Lake, *, run_id: str, what: str, broker: str) -> None:
        self.lake = lake
        self.spark = lake.spark
        self.run_id, self.what, self.broker = run_id, what, broker
        self._written: dict[str, int] = {}
        self._layout: Layout = "clustered"

    def prepare(self, table: Table, layout: Layout, *, topics_escaped: int = 0) -> None:
        """Have the table at its last committed state, creating it where it was never committed.

        Args:
            table: which.
            layout: how a table by queue is laid out when it is created.
            topics_escaped: longest topic in bytes once escaped for a folder's name.
        """
        self._layout = layout
        path = self.lake.path(table.name)
        committed = self.lake.at.tables.get(table.name)
        newest = delta_version(path)
        if committed is None or newest is None:
            self.spark.sql(_ddl(table, path, layout, topics_escaped))
        elif newest != committed:
            self.spark.sql(f"RESTORE TABLE delta.{quoted(path)} TO VERSION AS OF {committed}")

    def replace_broker(self, table: Table, rows: DataFrame) -> None:
        """Put `rows` in the place of all that the table holds of the broker."""
        writer = rows.select(*table.names).write.format("delta").mode("overwrite").option("userMetadata", self._metadata())
        if any(name != self.broker for name in self._others(table)):
            writer = writer.option("replaceWhere", f"brokerName = {literal(self.broker)}")
        path = self.lake.path(table.name)
        writer.save(path)
        if table.by_queue and self._layout == "clustered":  # an overwrite drops the clustering
            self.spark.sql(f"ALTER TABLE delta.{quoted(path)} CLUSTER BY ({', '.join(table.cluster_by)})")
        self._note(table)

    def append(self, table: Table, rows: DataFrame) -> None:
        """Add rows to a table."""
        rows.select(*table.names).write.format("delta").mode("append").option("userMetadata", self._metadata()).save(
            self.lake.path(table.name)
        )
        self._note(table)

    def _others(self, table: Table) -> Iterable[str]:
        return () if table.name not in self.lake.at.tables else self.lake.brokers()

    def _metadata(self) -> str:
        return json.dumps({"runId": self.run_id, "what": self.what, "brokerName": self.broker})

    def _note(self, table: Table) -> None:
        version = delta_version(self.lake.path(table.name))
        if version is None:
            raise LakeError(f"{self.lake.path(table.name)}: expected the Delta table just written, found none")
        self._written[table.name] = version

    def written(self, table: Table) -> DataFrame:
        """A table as this run wrote it."""
        path = self.lake.path(table.name)
        return self.spark.read.format("delta").option("versionAsOf", self._written[table.name]).load(path)

    def commit(self, committed_at: dt.datetime) -> int:
        """Make all that was written visible at once; returns the new version of the lake.

        Raises:
            LakeError: another run committed in the meantime; nothing of this one is visible.
        """
        path = self.lake.path(LAKE_VERSION.name)
        if delta_version(path) is None:
            self.spark.sql(_ddl(LAKE_VERSION, path, "clustered", 0))
        version = self.lake.at.version + 1
        tables = {**self.lake.at.tables, **self._written}
        row = (version, self.run_id, self.what, self.broker, tables, committed_at)
        rows = self.spark.createDataFrame([row], LAKE_VERSION.schema)
        rows.createOrReplaceTempView("_lake_version_row")
        self.spark.sql(
            f"MERGE INTO delta.{quoted(path)} t USING _lake_version_row s ON t.version = s.version WHEN NOT MATCHED THEN INSERT *"
        )
        self.spark.catalog.dropTempView("_lake_version_row")
        newest = self.lake.spark.read.format("delta").load(path).where(F.col("version") == version).first()
        if newest is None or newest["runId"] != self.run_id:
            raise LakeError(f"{self.lake.root}: another run committed version {version} while this one was writing; run it again")
        self.lake.at = LakeVersion(version, tables)
        return version


def _ddl(table: Table, path: str, layout: Layout, topics_escaped: int) -> str:
    columns = ", ".join(f"`{column.name}` {column.type} COMMENT {literal(column.comment)}" for column in table.columns)
    laid_out = ""
    properties = {"delta.enableDeletionVectors": "false"}
    if table.by_queue and layout == "partitioned":
        laid_out = f"PARTITIONED BY ({', '.join(PARTITION_COLUMNS)})"
        if topics_escaped > _LONGEST_FOLDER_VALUE:
            properties["delta.randomizeFilePrefixes"] = "true"
    elif table.by_queue and layout == "clustered":
        laid_out = f"CLUSTER BY ({', '.join(table.cluster_by)})"
    if table.stats:
        partitions = PARTITION_COLUMNS if laid_out.startswith("PARTITIONED") else ()
        properties["delta.dataSkippingStatsColumns"] = ",".join(name for name in table.stats if name not in partitions)
    listed = ", ".join(f"{literal(key)} = {literal(value)}" for key, value in properties.items())
    return (
        f"CREATE OR REPLACE TABLE delta.{quoted(path)} ({columns}) USING delta {laid_out} "
        f"COMMENT {literal(table.comment)} TBLPROPERTIES ({listed})"
    )
