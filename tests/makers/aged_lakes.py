"""Makes lakes with files that were replaced long ago. Vacuum reads the times that are set here: of files, removals and lake versions."""

from __future__ import annotations

import datetime as dt
import os
import re
import time
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from pipeline.schema.arrow_types import arrow_schema
from pipeline.schema.tables import LAKE_VERSION
from pipeline.settings.settings import BrokerSettings
from tests.runs.importing import imported
from tests.runs.replaying import NOON

HOUR = 3600


def replaced_lake(lake: Path, store: Path) -> Path:
    """A lake with one store, imported twice: each table was replaced once."""
    for _ in range(2):
        import_here(lake, store)
    return lake


def import_here(lake: Path, store: Path, committed_at: dt.datetime = NOON) -> None:
    """Import a store with the driver alone, without Spark."""
    settings = BrokerSettings.from_sources()
    imported(None, lake, store, broker="b", layout=None, settings=settings, run_id="run", noon=committed_at, by_spark=False)


def age(lake: Path, hours: float) -> None:
    """Set the times of a lake's files to some hours ago, and the times of removals in its Delta logs back by as many hours."""
    for path in [path for path in lake.rglob("*") if path.is_file() and path.suffix != ".crc"]:
        if path.parent.name == "_delta_log" and path.suffix == ".json":
            older = re.sub(r'(?<="deletionTimestamp":)\d+', lambda found: str(int(found[0]) - int(hours * HOUR * 1000)), path.read_text())
            path.write_text(older)
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        age_file(path, hours)


def age_file(path: Path, hours: float) -> None:
    """Set the time of a file to some hours ago."""
    then = time.time() - hours * HOUR
    os.utime(path, (then, then))


def name_another_table(lake: Path, name: str) -> None:
    """Commit a version of a lake that names one more table, `name`, at version 1 of that table."""
    path = str(lake / LAKE_VERSION.name)
    newest = max(DeltaTable(path).to_pyarrow_table().to_pylist(), key=lambda row: row["version"])
    row = newest | {"version": newest["version"] + 1, "tables": [*newest["tables"], (name, 1)]}
    write_deltalake(path, pa.Table.from_pylist([row], schema=arrow_schema(LAKE_VERSION)), mode="append")
