"""The file with the figures of the scale measures: read and written."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from benchmarks.scale.cases import Row

FIGURES = Path("benchmarks/scale/figures.json")


def read_figures(path: Path) -> list[Row]:
    """The rows of a file of figures; none if there is no such file."""
    return [Row(**row) for row in json.loads(path.read_text("utf-8"))] if path.exists() else []


def write_figures(path: Path, rows: Iterable[Row]) -> None:
    """Write the file of figures with these rows."""
    path.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", "utf-8")
