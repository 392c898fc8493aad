"""The report of a stream: counts and times of its batches, the requests that wait in its folder, and its end."""

from __future__ import annotations

import datetime as dt
import json
import os
import threading
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.core import Metric
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.listener import QueryStartedEvent, QueryTerminatedEvent, StreamingQueryProgress

from pipeline.files.output_file import OutputError
from pipeline.lag.lag_metrics import LagMetrics
from pipeline.lake.lake import LakeError
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.serving.metrics import metrics_text
from pipeline.stream import lag_watch
from pipeline.stream import report as module
from pipeline.stream.batch_work import StoppedError
from pipeline.stream.report import StreamReport, report_of
from pipeline.stream.request_log import RequestLog, list_requests
from pipeline.stream.stream_job import wait_for_end
from pipeline.stream.stream_metrics import BatchReport, StreamState, WaitingFiles, batch_line, stream_families, waiting
from pipeline.stream.stream_run import StreamRun
from tests.runs.prometheus import parse, series
from tests.runs.replaying import NOON, write_lines

QUERY = uuid.UUID(int=7)
FILE = '{"request": {"group": "g", "topic": "t", "queueId": 0, "offset": 1, "maxMsgNums": 1, "filter": null}}'


def run_in(folder: Path) -> StreamRun:
    return StreamRun(
        run_id="r1", checkpoint="c1", lake=str(folder / "lake"), broker="b", source=str(folder / "in"), at="snapshot", settings={}
    )


def progress_of(number: int, rows: int, entry: int, durations: dict[str, int], query: uuid.UUID = QUERY) -> Any:
    told = {
        "id": str(QUERY),
        "runId": str(query),
        "name": "c1",
        "timestamp": "2024-01-01T11:59:58.500Z",
        "batchId": number,
        "batchDuration": 0,
        "durationMs": durations,
        "stateOperators": [],
        "sources": [
            {
                "description": "d",
                "startOffset": None,
                "endOffset": json.dumps({"entry": entry}),
                "latestOffset": None,
                "numInputRows": rows,
                "inputRowsPerSecond": 0.0,
                "processedRowsPerSecond": 0.0,
            }
        ],
        "sink": {"description": "d", "numOutputRows": -1},
        "numInputRows": rows,
        "inputRowsPerSecond": 0.0,
        "processedRowsPerSecond": 0.0,
        "observedMetrics": {},
    }
    return SimpleNamespace(progress=StreamingQueryProgress.fromJson(told))


class Told:
    """The report of a stream whose events are made here, and the lines and metrics that it gave."""

    def __init__(self, folder: Path, *, metrics: bool = True) -> None:
        self.lines: list[str] = []
        self.texts: list[str] = []
        self.counts: dict[int, tuple[int, int]] = {}
        self.is_disk_full = False
        (folder / "in").mkdir()
        self.planner = RequestLog(str(folder / "log"))
        self.report: StreamReport = report_of(
            None,  # type: ignore[arg-type] # there is no lake to ask
            run_in(folder),
            RequestLog(str(folder / "log")),
            self.counts,
            progress=self.lines.append,
            now=lambda: NOON,
            publish=self.publish if metrics else None,
        )
        started = QueryStartedEvent(QUERY, QUERY, "c1", "", set())
        self.report.listener.onQueryStarted(started)
        self.report.listener.onQueryStarted(QueryStartedEvent(QUERY, uuid.UUID(int=8), "c2", "", set()))

    def publish(self, metrics: Sequence[Metric]) -> None:
        if self.is_disk_full:
            raise OutputError("m.prom: the disk is full")
        self.texts.append(metrics_text(metrics))

    def metric(self, name: str) -> dict[tuple[str, ...], float]:
        return series(parse(self.texts[-1])[f"pullsim_stream_{name}"])


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


def put(folder: Path, name: str, age: float) -> int:
    """Write a file of requests that is `age` seconds old; returns its length."""
    path = folder / name
    path.write_text(f'{FILE}\n{{"name": "{name}"}}\n')
    stamp = int((NOON.timestamp() - age) * 1e9)
    os.utime(path, ns=(stamp, stamp))
    return path.stat().st_size


def test_what_waits_is_what_no_ended_batch_has(told: Told, tmp_path: Path) -> None:
    sizes = [put(tmp_path / "in", f"{number}.jsonl", age) for number, age in enumerate((30, 20, 10))]
    found = list_requests(str(tmp_path / "in"))
    assert [told.planner.plan(found, 1) for _ in range(2)] == [1, 2], "the second batch is planned, not done"
    told.counts[0] = (1, 1)
    told.report.listener.onQueryProgress(progress_of(0, 2, 1, {"triggerExecution": 1500, "addBatch": 1200, "walCommit": 3}))
    told.report.report_events()
    assert told.lines[0] == (
        f"batch 0: 1 request answered, 1 bad one in bad_request, 2 rows read; 2 files of {sum(sizes[1:]):,} bytes wait, the oldest "
        "for 20 s; triggerExecution 1.5 s, addBatch 1.2 s"
    )
    assert [told.metric(f"behind_{what}") for what in ("files", "bytes", "seconds")] == [{(): 2}, {(): sum(sizes[1:])}, {(): 20}]
    assert told.counts == {}

    told.counts |= {1: (1, 0), 2: (1, 0)}
    assert told.planner.plan(found, 1) == 3
    for number in (1, 2):
        told.report.listener.onQueryProgress(progress_of(number, 2, number + 1, {"triggerExecution": 50}))
    told.report.report_events()
    assert told.lines[-1] == "batch 2: 1 request answered, 2 rows read; no file waits"
    assert [told.metric(f"behind_{what}") for what in ("files", "bytes", "seconds")] == [{(): 0}] * 3
    assert len(told.texts) == 3, "after each batch"

    put(tmp_path / "in", "new.jsonl", -5)  # a clock may be ahead
    told.report.listener.onQueryIdle(SimpleNamespace(runId=QUERY))  # type: ignore[arg-type]
    told.report.report_events()
    assert [told.metric(f"behind_{what}") for what in ("files", "seconds")] == [{(): 1}, {(): 0}]
    assert told.metric("batches_total") == {(): 3}


def test_other_queries_of_the_session_are_not_told(told: Told) -> None:
    other = uuid.UUID(int=8)
    told.report.listener.onQueryProgress(progress_of(0, 2, 1, {}, other))
    told.report.listener.onQueryIdle(SimpleNamespace(runId=other))  # type: ignore[arg-type]
    told.report.listener.onQueryTerminated(QueryTerminatedEvent(other, other, None, None))
    assert told.report.listener.events.empty()


@pytest.mark.parametrize("failed", [False, True])
def test_the_last_batch_and_the_end_are_told(told: Told, failed: bool) -> None:
    told.report.begin()
    assert (told.metric("running"), told.metric("failed")) == ({(): 1}, {(): 0})
    assert "pullsim_stream_end_time_seconds" not in told.texts[-1]
    told.counts[0] = (5, 0)
    told.report.listener.onQueryProgress(progress_of(0, 5, 0, {}))
    told.report.listener.onQueryTerminated(QueryTerminatedEvent(QUERY, QUERY, None, None))
    told.report.end(failed=failed)
    assert (told.metric("running"), told.metric("failed")) == ({(): 0}, {(): int(failed)})
    assert told.metric("requests_answered_total") == {(): 5}
    assert told.metric("end_time_seconds") == {(): NOON.timestamp()}


def test_an_end_that_spark_does_not_tell_is_not_waited_for_forever(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LAST_WORD_SECONDS", 0.01)
    told.report.end(failed=True)
    assert told.lines == ["Spark did not say that the stream ended"]
    assert told.metric("running") == {(): 0}


def test_the_end_is_told_where_nobody_reads_the_log_any_more(told: Told) -> None:
    def gone(_line: str) -> None:
        raise BrokenPipeError

    told.report.progress = gone
    told.report.listener.onQueryProgress(progress_of(0, 5, 0, {}))
    with pytest.raises(BrokenPipeError):
        told.report.end(failed=True)
    assert (told.metric("running"), told.metric("failed"), told.metric("batches_total")) == ({(): 0}, {(): 1}, {(): 1})


def test_what_cannot_be_told_ends_no_stream_and_is_said_once(told: Told, tmp_path: Path) -> None:
    told.is_disk_full = True
    with pytest.raises(OutputError):
        told.report.begin()
    told.is_disk_full = False
    told.report.begin()
    told.is_disk_full = True
    os.rmdir(tmp_path / "in")
    for _ in range(2):
        told.report.listener.onQueryIdle(SimpleNamespace(runId=QUERY))  # type: ignore[arg-type]
        told.report.report_events()
    assert [line.split(":")[0] for line in told.lines] == [
        "what waits cannot be told",
        "metrics",
        "consumer lag cannot be told",
    ]
    assert told.report.state.waiting_files is None


def test_lag_is_asked_again_where_an_import_changed_a_table(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    versions = {"commit_log": 3, "queue": 3, "pull_response": 1}

    class FakeLake:
        def __init__(self, *_: Any) -> None:
            self.at = SimpleNamespace(tables=dict(versions))

        def require(self) -> FakeLake:
            return self

    def fake_metrics(_ask: object, clusters: dict[str, str]) -> LagMetrics:
        asked.extend(f"{broker} {cluster}" for broker, cluster in clusters.items())
        if len(asked) == 3:
            raise LakeError("another run writes")
        return LagMetrics((), 12, 0)

    monkeypatch.setattr(lag_watch, "Lake", FakeLake)
    monkeypatch.setattr(OpenedBroker, "properties", lambda _broker: {"brokerClusterName": "c9"})
    monkeypatch.setattr(lag_watch, "asking", lambda lake: lake)
    monkeypatch.setattr(lag_watch, "lag_metrics", fake_metrics)

    def idle() -> int:
        told.report.listener.onQueryIdle(SimpleNamespace(runId=QUERY))  # type: ignore[arg-type]
        told.report.report_events()
        return len(asked)

    assert [idle(), idle()] == [1, 1]
    versions["pull_response"] = 2
    assert idle() == 1, "answers change no lag"
    versions["queue"] = 4
    assert idle() == 2
    versions["queue"] = 5
    assert [idle(), idle()] == [3, 4], "it is tried again"
    assert asked == ["b c9"] * 4
    left_out = parse(told.texts[-1])["pullsim_lag_left_out"]
    assert series(left_out, "run_id", "of") == {("r1", "groups"): 12, ("r1", "topics"): 0}
    assert told.lines[0] == "the metrics leave out 12 pairs of group and topic, 0 topics: they hold 1,000 and 1,000"
    assert "consumer lag cannot be told: another run writes" in told.lines


def test_the_metrics_of_two_batches_by_hand(tmp_path: Path) -> None:
    state = StreamState(run=run_in(tmp_path), started=NOON - dt.timedelta(seconds=60))
    for number, (rows, answered, bad) in enumerate([(10, 8, 2), (5, 5, 0)]):
        durations = {"addBatch": 0.5, "triggerExecution": 0.75 + number}
        started = NOON - dt.timedelta(seconds=9 - number)
        state.add(BatchReport(number=number, started=started, rows_read=rows, answered=answered, bad=bad, durations=durations))
    state.waiting_files = WaitingFiles(3, 400, 2.5)
    text = metrics_text(stream_families(state, NOON))
    found = {name.removeprefix("pullsim_stream_"): metric for name, metric in parse(text).items()}
    assert {name: metric.type for name, metric in found.items() if metric.type == "counter"} == dict.fromkeys(
        ["batches_total", "rows_read_total", "requests_answered_total", "requests_bad_total", "duration_seconds_total"], "counter"
    )
    noon = NOON.timestamp()
    assert {name: series(metric, "run_id")["r1",] for name, metric in found.items() if "duration" not in name} == {
        "info": 1,
        "running": 1,
        "failed": 0,
        "start_time_seconds": noon - 60,
        "report_time_seconds": noon,
        "batches_total": 2,
        "rows_read_total": 15,
        "requests_answered_total": 13,
        "requests_bad_total": 2,
        "last_batch_number": 1,
        "last_batch_start_time_seconds": noon - 8,
        "last_batch_rows_read": 5,
        "last_batch_requests_answered": 5,
        "last_batch_requests_bad": 0,
        "behind_files": 3,
        "behind_bytes": 400,
        "behind_seconds": 2.5,
    }
    assert series(found["duration_seconds_total"], "phase") == {("addBatch",): 1.0, ("triggerExecution",): 2.5}
    assert series(found["last_batch_duration_seconds"], "phase") == {("addBatch",): 0.5, ("triggerExecution",): 1.75}
    assert series(found["info"], "broker", "requests", "at") == {("b", str(tmp_path / "in"), "snapshot"): 1}


def test_a_line_says_where_what_waits_is_not_known() -> None:
    batch = BatchReport(number=4, started=NOON, rows_read=1234, answered=1234, bad=0, durations={"addBatch": 2.04})
    assert batch_line(batch, waiting(None)) == "batch 4: 1,234 requests answered, 1,234 rows read; what waits is not known; addBatch 2.0 s"


def test_a_log_is_followed_entry_by_entry(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{}])
    planner, follower = RequestLog(str(tmp_path / "log")), RequestLog(str(tmp_path / "log"))
    found = list_requests(str(tmp_path / "."))
    assert follower.new_of(found) == found
    planner.plan(found, 10)
    follower.follow(1)
    assert follower.new_of(found) == []
    follower.follow(0)
    assert follower.newest == 1


class FakeQuery:
    """A query that ends after some checks whether it ended, with an error or without."""

    def __init__(self, looks: int, error: Exception | None = None) -> None:
        self.looks, self.error, self.stopped = looks, error, False

    def awaitTermination(self, _seconds: float) -> bool:
        self.looks -= 1
        if (self.looks <= 0 or self.stopped) and self.error:
            raise self.error
        return self.looks <= 0 or self.stopped

    def stop(self) -> None:
        self.stopped = True


def ended(query: FakeQuery, *, failed: Exception | None = None, stop: bool = False, working: bool = False) -> list[object]:
    """The calls of a report while a query comes to its end."""
    told: list[object] = []
    event = threading.Event()
    if stop:
        event.set()
    report = SimpleNamespace(report_events=lambda: told.append("tell"), end=lambda *, failed: told.append(failed))
    try:
        wait_for_end(query, SimpleNamespace(stop=event, failed=failed, working=working), report)  # type: ignore[arg-type]
    except Exception as error:
        told.append(error)
    return told


def test_how_a_stream_ended_is_told() -> None:
    gone = StreamingQueryException("gone")
    ours = LakeError("another run writes")
    assert ended(FakeQuery(3)) == ["tell", "tell", False]
    assert ended(FakeQuery(2, gone)) == ["tell", True, gone]
    assert ended(FakeQuery(2, gone), failed=ours) == ["tell", True, ours]
    assert ended(FakeQuery(2, gone), failed=StoppedError()) == ["tell", False]
    lost = ConnectionError("no engine")
    assert ended(FakeQuery(1, lost)) == [True, lost]


def test_a_query_is_stopped_between_two_batches() -> None:
    assert ended(FakeQuery(9), stop=True) == ["tell", False]
    assert ended(FakeQuery(3), stop=True, working=True) == ["tell", "tell", False]
