"""Base classes of the functions that Spark calls with each batch of a stream: state of the work, counts, and how the stream ends."""

from __future__ import annotations

import datetime as dt
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from pipeline.lake.lake import Lake
from pipeline.stream.stream_run import StreamRun


class StoppedError(Exception):
    """The stream was stopped before this batch."""


@contextmanager
def old_objects_kept() -> Iterator[None]:
    """During the block, Python's garbage collector looks at new objects only, so that batches hardly wait for it."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@dataclass(slots=True, kw_only=True)
class BatchWork:
    """State of the work on the batches of a stream.

    Attributes:
        root: path of the lake.
        now: gives the wall-clock time.
        stop: once it is set, no further work is started.
        failed: the error that ended the stream; None if there is none.
        working: whether a batch is being processed.
    """

    root: str
    now: Callable[[], dt.datetime]
    stop: threading.Event
    failed: Exception | None = None
    working: bool = False
    _lake: Lake | None = None

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Set `working` during the block, which processes a batch, and keep its error in `failed`.

        The end of the block collects garbage. Spark's DataFrames refer to themselves, so only the garbage collector frees them. The JVM
        keeps their plans, snapshots of tables and broadcast rows until then. Python alone would wait until the JVM is full.
        """
        self.working = True
        try:
            yield
        except Exception as error:  # Spark keeps only the error's text
            self.failed = error
            raise
        finally:
            gc.collect()
            self.working = False

    def newest_lake(self, spark: SparkSession) -> Lake:
        """The lake, read at its newest version; the first call opens it and calls `look_back`."""
        if self._lake is None:
            lake = Lake(spark, self.root)
            self.look_back(lake)
            self._lake = lake
        self._lake.at = self._lake.newest()
        return self._lake

    def look_back(self, lake: Lake) -> None:
        """Read from the lake what earlier starts of the run have done; subclasses that need it override this."""

    def require_go_on(self) -> None:
        """Check that the stream may go on.

        Raises:
            StoppedError: `stop` is set.
        """
        if self.stop.is_set():
            raise StoppedError


@dataclass(slots=True)
class Streamed:
    """What a stream has done since its start.

    Attributes:
        batches: number of commits.
        answered: number of answered requests.
        bad: number of rows in bad_request.
    """

    batches: int = 0
    answered: int = 0
    bad: int = 0


@dataclass(slots=True, kw_only=True)
class RunBatches(BatchWork):
    """The batches of a run that answers requests.

    Attributes:
        run: the run that the batches belong to.
        done: work done since the start.
        counts: for each batch by number: answered requests and bad rows. A report removes the counts that it has reported.
    """

    run: StreamRun
    done: Streamed = field(default_factory=Streamed)
    counts: dict[int, tuple[int, int]] = field(default_factory=dict)
    _begun: bool = False

    def count(self, number: int, answered: int, bad: int = 0) -> None:
        """Add a commit of batch `number` to `done` and `counts`; a batch may take several commits."""
        self.done.batches += 1
        self.done.answered += answered
        self.done.bad += bad
        before = self.counts.get(number, (0, 0))
        self.counts[number] = (before[0] + answered, before[1] + bad)
