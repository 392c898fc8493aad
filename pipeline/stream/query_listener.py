"""What Spark tells of a query while it runs, for another thread to take from a queue."""

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
# the progress of a batch, or one of the above
Event = StreamingQueryProgress | str


class QueryListener(StreamingQueryListener):
    """Puts what Spark tells of the query of one name into `events`, in order: progress of batches, idle times, the end."""

    def __init__(self, name: str) -> None:
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
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
            self.events.put(IDLE)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 (Spark's name)
        """The query ended."""
        if event.runId == self._run:
            self.events.put(ENDED)
