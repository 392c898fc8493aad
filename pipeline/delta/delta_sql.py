"""SQL statements that create a Delta table at a path, with its comments, layout and properties, or merge rows into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.schema.tables import PARTITION_COLUMNS, Layout, Table


@dataclass(frozen=True, slots=True)
class Placement:
    """How the files of a table by queue are laid out.

    Attributes:
        layout: partitioned or clustered.
        named_folders: whether a partition's folder has the partition's name; if not, folders have short random names.
    """

    layout: Layout = "clustered"
    named_folders: bool = True


def quoted(name: str) -> str:
    """A name or path as a quoted SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A text as a string literal of Spark's SQL, which has escapes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def delta(path: str) -> str:
    """The SQL name of the Delta table at a path."""
    return f"delta.{quoted(path)}"


def partition_columns(table: Table, placement: Placement) -> tuple[str, ...]:
    """The partition columns of a table with a placement."""
    return PARTITION_COLUMNS if table.by_queue and placement.layout == "partitioned" else ()


def table_properties(table: Table, placement: Placement) -> dict[str, str]:
    """The Delta table properties of a table with a placement."""
    properties = {"delta.enableDeletionVectors": "false"}
    if table.by_queue and not placement.named_folders:
        properties["delta.randomizeFilePrefixes"] = "true"
    if table.stats:
        partitions = partition_columns(table, placement)
        properties["delta.dataSkippingStatsColumns"] = ",".join(name for name in table.stats if name not in partitions)
    return properties


def properties_of(table: Table, placement: Placement, more: Mapping[str, str]) -> str:
    """The properties of a table and further properties, as an SQL list for TBLPROPERTIES."""
    properties = {**table_properties(table, placement), **more}
    return ", ".join(f"{literal(name)} = {literal(value)}" for name, value in properties.items())


def create_as(table: Table, path: str, placement: Placement, properties: str, view: str, *, replace: bool) -> str:
    """The statement that creates the table with the rows of a view; with `replace`, it replaces an existing table.

    The view has the table's columns, types and comments; `properties` is a text of `properties_of`.
    """
    parts = (
        f"CREATE {'OR REPLACE ' if replace else ''}TABLE {delta(path)} USING delta",
        _laid_out(table, placement),
        f"COMMENT {literal(table.comment)} TBLPROPERTIES ({properties})",
        f"AS TABLE {view}",
    )
    return " ".join(parts)


def create_empty(table: Table, path: str) -> str:
    """The statement that creates the table without rows, unless it exists."""
    columns = ", ".join(f"{quoted(column.name)} {column.type} COMMENT {literal(column.comment)}" for column in table.columns)
    return f"CREATE TABLE IF NOT EXISTS {delta(path)} ({columns}) USING delta COMMENT {literal(table.comment)}"


def merge_into(table: Table, path: str, view: str, keys: Sequence[str], *, all_of: str | None) -> str:
    """The statement that merges the rows of a view into the table.

    A row of the view replaces the table's row with the same keys, if they differ; other rows of the view are added.

    Args:
        table: columns and their names.
        path: folder of the table.
        view: name of the view.
        keys: names of the key columns.
        all_of: name of a broker; rows of this broker that are not in the view are deleted. None deletes no rows.
    """
    same = " AND ".join(f"t.{quoted(key)} <=> s.{quoted(key)}" for key in keys)
    differs = " OR ".join(f"NOT t.{quoted(name)} <=> s.{quoted(name)}" for name in table.names if name not in keys)
    parts = (
        f"MERGE INTO {delta(path)} t USING {view} s ON {same}",
        f"WHEN MATCHED AND ({differs}) THEN UPDATE SET *",
        "WHEN NOT MATCHED THEN INSERT *",
        "" if all_of is None else f"WHEN NOT MATCHED BY SOURCE AND t.brokerName = {literal(all_of)} THEN DELETE",
    )
    return " ".join(parts)


def _laid_out(table: Table, placement: Placement) -> str:
    if not table.by_queue:
        return ""
    if partitions := partition_columns(table, placement):
        return f"PARTITIONED BY ({', '.join(partitions)})"
    return f"CLUSTER BY ({', '.join(table.cluster_by)})"
