"""What a stream does, as it does it: a line a batch in the log, and metrics where they are asked for.

Rule: Spark tells a listener of each batch in a thread of its own; the thread that waits for the stream's end takes it from there and tells
it. What cannot be told ends no stream.
"""

from __future__ import annotations

import datetime as dt
import json
import queue
from collections.abc import Callable
from dataclasses import dataclass, field

from prometheus_client.core import Metric
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from pipeline.files.output_file import OutputError
from pipeline.lag.metrics import Publish
from pipeline.stream.lag_watch import LagWatch, LagWatchError
from pipeline.stream.query_listener import ENDED, Event, QueryListener
from pipeline.stream.request_log import RequestLog, list_requests
from pipeline.stream.stream_metrics import BatchReport, StreamState, WaitingFiles, batch_line, stream_families, waiting
from pipeline.stream.stream_run import StreamRun

# how long Spark may take to tell of a query's last batch and of its end
_LAST_WORD_SECONDS = 10.0


@dataclass(slots=True, kw_only=True)
class StreamReport:
    """Tells of the stream of one checkpoint.

    Attributes:
        state: what is known of the stream.
        lag: how far the groups of its broker are behind.
        log: its request log, read by this alone, up to the last batch that is told; None where it reads no folder.
        counts: requests answered and bad ones of each batch by its number; those of a batch that is told are taken out.
        progress: told of each batch.
        now: the wall clock.
        publish: takes the metrics; None where none are asked for.
    """

    state: StreamState
    lag: LagWatch
    log: RequestLog | None
    counts: dict[int, tuple[int, int]]
    progress: Callable[[str], None]
    now: Callable[[], dt.datetime]
    publish: Publish | None
    listener: QueryListener = field(init=False)
    _trouble: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.listener = QueryListener(self.state.run.checkpoint)

    def begin(self) -> None:
        """Say that the stream runs.

        Raises:
            OutputError: the metrics cannot be put where they belong.
        """
        if self.publish is not None:
            self.publish(self._metrics())

    def tell(self) -> None:
        """Tell what came since the last call."""
        while not self.listener.events.empty():
            self._take(self.listener.events.get())
            self._publish()
            if self._look_at_lag():
                self._publish()

    def end(self, *, failed: bool) -> None:
        """Tell what is left, and that the stream ended: the latter even where the engine is gone, and the log with it."""
        try:
            self._take_rest()
        finally:
            self.state.ended, self.state.failed = self.now(), failed
            self._publish()
        if not failed and self._look_at_lag():  # else there may be no engine to ask
            self._publish()

    def _take_rest(self) -> None:
        event: Event | None = None
        try:
            while event != ENDED:
                event = self.listener.events.get(timeout=_LAST_WORD_SECONDS)
                self._take(event)
        except queue.Empty:
            self.progress("Spark did not say that the stream ended")

    def _take(self, event: Event) -> None:
        if not isinstance(event, StreamingQueryProgress):
            if self.log is not None:
                self._look_at_folder(self.log, self.log.newest)
            return
        batch = batch_of(event, *self.counts.pop(event.batchId, (0, 0)))
        self.state.add(batch)
        if self.log is not None:
            self._look_at_folder(self.log, json.loads(event.sources[0].endOffset)["entry"])
            self.progress(batch_line(batch, waiting(self.state.waiting_files)))
        elif batch.answered:  # the lake has commits that are no captures
            self.progress(batch_line(batch, ""))

    def _look_at_folder(self, log: RequestLog, read_until: int) -> None:
        """Find what waits behind the entry of the last batch."""
        try:
            log.follow(read_until)
            left = log.new_of(list_requests(self.state.run.source))
        except OSError as error:
            self.state.waiting_files = None
            self._cannot_tell("what waits", error)
            return
        oldest = min((file.mtime_ns / 1e9 for file in left), default=None)
        waits = 0.0 if oldest is None else max(0.0, self.now().timestamp() - oldest)
        self.state.waiting_files = WaitingFiles(len(left), sum(file.length for file in left), round(waits, 3))

    def _publish(self) -> None:
        if self.publish is not None:
            try:
                self.publish(self._metrics())
            except OutputError as error:
                self._cannot_tell("metrics", error)

    def _cannot_tell(self, what: str, error: Exception) -> None:
        """Say once that something cannot be told."""
        if what not in self._trouble:
            self._trouble.add(what)
            self.progress(f"{what} cannot be told: {error}")

    def _look_at_lag(self) -> bool:
        """Whether how far groups are behind is another than before; never where no metrics are asked for."""
        try:
            return self.publish is not None and self.lag.look()
        except LagWatchError as error:
            self._cannot_tell("how far groups are behind", error)
            return False

    def _metrics(self) -> list[Metric]:
        return [*stream_families(self.state, self.now()), *self.lag.families()]


def report_of(
    spark: SparkSession,
    run: StreamRun,
    log: RequestLog | None,
    counts: dict[int, tuple[int, int]],
    *,
    progress: Callable[[str], None],
    now: Callable[[], dt.datetime],
    publish: Publish | None,
) -> StreamReport:
    """What tells of a stream that is about to start."""
    state, lag = StreamState(run=run, started=now()), LagWatch(spark, run, progress)
    return StreamReport(state=state, lag=lag, log=log, counts=counts, progress=progress, now=now, publish=publish)


def batch_of(progress: StreamingQueryProgress, answered: int, bad: int) -> BatchReport:
    """A batch as Spark tells of it, and what was found in it."""
    return BatchReport(
        number=progress.batchId,
        started=dt.datetime.fromisoformat(progress.timestamp),
        rows_read=progress.numInputRows,
        answered=answered,
        bad=bad,
        durations={phase: millis / 1000 for phase, millis in progress.durationMs.items()},
    )
