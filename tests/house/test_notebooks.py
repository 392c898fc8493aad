"""The notebooks run from the first cell to the last, on what comes with pullsim and on a capture.

The outputs that they carry are those of their cells, and their figures are shown in Jupyter.
"""

from __future__ import annotations

import ast
import base64
import datetime as dt
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import pytest
from matplotlib import pyplot as plt

from tests.runs.sampling import slow_proof
from tests.truth.captured import unpack
from tests.truth.golden import needs_golden
from tests.truth.places import PROJECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Names = dict[str, Any]
Cell = dict[str, Any]
# runs a notebook with other values of its parameters: what each cell printed, the text of its last expression; the names at the end
RunCells = Callable[[str, Names], tuple[list[tuple[str, str | None]], Names]]
NOTEBOOKS = PROJECT / "notebooks"
PNG = b"\x89PNG\r\n\x1a\n"


def has_changed_answers(names: Names) -> None:
    assert not names["changed"].empty
    assert (names["changed"]["after"] <= names["VALUE"]).all()


def has_pulls(names: Names) -> None:
    assert min(names["pulls"]) > 0


def needs_fewer_pulls_with_larger_caps(names: Names) -> None:
    assert max(names["messages"]) < 1.02 * min(names["messages"]), "all read to the same end; the last pull may reach over it"
    assert names["pulls"] == sorted(names["pulls"], reverse=True)
    assert names["pulls"][0] > names["pulls"][-1]


def finds_that_the_consumers_ask_at_once(names: Names) -> None:
    pace = names["pace"]
    assert (names["GROUP"], names["TOPIC"], names["QUEUE"]) == ("g-first", "ledger", 1)
    assert (pace["pulls"], pace["messagesAPull"]) == (1, 261 - 77), "its first pull, from the first message that is left to the end"
    assert pace["answerMillis"] < 5
    assert names["slower"] == "the consumers ask again at once"


def finds_that_the_consumers_are_slow(names: Names) -> None:
    pace = names["pace"]
    assert (names["TOPIC"], names["QUEUE"]) == ("ticks", 0)
    assert 15 < pace["messagesAPull"] <= 16
    assert pace["answerMillis"] < 5 < 300 < pace["pauseMillis"]
    assert 0 < names["seconds_to_catch_up"] < 60
    assert names["slower"] == "the consumers are slow"


def tells_who_catches_up(names: Names) -> None:
    assert names["caught_up"]


def answers_what_happens_next(names: Names) -> None:
    assert (names["GROUP"], names["TOPIC"]) == ("g-probe", "orders")
    quick, slow = names["caught_up"].values()
    assert quick == sorted(quick, reverse=True)
    assert slow == sorted(slow, reverse=True)
    assert slow[0] > quick[0]
    alone = names["found"]["80 ms, one in a hundred fails"][0]
    assert slow[0] > alone["succeeded"] / 25 - 10, "two threads of 80 ms are 25 messages a second, and nobody minds the last ten"
    assert alone["sentBack"] > 0
    # the log's files were last written at 2026-11-21 10:36; the first hour of deleteWhen, 04:00, more than 72 hours later is on the 25th
    probe = names["lost"]["g-probe", "orders"]
    assert probe["next"] > 0
    assert min(probe["at"]) == 1_000 * int(dt.datetime(2026, 11, 25, 4, tzinfo=dt.UTC).timestamp())


CHECKS: dict[str, Callable[[Names], None]] = {
    "lag_and_answers": has_changed_answers,
    "batch_caps": needs_fewer_pulls_with_larger_caps,
    "incident": finds_that_the_consumers_ask_at_once,
    "what_next": answers_what_happens_next,
}
MARKS = {"batch_caps": [slow_proof], "what_next": [slow_proof]}


def code_cells(name: str) -> list[Cell]:
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text("utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def text_of(outputs: list[Cell]) -> tuple[str, str | None]:
    """What a cell printed, and the text of its last expression."""
    printed = "".join("".join(one["text"]) for one in outputs if one["output_type"] == "stream")
    [*values] = ("".join(one["data"]["text/plain"]) for one in outputs if one["output_type"] == "execute_result")
    return printed, values[0] if values else None


@pytest.fixture
def run_cells(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[RunCells]:
    monkeypatch.delenv("DISPLAY", raising=False)
    mpl.use("agg")

    def run(name: str, parameters: Names) -> tuple[list[tuple[str, str | None]], Names]:
        names: Names = {}
        outputs = []
        for number, cell in enumerate(code_cells(name)):
            tree = ast.parse("".join(cell["source"]), f"{name}, cell {number}")
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            capsys.readouterr()
            exec(compile(tree, f"{name}, cell {number}", "exec"), names)  # noqa: S102 (our own notebook)
            value = None
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), f"{name}, cell {number}", "eval"), names)  # noqa: S307
            outputs.append((capsys.readouterr().out, None if value is None else repr(value)))
            if number == 0:
                assert parameters.keys() <= names.keys()
                names |= parameters
        return outputs, names

    yield run
    plt.close("all")


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, [])) for name in CHECKS])
@pytest.mark.usefixtures("spark")
def test_every_cell_gives_the_output_that_the_notebook_has(name: str, run_cells: RunCells) -> None:
    outputs, names = run_cells(name, {})
    CHECKS[name](names)
    assert [text_of(cell["outputs"]) for cell in code_cells(name)] == outputs, "python -m tests.makers.notebook_outputs stores them"


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("lag_and_answers", has_changed_answers),
        ("batch_caps", has_pulls),
        ("incident", finds_that_the_consumers_are_slow),
        ("what_next", tells_who_catches_up),
    ],
)
@slow_proof
@needs_golden
def test_a_notebook_runs_on_a_capture(
    name: str, check: Callable[[Names], None], spark: SparkSession, tmp_path: Path, run_cells: RunCells
) -> None:
    taken = unpack("json", tmp_path, store=True)
    parameters: Names = {"STORE": taken / "store", "PROPERTIES": taken / "broker.conf"}
    parameters |= {"TRAFFIC": taken / "traffic.pcap"} if name in {"batch_caps", "incident"} else {}
    parameters |= {"GROUP": "g-slow"} if name in {"incident", "what_next"} else {}
    _, names = run_cells(name, parameters)
    assert names["lake"].spark is spark
    check(names)


@pytest.mark.parametrize("name", CHECKS)
def test_a_notebook_carries_the_outputs_of_one_run(name: str) -> None:
    cells = code_cells(name)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert cells[0]["metadata"]["tags"] == ["parameters"]
    for cell in cells:
        kinds = [one["output_type"] for one in cell["outputs"]]
        assert "error" not in kinds
        assert all(one["name"] == "stdout" for one in cell["outputs"] if one["output_type"] == "stream")
        images = [base64.b64decode(one["data"]["image/png"]) for one in cell["outputs"] if "image/png" in one.get("data", {})]
        source = "".join(cell["source"])
        assert "Figure" not in source, "Jupyter shows a figure of pyplot, and of another one its name alone"
        assert len(images) == source.count("plt.show()")
        assert all(image.startswith(PNG) and len(image) > 5_000 for image in images)


def test_every_notebook_is_checked() -> None:
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == CHECKS.keys()
