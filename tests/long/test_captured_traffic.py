"""Golden captures replayed from the stores that their brokers left, compared with what an analysis inside the broker's process found."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.runs.in_session import Pullsim, pullsim_in
from tests.truth.captured import CAPTURES, unpack
from tests.truth.golden import needs_golden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


def differing(out: str, kind: str) -> tuple[int, int]:
    """(how many, of how many) differ: of the line for pulls answered at once or held."""
    found = re.search(rf"^{kind}: (\d+) of (\d+) differ", out, re.MULTILINE)
    return (int(found[1]), int(found[2])) if found else (0, 0)


@pytest.mark.parametrize("name", CAPTURES or [pytest.param("none", marks=needs_golden)])
def test_captured_pulls_are_answered_as_the_broker_did(name: str, pullsim: Pullsim, tmp_path: Path) -> None:
    folder, lake = unpack(name, tmp_path, store=True), tmp_path / "lake"
    analysis: dict[str, Any] = json.loads((folder / "analysis.json").read_text("utf-8"))
    assert pullsim("import", folder / "store", "--lake", lake, "--properties", folder / "broker.conf")[0] == 0
    assert pullsim("capture", folder / "traffic.pcap", "--lake", lake)[0] == 0

    code, out, _ = pullsim("replay", "--lake", lake, "--compare", "--at", "recorded-max")
    races = len(analysis["recorded_max_but_different"])
    assert (code, out.splitlines()[-1].split(", ")[1]) == (1 if races else 0, f"{races} differ")
    assert out.count("between the broker's look at maxOffset and its look at the entries") == min(races, 1)

    _, out, _ = pullsim("replay", "--lake", lake, "--compare", "--at", "request-time", "--filters", "TAG")
    cuts = analysis["full_answer_TAG_equal_by_cut"]
    for kind, told in (("answered at once", cuts["stamp<=request_ms"]["immediate"]), ("held", cuts["stamp<=response_ms"]["held"])):
        differ, whole = differing(out, kind)
        # the analysis knew which pulls were held, and compared no maxOffset; we take some in a thousand for the other
        assert abs(differ - told["different"]) <= 30, kind
        assert whole <= told["different"] + told["equal"] + 250, kind
