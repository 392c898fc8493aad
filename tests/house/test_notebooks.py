"""The notebooks run from the first cell to the last, and show figures."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.runs.sampling import slow_proof
from tests.truth.captured import unpack
from tests.truth.golden import needs_golden
from tests.truth.places import PROJECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Names = dict[str, Any]
NOTEBOOKS = PROJECT / "notebooks"


def has_changed_answers(names: Names, printed: str) -> None:
    assert "NULL" not in printed.splitlines()[-2], "the last cell shows numbers"
    assert names["changed"].count() > 0


def needs_fewer_pulls_with_larger_caps(names: Names, _printed: str) -> None:
    assert names["caps"] == [4, 8, 16, 32]
    assert max(names["messages"]) < 1.02 * min(names["messages"]), "all read to the same end; the last pull may reach over it"
    assert names["pulls"] == sorted(names["pulls"], reverse=True)
    assert names["pulls"][0] > names["pulls"][-1]


def finds_that_the_consumers_are_slow(names: Names, _printed: str) -> None:
    paces = names["paces"]
    assert (names["TOPIC"], names["QUEUE"]) == ("ticks", 0)
    assert 15 < paces["messagesAPull"] <= 16
    assert paces["answerMillis"] < 5 < 300 < paces["pauseMillis"]
    assert 0 < names["changed"].first()[0] < 60


def answers_what_happens_next(names: Names, _printed: str) -> None:
    quick, slow = names["caught_up"].values()
    assert quick == sorted(quick, reverse=True)
    assert slow == sorted(slow, reverse=True)
    assert slow[0] > quick[0]
    alone = names["found"]["80 ms, one in a hundred fails"][0]
    assert slow[0] > alone["succeeded"] / 25 - 10, "two threads of 80 ms are 25 messages a second, and nobody minds the last ten"
    assert alone["sentBack"] > 0
    (probe,) = (row for row in names["lost"] if (row["consumerGroup"], row["topic"]) == ("g-probe", "orders"))
    assert probe["next"] > 0
    # the log's files were written to until 2026-11-21 10:36; 72 hours later the next hour of deleteWhen is 04:00
    assert names["at"] == 1_000 * int(dt.datetime(2026, 11, 25, 4, tzinfo=dt.UTC).timestamp())


CHECKS: dict[str, Callable[[Names, str], None]] = {
    "lag_and_answers": has_changed_answers,
    "batch_caps": needs_fewer_pulls_with_larger_caps,
    "incident": finds_that_the_consumers_are_slow,
    "what_next": answers_what_happens_next,
}
MARKS = {"batch_caps": [slow_proof], "what_next": [slow_proof], "incident": [slow_proof, needs_golden]}


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, [])) for name in CHECKS])
def test_every_cell_runs(
    name: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "incident":
        monkeypatch.setenv("PULLSIM_CAPTURE", str(unpack("json", tmp_path, store=True)))
    notebook = NOTEBOOKS / f"{name}.ipynb"
    cells = [cell for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    names: Names = {}
    for number, cell in enumerate(cells):
        exec(compile("".join(cell["source"]), f"{notebook.name}, cell {number}", "exec"), names)  # noqa: S102
    assert names["spark"] is spark
    CHECKS[name](names, capsys.readouterr().out)


def test_every_notebook_is_checked() -> None:
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == CHECKS.keys()
