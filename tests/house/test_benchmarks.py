"""The benchmarks, without their times: what a figure is, which measures run, and that all peers give the same answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from benchmarks import __main__ as suite
from benchmarks.figures import Figure, Peer, held_against, markdown_of
from benchmarks.made.pulls import PULLS, PulledStore
from benchmarks.made.synthetic_store import TOPIC_PREFIX, Shape, write_store
from benchmarks.measures import engines
from benchmarks.peers import real_broker
from benchmarks.stand import Stand
from tests.runs.sampling import slow_proof
from tests.truth.oracle import load, needs_oracle
from tests.truth.places import PROJECT

KEYS = {"name", "value", "unit", "peer", "ratio", "target"}


def fake(stand: Stand) -> list[Figure]:
    return held_against("frames", [float(stand.scale)], "MB/s", target="1")


def test_a_figure_is_the_median_of_its_runs_and_has_a_ratio_to_each_peer_that_was_measured() -> None:
    peers = (Peer("A", "the first", 8.0), Peer("B", "the second", "it is missing", "ratio > 1"), Peer("C", "the third", 1.0, "ratio 1"))
    figures = held_against("x", [5.0, 2.0, 4.0], "s", *peers, target="3 s")
    assert [(one.name, one.value, one.runs, one.ratio, one.peer, one.target) for one in figures] == [
        ("x", 4.0, (5.0, 2.0, 4.0), 0.5, "the first: 8", "3 s"),
        ("x against B", 4.0, (5.0, 2.0, 4.0), None, "the second: not measured: it is missing", "ratio > 1"),
        ("x against C", 4.0, (5.0, 2.0, 4.0), 4.0, "the third: 1", "ratio 1"),
    ]
    alone = held_against("x", [1234.5], "s")
    assert [(one.name, one.value, one.peer, one.ratio) for one in alone] == [("x", 1234.5, "", None)]
    assert markdown_of(figures[:1] + alone).splitlines()[2:] == [
        "| x | 4 | 2 to 5 | s | the first: 8 | 0.5 | 3 s |",
        "| x | 1,234 |  | s |  |  |  |",
    ]


def test_the_files_that_measures_read_are_there() -> None:
    assert engines._TRAFFIC.is_file()
    assert real_broker._SOURCE.is_file()
    assert PROJECT.parent / "shared" / "oracle" == real_broker.ORACLE


@pytest.mark.parametrize(
    ("only", "names"),
    [
        (None, list(suite.NAMES)),
        ("import", ["import"]),
        ("import memory", ["import"]),
        ("lag against DuckDB", ["lag"]),
        ("replay", [pulls.name for pulls in PULLS]),
        ("replay TAG", ["replay TAG 1 in 10", "replay TAG none"]),
        ("replay random against the real store", ["replay random"]),
        ("replay request-time TAG 1 in 10 memory", ["replay request-time TAG 1 in 10"]),
    ],
)
def test_only_chooses_measures_by_how_their_names_or_those_of_their_figures_begin(only: str | None, names: list[str]) -> None:
    assert suite.chosen(only) == names


def test_a_measure_alone_runs_alone_and_its_figures_are_written_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in suite.MEASURES:
        monkeypatch.setitem(suite.MEASURES, name, fake if name == "frames" else pytest.fail)
    monkeypatch.setattr(suite, "measure_replays", pytest.fail)
    monkeypatch.setattr("benchmarks.stand.build_session", pytest.fail)
    out = tmp_path / "figures.json"
    ran = CliRunner().invoke(suite.main, ["--quick", "--only", "frames", "--json", str(out)])
    assert (ran.exit_code, "frames: done" in ran.stderr, "frames" in ran.stdout) == (0, True, True), ran.output
    figures = json.loads(out.read_text("utf-8"))
    assert [(one["name"], one["value"], one["ratio"]) for one in figures] == [("frames", 10.0, None)]
    assert set(figures[0]) >= KEYS


@pytest.mark.parametrize("arguments", [["--only", "nothing"], ["--only", "frames", "--json", "none/there/f.json"]])
def test_what_cannot_be_run_or_written_is_refused_before_anything_runs(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "measured", pytest.fail)
    ran = CliRunner().invoke(suite.main, arguments)
    assert (ran.exit_code, "expected" in ran.stderr) == (2, True)


def test_without_the_real_broker_the_figures_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_broker, "ORACLE", tmp_path / "none")
    found = real_broker.real_answers(PulledStore(Stand(tmp_path, 1)), PULLS[:2])
    missing = "the folder shared/oracle beside the project is missing"
    assert {name: (one.of_store, one.of_broker, one.given) for name, one in found.items()} == {
        pulls.name: (missing, missing, None) for pulls in PULLS[:2]
    }


def test_a_shape_knows_how_many_messages_were_stored_by_a_time() -> None:
    shape = Shape(messages=130, log_file_bytes=4096)
    stamps = 1_700_000_000_000 + np.arange(130) // 50 + 1
    times = np.arange(1_700_000_000_000, 1_700_000_000_006)
    assert shape.stored_by(times).tolist() == [(stamps <= time).sum() for time in times]


@pytest.mark.parametrize("body_bytes", [pytest.param(size, marks=[*needs_oracle(), slow_proof]) for size in (1024, 8)])
def test_the_real_broker_loads_the_store_that_is_measured(body_bytes: int, tmp_path: Path) -> None:
    shape = Shape(messages=3000, topics=2, queues=3, body_bytes=body_bytes, log_file_bytes=70_001, queue_file_entries=150)
    write_store(tmp_path / "store", shape)
    config = {"mappedFileSizeCommitLog": 70_001, "mappedFileSizeConsumeQueue": 3000}
    told = load(tmp_path / "store", config, tmp_path / "load.json")
    assert (told["loaded"], told["started"], told["messagesDispatchedAgain"], told["undecodable"]) == (True, "ok", 0, 0)
    assert told["messages"] == 3000
    ours = [one for one in told["queues"] if one["topic"].startswith(TOPIC_PREFIX)]
    assert [(one["min"], one["max"], one["read"]) for one in ours] == [(0, 500, 500)] * 6


@slow_proof
def test_all_measures_run_on_tiny_sizes_and_no_two_figures_have_one_name(spark: SparkSession, tmp_path: Path) -> None:
    figures: list[dict[str, Any]] = [
        figure.as_dict() for figure in suite.measured(Stand(tmp_path, 1000, repeats=1, spark=spark), suite.chosen(None))
    ]
    names = [figure["name"] for figure in figures]
    assert len(set(names)) == len(names)
    assert {name for name in suite.NAMES if not any(found.startswith(name) for found in names)} == set()
    assert all(set(figure) >= KEYS for figure in figures)
    assert [figure["name"] for figure in figures if figure["peer"] and figure["ratio"] is None] == []
