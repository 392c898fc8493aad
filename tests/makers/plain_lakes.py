"""Makes lakes with deltalake, without Spark: rows of tables, committed by a row of lake_version.

A write by Spark takes seconds, and a test writes many tables.
"""

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

    With a `version` after 1, the rows are added to those that the lake has.
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


def replace_rows(root: Path, broker: str, found: Mapping[Table, Sequence[Row]], *, run_id: str, what: str = "import") -> int:
    """Replace the rows of a broker in tables by `found`, as one run of `what`; returns the lake's version.

    A column that a row lacks is NULL. A table that Spark clustered cannot be written.
    """
    from pipeline.delta.delta_sql import Placement, partition_columns, table_properties
    from pipeline.delta.table_commits import create_table
    from pipeline.lake.lake import Lake

    at = Lake(None, str(root)).at
    for table, rows in found.items():
        path = str(root / table.name)
        if table.name in at.tables:
            quoted = broker.replace("'", "''")
            DeltaTable(path).delete(f"brokerName = '{quoted}'")
        else:  # as a command creates it, with comments
            layout = Placement("partitioned", named_folders=True)
            create_table(
                table, path, table_properties(table, layout), (), "{}", found="refused", partitioned_by=partition_columns(table, layout)
            )
        add_rows(root, table, [{"brokerName": broker, **row} for row in rows])
    versions = {**at.tables, **{table.name: DeltaTable(str(root / table.name)).version() for table in found}}
    row = {"version": at.version + 1, "runId": run_id, "what": what, "brokerName": broker, "tables": list(versions.items())}
    add_rows(root, LAKE_VERSION, [row | {"committedAt": NOON, "tablesVersion": TABLES_VERSION}])
    return at.version + 1


def add_broker(root: Path, broker: str, other: Path) -> None:
    """Add a broker to a lake: all rows that it has in another lake."""
    from pipeline.lake.lake import Lake

    of_other = Lake(None, str(other)).at.tables
    found = {TABLES[name]: _rows_of(other / name, version) for name, version in of_other.items()}
    replace_rows(root, broker, found, run_id=f"import of {broker}")


def _rows_of(path: Path, version: int) -> list[dict[str, Any]]:
    from tests.makers.lakes import file_rows, live_files

    rows = [row for add in live_files(path, version).values() for row in file_rows(path, add)]
    return [row | ({"queueId": int(row["queueId"])} if isinstance(row.get("queueId"), str) else {}) for row in rows]
