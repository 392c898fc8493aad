"""What runs left in a lake, to be compared with what other runs left: all rows, without what differs between runs."""

from __future__ import annotations

from pathlib import Path

from pipeline.schema.tables import REPLAY_RUN
from tests.makers.lakes import file_rows, live_files
from tests.runs.killed_streams import lake_versions

# columns that differ between runs that do the same
_OF_RUNS = ("brokerName", "runId", "observedAt")


def left_rows(lake: Path) -> dict[str, dict[str, list[str]]]:
    """broker -> table -> the rows that readers see, as sorted texts; without replay_run, which has the times of runs."""
    found: dict[str, dict[str, list[str]]] = {}
    for name, version in dict(lake_versions(lake)[-1]["tables"]).items():
        if name == REPLAY_RUN.name:
            continue
        for add in live_files(lake / name, version).values():
            for row in file_rows(lake / name, add):
                text = repr(sorted((column, value) for column, value in row.items() if column not in _OF_RUNS))
                found.setdefault(row["brokerName"], {}).setdefault(name, []).append(text)
    return {broker: {name: sorted(rows) for name, rows in tables.items()} for broker, tables in found.items()}
