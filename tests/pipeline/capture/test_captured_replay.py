"""Golden captures replayed from the stores that their brokers left, compared with an analysis made inside the broker's process."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pipeline.capture import captured_answers
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.tasks.work import NoSessionError
from pullsim import open as open_lake
from tests.runs.in_session import ON_SPARK, Pullsim, pullsim_in
from tests.runs.sampling import sampled, slow_proof
from tests.truth.captured import CAPTURES, unpack
from tests.truth.golden import needs_golden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
# the driver answers; Spark answers with the options ON_SPARK
ENGINES = [pytest.param([], id="driver"), pytest.param(ON_SPARK, id="Spark", marks=slow_proof)]


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


def differing(out: str, kind: str) -> tuple[int, int]:
    """(differing pulls, all pulls) of the line for `kind`: pulls answered at once, or held; (0, 0) without such a line."""
    found = re.search(rf"^{kind}: (\d+) of (\d+) differ", out, re.MULTILINE)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def captured(name: str, pullsim: Pullsim, tmp_path: Path) -> tuple[Path, Path]:
    """The folder of a capture, and a lake that has its store and its traffic."""
    folder, lake = unpack(name, tmp_path, store=True), tmp_path / "lake"
    assert pullsim("import", folder / "store", "--lake", lake, "--properties", folder / "broker.conf")[0] == 0
    assert pullsim("capture", folder / "traffic.pcap", "--lake", lake)[0] == 0
    return folder, lake


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", sampled(CAPTURES, 1) or [pytest.param("none", marks=needs_golden)])
def test_captured_pulls_are_answered_as_the_broker_did(name: str, engine: list[str], pullsim: Pullsim, tmp_path: Path) -> None:
    folder, lake = captured(name, pullsim, tmp_path)
    analysis: dict[str, Any] = json.loads((folder / "analysis.json").read_text("utf-8"))

    code, out, _ = pullsim("replay", "--lake", lake, "--compare", "--at", "recorded-max", *engine)
    races = len(analysis["recorded_max_but_different"])
    assert (code, out.splitlines()[-1].split(", ")[1]) == (1 if races else 0, f"{races} differ")
    assert out.count("between the broker's look at maxOffset and its look at the entries") == min(races, 1)

    _, out, _ = pullsim("replay", "--lake", lake, "--compare", "--at", "request-time", "--filters", "TAG", *engine)
    cuts = analysis["full_answer_TAG_equal_by_cut"]
    for kind, told in (("answered at once", cuts["stamp<=request_ms"]["immediate"]), ("held", cuts["stamp<=response_ms"]["held"])):
        differ, whole = differing(out, kind)
        # the analysis knew which pulls were held, and compared no maxOffset; we take some in a thousand for the other
        assert abs(differ - told["different"]) <= 30, kind
        assert whole <= told["different"] + told["equal"] + 250, kind


@needs_golden
def test_long_answers_are_left_to_spark(pullsim: Pullsim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, lake = captured(CAPTURES[0], pullsim, tmp_path)
    broker = OpenedBroker.of(None, str(lake), None)
    entries = pa.chunked_array([[[{"physicOffset": 0, "size": 60}, {"physicOffset": 60, "size": 50}], [{"physicOffset": 0, "size": 60}]]])
    monkeypatch.setattr(captured_answers, "_MOST_BYTES", 110)
    assert len(captured_answers.body_sha256_here(broker, entries)) == 2
    monkeypatch.setattr(captured_answers, "_MOST_BYTES", 109)
    with pytest.raises(NoSessionError, match="the messages of all answers have more than 0 MiB"):
        captured_answers.body_sha256_here(broker, entries)


@slow_proof
@needs_golden
@pytest.mark.parametrize("name", CAPTURES)
@pytest.mark.parametrize("at", ["snapshot", "request-time", "recorded-max"])
def test_driver_and_spark_write_the_same_answers(name: str, at: str, pullsim: Pullsim, tmp_path: Path) -> None:
    _, lake = captured(name, pullsim, tmp_path)
    for engine, out in (([], "here"), (ON_SPARK, "spark")):
        code, _, err = pullsim("replay", "--lake", lake, "--at", at, "--out", tmp_path / out, *engine)
        assert code == 0, err
        assert pullsim("replay", "--lake", lake, "--at", at, *engine)[0] == 0
    assert (tmp_path / "here").read_bytes() == (tmp_path / "spark").read_bytes()
    rows = open_lake(lake).sql("SELECT * FROM pull_response").arrow()
    runs = [
        rows.filter(pc.field("runId") == run).drop_columns(["runId"]).sort_by("requestId") for run in rows["runId"].unique().to_pylist()
    ]
    assert len(runs) == 2
    assert runs[0].equals(runs[1])
    assert len(runs[0]) > 1000


@slow_proof
@needs_golden
@pytest.mark.parametrize("name", CAPTURES)
def test_driver_and_spark_write_the_same_requests(name: str, pullsim: Pullsim, tmp_path: Path) -> None:
    _, lake = captured(name, pullsim, tmp_path)
    told = [pullsim("requests", "--lake", lake, "--out", tmp_path / out, *engine) for engine, out in (([], "here"), (ON_SPARK, "spark"))]
    assert [code for code, _, _ in told] == [0, 0]
    assert told[0][1].replace("/here;", "/spark;") == told[1][1]
    assert (tmp_path / "here").read_bytes() == (tmp_path / "spark").read_bytes()
