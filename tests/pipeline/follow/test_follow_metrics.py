"""The metrics of `pullsim import --follow`: of each batch, while it is idle, and at its end."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.files.output_file import OutputError
from pipeline.follow import follow_job
from pipeline.follow.follow_metrics import Followed, FollowedBatch, FollowReport
from pipeline.lake.lake_errors import LakeError
from pipeline.main import run
from pipeline.serving.metrics import metrics_text
from tests.runs.prometheus import Metric, parse, series
from tests.runs.replaying import NOON


class Told:
    """The report of a follower with a clock that the tests set, and the texts that the report published."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.now = NOON
        self.report = FollowReport(
            broker="b",
            store="/data/store",
            started=NOON - dt.timedelta(seconds=60),
            now=lambda: self.now,
            publish=lambda found: self.texts.append(metrics_text(found)),
        )

    @property
    def metrics(self) -> dict[str, Metric]:
        return {name.removeprefix("pullsim_follow_"): metric for name, metric in parse(self.texts[-1]).items()}

    @property
    def values(self) -> dict[str, float]:
        return {name: series(metric, "broker")["b",] for name, metric in self.metrics.items()}


def batch(number: int, messages: int, taken: int, *, seconds: float = 0.5, is_whole: bool = False) -> FollowedBatch:
    started = NOON - dt.timedelta(seconds=9 - number)
    return FollowedBatch(number=number, started=started, seconds=seconds, messages=messages, bytes=taken, is_whole=is_whole)


def test_the_metrics_of_two_batches_by_hand() -> None:
    told = Told()
    done = Followed(lake_version=3, log_end=1000)
    done = done.plus(batch(4, 10, 2000), lake_version=4, log_end=3000)
    told.report.report(done.plus(batch(5, 7, 900, seconds=1.23456, is_whole=True), lake_version=6, log_end=3900))
    counters = {"batches_total", "messages_total", "bytes_total", "whole_imports_total"}
    assert {name for name, metric in told.metrics.items() if metric.type == "counter"} == counters
    noon = NOON.timestamp()
    assert told.values == {
        "info": 1,
        "running": 1,
        "failed": 0,
        "start_time_seconds": noon - 60,
        "report_time_seconds": noon,
        "batches_total": 2,
        "messages_total": 17,
        "bytes_total": 2900,
        "whole_imports_total": 1,
        "last_batch_number": 5,
        "last_batch_start_time_seconds": noon - 4,
        "last_batch_duration_seconds": 1.235,
        "last_batch_messages": 7,
        "last_batch_bytes": 900,
        "lake_version": 6,
        "log_offset": 3900,
    }
    assert series(told.metrics["info"], "broker", "store") == {("b", "/data/store"): 1}


def test_before_the_first_import_nothing_is_known_of_the_lake() -> None:
    told = Told()
    told.report.report(Followed())
    assert set(told.values) & {"lake_version", "log_offset", "last_batch_number", "end_time_seconds"} == set()
    assert told.values["running"] == 1


def test_metrics_are_made_after_a_batch_and_each_ten_seconds() -> None:
    told = Told()
    done = Followed(lake_version=3, log_end=1000)
    for seconds, made in ((0, 1), (1, 1), (9.9, 1), (10, 2), (11, 2)):
        told.now = NOON + dt.timedelta(seconds=seconds)
        told.report.report(done)
        assert len(told.texts) == made, seconds
    told.report.report(done.plus(batch(0, 1, 100), lake_version=4, log_end=1100))
    assert (len(told.texts), told.values["log_offset"]) == (3, 1100)
    told.now = NOON - dt.timedelta(hours=1)  # a clock may be set back
    told.report.report(done.plus(batch(0, 1, 100), lake_version=4, log_end=1100))
    assert told.values["report_time_seconds"] == NOON.timestamp() - 3600


class FakeBatches(SimpleNamespace):
    """Batches that a fake query adds."""

    done = Followed()


def followed(told: Told, monkeypatch: pytest.MonkeyPatch, query: Any) -> Followed:
    """Follow a store that is in the lake already, with `query` in place of Spark's query; returns what was followed."""
    batches = FakeBatches()
    monkeypatch.setattr(follow_job, "_imported", lambda lake, *_: lake)
    monkeypatch.setattr(follow_job, "_started", lambda *_, **__: None)
    monkeypatch.setattr(follow_job, "until_ended", lambda _query, of, report: query(of, report))
    return follow_job.follow(None, batches, "c", None, told.report, once=True, trigger_seconds=1)  # type: ignore[arg-type]


def test_the_last_batch_and_the_end_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()

    def query(batches: FakeBatches, report: Any) -> None:
        report()
        batches.done = Followed(lake_version=3, log_end=10).plus(batch(0, 1, 90), lake_version=4, log_end=100)

    done = followed(told, monkeypatch, query)
    assert (done.log_end, told.values["log_offset"]) == (100, 100)
    assert [told.values[name] for name in ("running", "failed", "end_time_seconds")] == [0, 0, NOON.timestamp()]


def test_a_follow_that_fails_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()

    def query(_batches: FakeBatches, _report: Any) -> None:
        raise LakeError("another run writes")

    with pytest.raises(LakeError):
        followed(told, monkeypatch, query)
    assert [told.values[name] for name in ("running", "failed")] == [0, 1]
    assert len(told.texts) == 2, "at the start and at the end"


def test_metrics_that_cannot_be_published_at_the_start_end_the_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()

    def full(_metrics: object) -> None:
        raise OutputError("m.prom: the disk is full")

    told.report.publish = full
    with pytest.raises(OutputError):
        followed(told, monkeypatch, lambda *_: pytest.fail("it was started"))


def test_a_port_needs_a_follow_that_lasts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", str(tmp_path), "--lake", str(tmp_path / "lake"), "--follow", "--once", "--metrics", "9466"]) == 2
    said = "--metrics 9466: expected a file, found a port, which answers only while the command runs; leave out --once, or give a file"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("words", ["--metrics m.prom", "--checkpoint c", "--trigger 0", "--once"])
def test_options_of_a_follow_need_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["import", ".", "--lake", "lake", *words.split()]) == 2
    assert f"{words.split(maxsplit=1)[0]} cannot be used without --follow: " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
