"""What a stream does, as it does it: a line a batch in the log, and metrics where they are asked for.

Rule: Spark tells a listener of each batch in a thread of its own; the thread that waits for the stream's end takes it from there and tells
it. What cannot be told ends no stream.
"""

from __future__ import annotations

import datetime as dt
import json
import queue
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from pipeline import tables as t
from pipeline.lag_metrics import GROUPS_MAX, TOPICS_MAX, LagMetrics, lag_metrics
from pipeline.lake import Lake, LakeError
from pipeline.metrics_target import Publish
from pipeline.metrics_text import metrics_text
from pipeline.output_file import OutputError
from pipeline.settings import BrokerSettings
from pipeline.stream.request_log import RequestLog, list_requests
from pipeline.stream.stream_metrics import BatchReport, Behind, StreamState, batch_line, left_out_family, stream_families
from pipeline.stream.stream_run import StreamRun
from pipeline.views import create_views

# how long Spark may take to tell of a query's last batch and of its end
_LAST_WORD_SECONDS = 10.0
_IDLE, _ENDED = "idle", "ended"
_Event = StreamingQueryProgress | str


class QueryListener(StreamingQueryListener):
    """Puts what Spark tells of the query of one name into `events`, in order: progress of batches, idle times, the end."""

    def __init__(self, name: str) -> None:
        self.events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._name = name
        self._run: object = None

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's name)
        """Learn which query it is: later events have no name."""
        if event.name == self._name:
            self._run = event.runId

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 (Spark's name)
        """A batch was done."""
        if event.progress.runId == self._run:
            self.events.put(event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 (Spark's name)
        """There is nothing to do."""
        if event.runId == self._run:
            self.events.put(_IDLE)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 (Spark's name)
        """The query ended."""
        if event.runId == self._run:
            self.events.put(_ENDED)


@dataclass(slots=True, kw_only=True)
class StreamReport:
    """Tells of the stream of one checkpoint.

    Attributes:
        spark: session that the lag is asked in.
        state: what is known of the stream.
        log: its request log, read by this alone, up to the last batch that is told.
        counts: requests answered and bad ones of each batch by its number; those of a batch that is told are taken out.
        progress: told of each batch.
        now: the wall clock.
        publish: takes the metrics; None where none are asked for.
    """

    spark: SparkSession
    state: StreamState
    log: RequestLog
    counts: dict[int, tuple[int, int]]
    progress: Callable[[str], None]
    now: Callable[[], dt.datetime]
    publish: Publish | None
    listener: QueryListener = field(init=False)
    _lag: LagMetrics | None = None
    _lag_of: Mapping[str, int | None] | None = None
    _trouble: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.listener = QueryListener(self.state.run.checkpoint)

    def begin(self) -> None:
        """Say that the stream runs.

        Raises:
            OutputError: the metrics cannot be put where they belong.
        """
        if self.publish is not None:
            self.publish(self._text())

    def tell(self) -> None:
        """Tell what came since the last call."""
        while not self.listener.events.empty():
            self._take(self.listener.events.get())
            self._look_at_lag()
            self._publish()

    def end(self, *, failed: bool) -> None:
        """Tell what is left, and that the stream ended: the latter even where the engine is gone, and the log with it."""
        try:
            self._take_rest()
            if not failed:  # else there may be no engine to ask
                self._look_at_lag()
        finally:
            self.state.ended, self.state.failed = self.now(), failed
            self._publish()

    def _take_rest(self) -> None:
        event: _Event | None = None
        try:
            while event != _ENDED:
                event = self.listener.events.get(timeout=_LAST_WORD_SECONDS)
                self._take(event)
        except queue.Empty:
            self.progress("Spark did not say that the stream ended")

    def _take(self, event: _Event) -> None:
        if not isinstance(event, StreamingQueryProgress):
            self._look_at_folder(self.log.newest)
            return
        batch = batch_of(event, *self.counts.pop(event.batchId, (0, 0)))
        self.state.add(batch)
        self._look_at_folder(json.loads(event.sources[0].endOffset)["entry"])
        self.progress(batch_line(batch, self.state.behind))

    def _look_at_folder(self, read_until: int) -> None:
        """Find what waits behind the entry of the last batch."""
        try:
            self.log.follow(read_until)
            left = self.log.new_of(list_requests(self.state.run.source))
        except OSError as error:
            self.state.behind = None
            self._cannot_tell("what waits", error)
            return
        oldest = min((file.mtime_ns / 1e9 for file in left), default=None)
        waits = 0.0 if oldest is None else max(0.0, self.now().timestamp() - oldest)
        self.state.behind = Behind(len(left), sum(file.length for file in left), round(waits, 3))

    def _publish(self) -> None:
        if self.publish is not None:
            try:
                self.publish(self._text())
            except OutputError as error:
                self._cannot_tell("metrics", error)

    def _cannot_tell(self, what: str, error: Exception) -> None:
        """Say once that something cannot be told."""
        if what not in self._trouble:
            self._trouble.add(what)
            self.progress(f"{what} cannot be told: {error}")

    def _look_at_lag(self) -> None:
        """Ask consume_lag, where metrics are asked for and an import has changed a table since the last look."""
        if self.publish is None:
            return
        run = self.state.run
        try:
            lake = Lake(self.spark, run.lake).require()
            found = {table.name: lake.at.tables.get(table.name) for table in t.IMPORTED}
            if found == self._lag_of:
                return
            cluster = BrokerSettings.from_sources(stored=lake.properties(run.broker)).value("brokerClusterName")
            self._lag, self._lag_of = lag_metrics(create_views(lake), run.broker, cluster), found
        except (LakeError, PySparkException) as error:
            self._cannot_tell("how far groups are behind", error)
            return
        if self._lag.groups_left_out or self._lag.topics_left_out:
            left_out = f"{self._lag.groups_left_out:,} pairs of group and topic, {self._lag.topics_left_out:,} topics"
            self.progress(f"the metrics leave out {left_out}: they hold {GROUPS_MAX:,} and {TOPICS_MAX:,}")

    def _text(self) -> str:
        families = stream_families(self.state, self.now())
        if self._lag is not None:
            left_out = [("groups", self._lag.groups_left_out), ("topics", self._lag.topics_left_out)]
            families += [*self._lag.families, left_out_family(self.state.run, left_out)]
        return metrics_text(families)


def report_of(
    spark: SparkSession,
    run: StreamRun,
    log: RequestLog,
    counts: dict[int, tuple[int, int]],
    *,
    progress: Callable[[str], None],
    now: Callable[[], dt.datetime],
    publish: Publish | None,
) -> StreamReport:
    """What tells of a stream that is about to start."""
    state = StreamState(run=run, started=now())
    return StreamReport(spark=spark, state=state, log=log, counts=counts, progress=progress, now=now, publish=publish)


def batch_of(progress: Any, answered: int, bad: int) -> BatchReport:
    """A batch as Spark tells of it, and what was found in it."""
    return BatchReport(
        number=progress.batchId,
        started=dt.datetime.fromisoformat(progress.timestamp),
        rows_read=progress.numInputRows,
        answered=answered,
        bad=bad,
        durations={phase: millis / 1000 for phase, millis in progress.durationMs.items()},
    )
