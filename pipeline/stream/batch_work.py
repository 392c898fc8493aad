"""What Spark calls with each batch of a stream: when it is at work, and what ended it."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from pipeline.lake.lake import Lake
from pipeline.stream.stream_run import StreamRun


class StoppedError(Exception):
    """The stream was asked to end before this batch."""


@dataclass(slots=True, kw_only=True)
class BatchWork:
    """What the work on all kinds of batches has.

    Attributes:
        root: the lake.
        now: the wall clock.
        stop: nothing further is begun once it is set.
        failed: what ended the stream.
        working: whether a batch is being worked on.
    """

    root: str
    now: Callable[[], dt.datetime]
    stop: threading.Event
    failed: Exception | None = None
    working: bool = False
    _lake: Lake | None = None

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Around the work on a batch."""
        self.working = True
        try:
            yield
        except Exception as error:  # Spark keeps its text only
            self.failed = error
            raise
        finally:
            self.working = False

    def newest_lake(self, spark: SparkSession) -> Lake:
        """The lake, read at its newest version; opened, and looked back at, with the first batch."""
        if self._lake is None:
            lake = Lake(spark, self.root)
            self.look_back(lake)
            self._lake = lake
        self._lake.at = self._lake.newest()
        return self._lake

    def look_back(self, lake: Lake) -> None:
        """Find out what earlier starts of the run have left in the lake; a run that need not know leaves this as it is."""

    def require_go_on(self) -> None:
        """End the stream here where it was asked to.

        Raises:
            StoppedError: it was.
        """
        if self.stop.is_set():
            raise StoppedError


@dataclass(slots=True)
class Streamed:
    """What a stream did since it was started."""

    batches: int = 0
    answered: int = 0
    bad: int = 0


@dataclass(slots=True, kw_only=True)
class RunBatches(BatchWork):
    """The batches of a run that answers requests.

    Attributes:
        run: the run that the batches belong to.
        done: what was done since the start.
        counts: by the number of each batch, its requests that were answered, and its bad ones, until a report takes them.
    """

    run: StreamRun
    done: Streamed = field(default_factory=Streamed)
    counts: dict[int, tuple[int, int]] = field(default_factory=dict)
    _begun: bool = False

    def count(self, number: int, answered: int, bad: int = 0) -> None:
        """Add one commit of batch `number` to what was done; a batch may take several commits."""
        self.done.batches += 1
        self.done.answered += answered
        self.done.bad += bad
        before = self.counts.get(number, (0, 0))
        self.counts[number] = (before[0] + answered, before[1] + bad)
