"""A listener that puts the events of a running Spark query into a queue, for another thread to take."""

from __future__ import annotations

import queue

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

IDLE, ENDED = "idle", "ended"
# the progress of a batch, IDLE or ENDED
Event = StreamingQueryProgress | str


class QueryListener(StreamingQueryListener):
    """Puts the events of the query with the name `name` into `events`, in order: progress of batches, idle times, the end."""

    def __init__(self, name: str) -> None:
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._name = name
        self._run: object = None

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's name)
        """Remember the query's run id, because later events have no name."""
        if event.name == self._name:
            self._run = event.runId

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 (Spark's name)
        """Put the progress of a finished batch into the queue."""
        if event.progress.runId == self._run:
            self.events.put(event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 (Spark's name)
        """Put IDLE into the queue: the query has nothing to do."""
        if event.runId == self._run:
            self.events.put(IDLE)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 (Spark's name)
        """Put ENDED into the queue."""
        if event.runId == self._run:
            self.events.put(ENDED)
