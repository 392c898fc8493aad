"""Answer, write and commit each batch of a stream exactly once, even after crashes.

Rule: two streams that write to one lake write one after the other. A run that finds uncommitted writes of another run waits for their
commit; if none comes within _PATIENCE, the other run is taken for dead. A run's own uncommitted writes are from before its crash.
"""

from __future__ import annotations

import datetime as dt
import random
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import reduce

import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.delta.delta_log import delta_version, run_of
from pipeline.lake.lake import Lake, LakeConflictError, StreamBatch
from pipeline.lake.lake_writer import COMPACTED_EVERY, LakeWriter
from pipeline.lake.session import INTERPRETED_PLANS, temporary_settings
from pipeline.replay.held_pulls import lacks_timeout
from pipeline.replay.replay import broker_store
from pipeline.replay.replay_job import held_requests, when_woken
from pipeline.replay.replay_run import ReplayOptions
from pipeline.schema import tables as t
from pipeline.schema.capture_tables import BAD_REQUEST
from pipeline.stream.batch_contents import Contents, SettingsOf, contents_here, contents_of
from pipeline.stream.batch_rows import NO_TIME, NO_TIMEOUT, BatchRows, DriverRows, SparkRows, line, request_id
from pipeline.stream.batch_work import RunBatches
from pipeline.stream.driver_holding import KeptPulls
from pipeline.stream.request_log import newest_bytes
from pipeline.stream.stream_run import store_versions
from pipeline.tasks.computed_once import computed_once, kept
from pipeline.tasks.work import NoSessionError

_TRIES = 10
# seconds from another run's first write to its commit, after which the run counts as dead
_PATIENCE = 15.0
_LOOK_SECONDS = 0.2
# most bytes of the files of a batch that the driver answers: more than 100,000 requests
_SMALL_BYTES = 16 << 20
# most requests of a batch for which interpreting Spark's plans is faster than compiling them
_FEW_REQUESTS = 1_000


@dataclass(slots=True, kw_only=True)
class Batches(RunBatches):
    """Answers the batches of one checkpoint; Spark calls it with each batch.

    Attributes:
        settings_of: gives the broker's settings for the configuration in a file's header and the place of the header.
        requests: folder of the request log.
    """

    settings_of: SettingsOf
    requests: str
    _bounds: DataFrame | None = None
    _last: int = -1
    _goes_on: bool = False
    _waiting: KeptPulls = field(init=False)

    def __post_init__(self) -> None:
        """Begin without kept pulls."""
        self._waiting = KeptPulls(self.run)

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Answer and commit a batch. If it was committed before a restart, answer only its requests without an answer."""
        with self.at_work():
            self.require_go_on()
            lake = self.newest_lake(batch.sparkSession)
            self._answer(lake, batch, number)
            self._last = max(self._last, number)

    def _keep_bounds(self, lake: Lake) -> None:
        """Cache the table of queue bounds, which every batch needs, until it changes."""
        bounds = lake.table(t.QUEUE)
        if bounds is not self._bounds:
            if self._bounds is not None:
                self._bounds.unpersist()
            self._bounds = bounds.persist()

    def has_committed(self, lake: Lake, number: int) -> bool:
        """Whether the lake has the batch `number` of this checkpoint."""
        self.look_back(lake)
        return self._last >= number

    def look_back(self, lake: Lake) -> None:
        """Find the last committed batch of this checkpoint in the lake, and whether the run has batches of other checkpoints."""
        of_run = lake.require().version_rows().filter((pc.field("runId") == self.run.run_id) & pc.field("batchId").is_valid())
        own = of_run.filter(pc.field("checkpoint") == self.run.checkpoint)
        self._last = max(own["batchId"].to_pylist(), default=-1)
        self._goes_on = len(own) < len(of_run)
        self._begun = len(of_run) > 0

    def _answer(self, lake: Lake, batch: DataFrame, number: int) -> None:
        """Answer a batch and commit it; on the driver if it is small and none of its new requests can have an answer already."""
        started, again = self.now(), number <= self._last or self._goes_on
        is_small = not again and newest_bytes(self.requests) <= _SMALL_BYTES
        # the tasks of a query that holds pulls write its state, so each of them has to run, and only once
        with kept(batch) if self.run.hold else nullcontext(batch) as rows:
            if is_small and self._is_answered_here(lake, rows, started, number):
                return
            known = again or (self.run.hold and self.run.store != store_versions(lake))
            with kept(rows):
                self._answer_on_spark(lake, rows, started, number, known=known)
            self._waiting.forget()

    def _is_answered_here(self, lake: Lake, batch: DataFrame, started: dt.datetime, number: int) -> bool:
        """Answer a batch on the driver and commit it; False if Spark has to answer it."""
        small = DriverRows.of(self.run, batch)
        if small is None:
            return False
        contents = contents_here(small.rows, self._entries_a_file(lake), self.settings_of)
        with suppress(NoSessionError):
            small.require_answers(contents)
            due = self._waiting.due(lake, small.rows, contents) if self.run.hold else None
            if due is not None:
                small = DriverRows(self.run, due.rows)
                contents = contents_here(due.rows, self._entries_a_file(lake), self.settings_of)
            self._commit(lake, small, contents, started, number)
            if due is not None:
                self._waiting.committed(due)
            return True
        return False

    def _answer_on_spark(self, lake: Lake, batch: DataFrame, started: dt.datetime, number: int, *, known: bool) -> None:
        self._keep_bounds(lake)
        rows = batch.where("topic IS NOT NULL OR error IS NOT NULL OR frame IS NOT NULL")  # heartbeats have none of these
        if self.run.at == "request-time":
            rows = rows.withColumn("error", F.coalesce("error", _no_time()))
        if self.run.hold:
            rows = rows.withColumn("error", F.coalesce("error", _no_timeout()))
        rows = rows.withColumn("requestId", request_id(F.col("sourceDigest")))
        if known:
            rows = self._without_answered(lake, rows)
        contents = self._contents(lake, rows)
        if self.run.hold:
            rows = self._due_requests(lake, rows, contents, known=known)
            contents = self._contents(lake, rows)
        self._commit(lake, SparkRows(self.run, rows), contents, started, number)

    def _commit(self, lake: Lake, rows: BatchRows, contents: Contents, started: dt.datetime, number: int) -> None:
        """Write the answers and the bad rows of a batch, and commit them; without any, only count the batch."""
        if contents.answered or contents.bad:
            retry_on_conflict(lake, self.run.run_id, self._tables(contents), lambda: self._write(lake, rows, contents, started, number))
        self.count(number, contents.answered, contents.bad)

    def _without_answered(self, lake: Lake, rows: DataFrame) -> DataFrame:
        """The rows without requests that the run has already answered, or written to bad_request."""
        mine = lake.table(t.PULL_RESPONSE).where(F.col("runId") == self.run.run_id)
        bad = self.run.opened(lake).table(BAD_REQUEST).select(_bad_id().alias("badId"))
        # bad rows of a file with refused settings are requests, which have no position: the id of them all is that of the file
        rest = rows.withColumn("badId", _bad_id()).join(bad, "badId", "left_anti").drop("badId")
        return computed_once(rest.join(mine.select("requestId"), "requestId", "left_anti").select(*rows.columns))

    def _due_requests(self, lake: Lake, rows: DataFrame, contents: Contents, *, known: bool) -> DataFrame:
        """Drop requests that start to wait in this batch, and released ones that were answered; add wokenMillis to the rest.

        If `known`, the rows have no answered requests any more. If not, the store is unchanged since the checkpoint was begun: then a
        released request that would not wait now did not wait before either, and has its answer.
        """
        # released requests have the seq of the batch in which they came, so all rows are numbered again
        numbered = computed_once(rows.withColumn("seq", F.monotonically_increasing_id()))
        bad = numbered.where(F.col("error").isNotNull() | F.col("config").isin(*contents.refused))
        parts = [bad.where("NOT released").withColumn("wokenMillis", F.lit(None).cast("BIGINT"))]
        for config, (settings, profile) in contents.settings.items():
            requests = numbered.where(F.col("error").isNull() & F.col("config").eqNullSafe(F.lit(config)))
            pull, at = settings.pull_settings(), ReplayOptions(at=self.run.at)
            held = held_requests(self.run.opened(lake), requests, options=at, settings=pull, profile=profile)
            held = computed_once(held)
            woken = when_woken(self.run.opened(lake), held.where("released"), settings=settings, profile=profile)
            waited = requests.join(held.select("seq", F.lit(True).alias("waits")), "seq", "left")
            waits = F.coalesce("waits", F.lit(False))
            if known:  # a pull may come and be released in the same batch
                due = waited.where(F.col("released") | ~waits).dropDuplicates(["requestId"])
            else:
                due = waited.where(waits == F.col("released"))
            parts.append(due.drop("waits").join(woken, "seq", "left"))
        return computed_once(reduce(DataFrame.unionByName, parts))

    def _contents(self, lake: Lake, rows: DataFrame) -> Contents:
        return contents_of(rows, self._entries_a_file(lake), self.settings_of)

    def _entries_a_file(self, lake: Lake) -> int:
        return broker_store(self.run.opened(lake)).entries_a_file

    def _tables(self, contents: Contents) -> list[t.Table]:
        """The tables that a batch with these contents writes to."""
        needed = ((t.PULL_RESPONSE, contents.answered), (BAD_REQUEST, contents.bad), (t.REPLAY_RUN, not self._begun))
        return [table for table, is_needed in needed if is_needed]

    def _write(self, lake: Lake, rows: BatchRows, contents: Contents, started: dt.datetime, number: int) -> None:
        writer = LakeWriter(lake, run_id=self.run.run_id, what="stream", broker=self.run.broker)
        writer.expect_commit()
        plans = INTERPRETED_PLANS if contents.answered + contents.bad <= _FEW_REQUESTS else {}
        with temporary_settings(lake.spark, plans):
            self._append(lake, writer, rows, contents, started)
        if contents.answered and number % COMPACTED_EVERY == COMPACTED_EVERY - 1:
            writer.compact(t.PULL_RESPONSE)
        with temporary_settings(lake.spark, plans):
            writer.commit(self.now(), StreamBatch(self.run.checkpoint, number))
        self._begun = True

    def _append(self, lake: Lake, writer: LakeWriter, rows: BatchRows, contents: Contents, started: dt.datetime) -> None:
        answers = rows.answers(lake, contents) if contents.answered else None
        for table in self._tables(contents):
            writer.prepare(table)
        if answers is not None:
            writer.append(t.PULL_RESPONSE, answers)
        if contents.bad:
            writer.append(BAD_REQUEST, rows.bad(contents))
        if not self._begun:
            writer.append(t.REPLAY_RUN, self.run.replay_run(lake, self.settings_of(None, ""), started).row(None))


def _bad_id() -> Column:
    return F.concat_ws(" ", "sourceDigest", F.col("position").cast("STRING"), "source")


def _no_time() -> Column:
    return F.when(F.col("timestamp").isNull(), F.format_string(NO_TIME, "source", line()))


def _no_timeout() -> Column:
    return F.when(lacks_timeout(), F.format_string(NO_TIMEOUT, "source", line()))


def retry_on_conflict(lake: Lake, run_id: str, tables: Sequence[t.Table], write: Callable[[], None]) -> None:
    """Call `write`; repeat it while another run writes to the same tables at the same time.

    Args:
        lake: read at its newest version before each try.
        run_id: of the run that writes.
        tables: tables that `write` writes to.
        write: writes and commits.

    Raises:
        LakeConflictError: other runs were writing at each of _TRIES tries.
    """
    for left in reversed(range(_TRIES)):
        _wait_for_others(lake, run_id, tables)
        try:
            write()
        except LakeConflictError:
            if not left:
                raise
            time.sleep(random.uniform(0, 2))  # noqa: S311 (random, so that two streams do not retry at the same moments)
            lake.at = lake.newest()
        else:
            return


def _wait_for_others(lake: Lake, run_id: str, tables: Sequence[t.Table]) -> None:
    """Wait until no table has uncommitted writes of another run, at most _PATIENCE seconds."""
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        if not any(_is_written_by_another(lake, run_id, table) for table in tables):
            return
        time.sleep(_LOOK_SECONDS)
        lake.at = lake.newest()


def _is_written_by_another(lake: Lake, run_id: str, table: t.Table) -> bool:
    path = lake.path(table.name)
    version = delta_version(path)
    return version is not None and version != lake.at.tables.get(table.name) and run_of(path, version) != run_id
