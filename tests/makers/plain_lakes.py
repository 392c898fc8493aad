"""Makes lakes with deltalake, without Spark: rows of tables, committed by a row of lake_version."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from pipeline.schema.arrow_types import arrow_schema
from pipeline.schema.tables import LAKE_VERSION, TABLES, TABLES_VERSION, Table

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
Row = Mapping[str, Any]


def plain_lake(root: Path, found: Mapping[str, Sequence[Row]], *, tables_version: int = TABLES_VERSION, version: int = 1) -> Path:
    """A lake with rows of tables, by name; columns that a row lacks are NULL. Tables by queue are partitioned.

    Rows of a `version` after the first are added to those that are there.
    """
    for name, rows in found.items():
        add_rows(root, TABLES[name], rows)
    versions = {name: DeltaTable(str(root / name)).version() for name in found}
    row = {"version": version, "runId": "run", "what": "import", "brokerName": "b", "tables": list(versions.items()), "committedAt": NOON}
    add_rows(root, LAKE_VERSION, [row | {"tablesVersion": tables_version}])
    return root


def add_rows(root: Path, table: Table, rows: Sequence[Row]) -> None:
    """Append rows to a table; a lake sees them once lake_version names the new version."""
    schema = arrow_schema(table)
    data = pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema)
    write_deltalake(str(root / table.name), data, mode="append", partition_by=["topic", "queueId"] if table.by_queue else None)
