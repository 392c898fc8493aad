"""Figures of `pullsim import --follow` since its start, and metrics of them. No Spark here."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from prometheus_client.core import Metric

from pipeline.serving.metrics import Publish, RunMetrics, metric

# seconds after which metrics are made again although no batch came
_IDLE_SECONDS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedBatch:
    """Figures of a batch that was added to the lake.

    Attributes:
        number: number of the batch.
        started: when it was started.
        seconds: how long it took.
        messages: number of added messages.
        bytes: bytes of the commit log that it added, including the ends of files, which have no record.
        is_whole: whether it imported the whole store again.
    """

    number: int
    started: dt.datetime
    seconds: float
    messages: int
    bytes: int
    is_whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """What a follow has done since its start.

    Attributes:
        lake_version: version of the lake; None before the store was imported.
        log_end: offset up to which the lake has the commit log; None before the store was imported.
        batches, messages, bytes: number of batches, and sums over them.
        whole_imports: how often a batch imported the whole store again.
        last: the last batch; None before the first one.
    """

    lake_version: int | None = None
    log_end: int | None = None
    batches: int = 0
    messages: int = 0
    bytes: int = 0
    whole_imports: int = 0
    last: FollowedBatch | None = None

    def plus(self, batch: FollowedBatch, *, lake_version: int, log_end: int) -> Followed:
        """Return the figures with one more batch, after which the lake has this version and the log up to this offset."""
        return replace(
            self,
            lake_version=lake_version,
            log_end=log_end,
            batches=self.batches + 1,
            messages=self.messages + batch.messages,
            bytes=self.bytes + batch.bytes,
            whole_imports=self.whole_imports + batch.is_whole,
            last=batch,
        )


@dataclass(slots=True, kw_only=True)
class FollowReport:
    """Publishes the metrics of a follow: at its start, after each batch, when it is idle, and at its end.

    Attributes:
        broker: the broker's name in the lake.
        store: path of its store.
        started: when the follow was started.
        now: gives the wall-clock time.
        publish: publishes metrics.
    """

    broker: str
    store: str
    started: dt.datetime
    now: Callable[[], dt.datetime]
    publish: Publish
    _done: Followed = field(default_factory=Followed)
    _published: dt.datetime | None = None

    def report(self, done: Followed) -> None:
        """Publish what was done, if it is new or was published some seconds ago.

        Raises:
            OutputError: the metrics cannot be published.
        """
        now = self.now()
        is_due = self._published is None or not 0 <= (now - self._published).total_seconds() < _IDLE_SECONDS
        if is_due or done != self._done:
            self._done, self._published = done, now
            self.publish(self._metrics(done, now))

    def end(self, done: Followed, *, failed: bool) -> None:
        """Publish that the follow has ended, and whether an error ended it."""
        now = self.now()
        self.publish(self._metrics(done, now, ended=now, failed=failed))

    def _metrics(self, done: Followed, now: dt.datetime, *, ended: dt.datetime | None = None, failed: bool = False) -> list[Metric]:
        """The metrics at `now`; all have the label broker."""
        labels = {"broker": self.broker}
        made = RunMetrics(what="follow", labels=labels)
        one, last = made.one, done.last
        return [
            metric("gauge", "pullsim_follow_info", "The broker and its store.", ((labels | {"store": self.store}, 1),)),
            *made.course(now, started=self.started, ended=ended, failed=failed),
            one("batches_total", "Batches since the start.", done.batches, "counter"),
            one("messages_total", "Messages added since the start, without those of the first import.", done.messages, "counter"),
            one("bytes_total", "Bytes of the commit log read since the start, likewise.", done.bytes, "counter"),
            one("whole_imports_total", "How often the whole store was imported again since the start.", done.whole_imports, "counter"),
            one("last_batch_number", "Number of the last batch.", last.number if last else None),
            one("last_batch_start_time_seconds", "When the last batch was begun.", last.started.timestamp() if last else None),
            one("last_batch_duration_seconds", "How long the last batch took.", round(last.seconds, 3) if last else None),
            one("last_batch_messages", "Messages that the last batch added.", last.messages if last else None),
            one("last_batch_bytes", "Bytes of the commit log that the last batch read.", last.bytes if last else None),
            one("lake_version", "Version of the lake after the last batch.", done.lake_version),
            one("log_offset", "Offset up to which the lake has the commit log of the broker.", done.log_end),
        ]
