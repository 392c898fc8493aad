"""Statements of SQL that define a Delta table at a path: names, comments, layout, properties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.schema.tables import PARTITION_COLUMNS, Layout, Table


@dataclass(frozen=True, slots=True)
class Placement:
    """How the files of a table by queue lie.

    Attributes:
        layout: partitioned or clustered.
        named_folders: the folder of a partition bears its name; else folders have short random names.
    """

    layout: Layout = "clustered"
    named_folders: bool = True


def quoted(name: str) -> str:
    """A name or path as an identifier of SQL."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A text as a string literal of SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def delta(path: str) -> str:
    """The Delta table at a path."""
    return f"delta.{quoted(path)}"


def table_properties(table: Table, placement: Placement) -> dict[str, str]:
    """The properties of a table."""
    properties = {"delta.enableDeletionVectors": "false"}
    if table.by_queue and not placement.named_folders:
        properties["delta.randomizeFilePrefixes"] = "true"
    if table.stats:
        partitions = PARTITION_COLUMNS if placement.layout == "partitioned" else ()
        properties["delta.dataSkippingStatsColumns"] = ",".join(name for name in table.stats if name not in partitions)
    return properties


def properties_of(table: Table, placement: Placement, more: Mapping[str, str]) -> str:
    """The properties of a table, and more, as a list for TBLPROPERTIES."""
    properties = {**table_properties(table, placement), **more}
    return ", ".join(f"{literal(name)} = {literal(value)}" for name, value in properties.items())


def create_as(table: Table, path: str, placement: Placement, properties: str, view: str, *, replace: bool) -> str:
    """Create the table, or replace what there is, with the rows of a view, which has its columns, types and comments."""
    parts = (
        f"CREATE {'OR REPLACE ' if replace else ''}TABLE {delta(path)} USING delta",
        _laid_out(table, placement),
        f"COMMENT {literal(table.comment)} TBLPROPERTIES ({properties})",
        f"AS TABLE {view}",
    )
    return " ".join(parts)


def create_empty(table: Table, path: str) -> str:
    """Create the table without rows where there is none."""
    columns = ", ".join(f"{quoted(column.name)} {column.type} COMMENT {literal(column.comment)}" for column in table.columns)
    return f"CREATE TABLE IF NOT EXISTS {delta(path)} ({columns}) USING delta COMMENT {literal(table.comment)}"


def merge_into(table: Table, path: str, view: str, keys: Sequence[str], *, all_of: str | None) -> str:
    """Put the rows of a view in the place of those with the same keys, and add the others; rows that stay as they are are not written.

    Rows of the broker `all_of` that the view does not have are deleted.
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
    if placement.layout == "partitioned":
        return f"PARTITIONED BY ({', '.join(PARTITION_COLUMNS)})"
    return f"CLUSTER BY ({', '.join(table.cluster_by)})"
