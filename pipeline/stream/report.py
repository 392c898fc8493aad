"""Report on a running stream: one line for each batch in the log, and metrics if wanted.

Rule: Spark calls the listener in a thread of its own. The thread that waits for the end of the stream takes the events from there and
reports them. A report that fails does not end the stream.
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

from pipeline.serving.metrics import LastingPublish, Publish
from pipeline.stream.lag_watch import LagWatch, LagWatchError
from pipeline.stream.query_listener import ENDED, Event, QueryListener
from pipeline.stream.request_log import RequestLog, list_requests
from pipeline.stream.stream_metrics import BatchReport, StreamState, WaitingFiles, batch_line, stream_families, waiting
from pipeline.stream.stream_run import StreamRun

# seconds in which Spark must send the events of a query's last batch and of its end
_LAST_WORD_SECONDS = 10.0


@dataclass(slots=True, kw_only=True)
class StreamReport:
    """Reports on the stream of one checkpoint.

    Attributes:
        state: state of the stream.
        lag: consumer lag of the groups of the stream's broker.
        log: a request log that no other object uses, read up to the last reported batch; None if the stream reads no folder.
        counts: answered requests and bad rows of each batch by number; the counts of a reported batch are removed.
        progress: called with a line for each batch.
        now: gives the wall-clock time.
        publish: publishes the metrics; after the first time, an error does not end the stream. None if no metrics are wanted.
        listener: receives the events of the query.
    """

    state: StreamState
    lag: LagWatch
    log: RequestLog | None
    counts: dict[int, tuple[int, int]]
    progress: Callable[[str], None]
    now: Callable[[], dt.datetime]
    publish: LastingPublish | None
    listener: QueryListener = field(init=False)
    _trouble: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.listener = QueryListener(self.state.run.checkpoint)

    def begin(self) -> None:
        """Publish metrics that say that the stream runs.

        Raises:
            OutputError: the metrics cannot be published.
        """
        self._publish()

    def report_events(self) -> None:
        """Report the events since the last call."""
        while not self.listener.events.empty():
            self._take(self.listener.events.get())
            self._publish()
            if self._look_at_lag():
                self._publish()

    def end(self, *, failed: bool) -> None:
        """Report the remaining events and the end of the stream; the end is reported even if Spark has died."""
        try:
            self._take_rest()
        finally:
            self.state.ended, self.state.failed = self.now(), failed
            self._publish()
        if not failed and self._look_at_lag():  # after a failure, Spark may not run any more
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
        elif batch.answered:  # a batch without answers had only commits that are no captures
            self.progress(batch_line(batch, ""))

    def _look_at_folder(self, log: RequestLog, read_until: int) -> None:
        """Find the files that wait, which are in no entry up to `read_until`."""
        try:
            log.follow(read_until)
            left = log.new_of(list_requests(self.state.run.source))
        except OSError as error:
            self.state.waiting_files = None
            self._report_failed("what waits", error)
            return
        oldest = min((file.mtime_ns / 1e9 for file in left), default=None)
        waits = 0.0 if oldest is None else max(0.0, self.now().timestamp() - oldest)
        self.state.waiting_files = WaitingFiles(len(left), sum(file.length for file in left), round(waits, 3))

    def _publish(self) -> None:
        if self.publish is not None:
            self.publish(self._metrics())

    def _report_failed(self, what: str, error: Exception) -> None:
        """Print an error of reporting `what`, only the first time."""
        if what not in self._trouble:
            self._trouble.add(what)
            self.progress(f"{what} cannot be told: {error}")

    def _look_at_lag(self) -> bool:
        """Whether the consumer lag was computed again; False if no metrics are wanted."""
        try:
            return self.publish is not None and self.lag.look()
        except LagWatchError as error:
            self._report_failed("consumer lag", error)
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
    """The report of a stream that is about to start."""
    state, lag = StreamState(run=run, started=now()), LagWatch(spark, run, progress)
    lasting = None if publish is None else LastingPublish(publish, progress)
    return StreamReport(state=state, lag=lag, log=log, counts=counts, progress=progress, now=now, publish=lasting)


def batch_of(progress: StreamingQueryProgress, answered: int, bad: int) -> BatchReport:
    """The report of a batch, from Spark's progress and the numbers of answered requests and bad rows."""
    return BatchReport(
        number=progress.batchId,
        started=dt.datetime.fromisoformat(progress.timestamp),
        rows_read=progress.numInputRows,
        answered=answered,
        bad=bad,
        durations={phase: millis / 1000 for phase, millis in progress.durationMs.items()},
    )
