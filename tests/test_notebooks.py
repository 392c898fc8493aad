"""The notebooks run from the first cell to the last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_runs(notebook: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    cells = [cell for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    names: dict[str, Any] = {}
    for number, cell in enumerate(cells):
        exec(compile("".join(cell["source"]), f"{notebook.name}, cell {number}", "exec"), names)  # noqa: S102
    assert names["spark"] is spark
    assert "NULL" not in capsys.readouterr().out.splitlines()[-2], "the last cell shows numbers"
    assert names["changed"].count() > 0


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS
