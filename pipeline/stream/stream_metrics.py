"""Lines and metrics about a stream and its batches."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from prometheus_client.core import Metric

from pipeline.serving.metrics import RunMetrics, metric
from pipeline.settings.quantities import counted
from pipeline.stream.stream_run import StreamRun

# a phase that took fewer seconds is not named in the line of a batch
_NAMED_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """Figures of a finished batch.

    Attributes:
        number: number of the batch.
        started: when it was started.
        rows_read: rows read, as Spark counts them.
        answered: number of answered requests.
        bad: number of rows in bad_request.
        durations: seconds of each phase, under Spark's names.
    """

    number: int
    started: dt.datetime
    rows_read: int
    answered: int
    bad: int
    durations: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class WaitingFiles:
    """Files in the folder of requests that are in no finished batch: their number, bytes, and the age of the oldest in seconds."""

    files: int
    bytes: int
    seconds: float


@dataclass(slots=True, kw_only=True)
class StreamState:
    """State of a stream since its start.

    Attributes:
        run: the run of the checkpoint.
        started: when the stream was started.
        ended: when it ended; None while it runs.
        failed: whether an error ended it.
        last: the last batch; None before the first one.
        waiting_files: as of the last look into the folder; None if this is not known.
        batches: number of batches.
        rows_read, answered, bad, durations: sums over all batches.
    """

    run: StreamRun
    started: dt.datetime
    ended: dt.datetime | None = None
    failed: bool = False
    last: BatchReport | None = None
    waiting_files: WaitingFiles | None = None
    batches: int = 0
    rows_read: int = 0
    answered: int = 0
    bad: int = 0
    durations: dict[str, float] = field(default_factory=dict)

    def add(self, batch: BatchReport) -> None:
        """Add the figures of a batch to the sums."""
        self.last = batch
        self.batches += 1
        self.rows_read += batch.rows_read
        self.answered += batch.answered
        self.bad += batch.bad
        for phase, seconds in batch.durations.items():
            self.durations[phase] = self.durations.get(phase, 0.0) + seconds


def batch_line(batch: BatchReport, waits: str) -> str:
    """The line about a finished batch; `waits` is the text of `waiting`."""
    phases = sorted(batch.durations.items(), key=lambda phase: -phase[1])
    took = ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in phases if seconds >= _NAMED_SECONDS)
    bad = f", {counted(batch.bad, 'bad one')} in bad_request" if batch.bad else ""
    done = f"batch {batch.number}: {counted(batch.answered, 'request')} answered{bad}, {counted(batch.rows_read, 'row')} read"
    return "; ".join(filter(None, (done, waits, took)))


def waiting(left: WaitingFiles | None) -> str:
    """The text about the files that wait; `left` is None if they are not known."""
    if left is None:
        return "what waits is not known"
    if not left.files:
        return "no file waits"
    size = counted(left.bytes, "byte")
    return f"{counted(left.files, 'file')} of {size} {'waits' if left.files == 1 else 'wait'}, the oldest for {left.seconds:.0f} s"


def stream_families(state: StreamState, now: dt.datetime) -> list[Metric]:
    """The metrics of a stream at `now`; all have the label run_id, so that several streams can write to one folder."""
    run = {"run_id": state.run.run_id}
    of_run = run | {"broker": state.run.broker, "requests": state.run.source, "at": state.run.at}

    def phases(name: str, text: str, durations: Mapping[str, float], kind: Literal["counter", "gauge"]) -> Metric:
        series = ((run | {"phase": phase}, round(seconds, 3)) for phase, seconds in sorted(durations.items()))
        return metric(kind, f"pullsim_stream_{name}", text, series)

    made = RunMetrics(what="stream", labels=run)
    one, last, waits = made.one, state.last, state.waiting_files
    return [
        metric("gauge", "pullsim_stream_info", "The run of the stream, its broker and its requests.", ((of_run, 1),)),
        *made.course(now, started=state.started, ended=state.ended, failed=state.failed),
        one("batches_total", "Batches since the start.", state.batches, "counter"),
        one("rows_read_total", "Rows read since the start, as Spark counts them.", state.rows_read, "counter"),
        one("requests_answered_total", "Requests answered since the start.", state.answered, "counter"),
        one("requests_bad_total", "Rows of bad_request since the start.", state.bad, "counter"),
        phases("duration_seconds_total", "Time that each phase of the batches took since the start.", state.durations, "counter"),
        one("last_batch_number", "Number of the last batch.", last.number if last else None),
        one("last_batch_start_time_seconds", "When the last batch was begun.", last.started.timestamp() if last else None),
        one("last_batch_rows_read", "Rows read in the last batch.", last.rows_read if last else None),
        one("last_batch_requests_answered", "Requests answered in the last batch.", last.answered if last else None),
        one("last_batch_requests_bad", "Rows of bad_request of the last batch.", last.bad if last else None),
        phases("last_batch_duration_seconds", "Time that each phase of the last batch took.", last.durations if last else {}, "gauge"),
        one("behind_files", "Files that wait in the folder of requests.", waits.files if waits else None),
        one("behind_bytes", "Bytes of the files that wait.", waits.bytes if waits else None),
        one("behind_seconds", "Age of the oldest file that waits; 0 where none does.", waits.seconds if waits else None),
    ]
