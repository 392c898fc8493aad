"""What runs left in a lake, to be compared with what other runs left: all rows, without what differs between runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.schema.tables import PULL_RESPONSE, REPLAY_RUN
from tests.makers.lakes import file_rows, live_files
from tests.runs.killed_streams import lake_versions

# columns that differ between runs that do the same
_OF_RUNS = ("brokerName", "runId", "observedAt")


def left_rows(lake: Path, *, without: Collection[str] = ()) -> dict[str, dict[str, list[str]]]:
    """broker -> table -> the rows that readers see, as sorted texts; without replay_run, which has the times of runs.

    `without` names further columns to leave out, as `table.column`.
    """
    found: dict[str, dict[str, list[str]]] = {}
    tables = dict(lake_versions(lake)[-1]["tables"])
    for name in tables:
        if name == REPLAY_RUN.name:
            continue
        for row in _rows(lake, name, tables):
            kept = {column: value for column, value in row.items() if f"{name}.{column}" not in without}
            found.setdefault(row["brokerName"], {}).setdefault(name, []).append(_text(kept))
    return {broker: {name: sorted(rows) for name, rows in tables.items()} for broker, tables in found.items()}


def answers_by_run(lake: Path) -> dict[str, list[str]]:
    """runId -> the answers that readers see, as sorted texts; a run without answers has none."""
    tables = dict(lake_versions(lake)[-1]["tables"])
    found: dict[str, list[str]] = {row["runId"]: [] for row in _rows(lake, REPLAY_RUN.name, tables)}
    for row in _rows(lake, PULL_RESPONSE.name, tables):
        found[row["runId"]].append(_text(row))
    return {run: sorted(rows) for run, rows in found.items()}


def _rows(lake: Path, name: str, tables: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    for add in live_files(lake / name, tables[name]).values():
        yield from file_rows(lake / name, add)


def _text(row: Mapping[str, Any]) -> str:
    return repr(sorted((column, value) for column, value in row.items() if column not in _OF_RUNS))
