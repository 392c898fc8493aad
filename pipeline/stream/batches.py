"""The batches of a stream: each is answered, written and committed once, whatever dies when.

Rule: what two streams write to the same lake at the same time is written one after the other. A run that finds the writes of another waits
for its commit, and takes them for those of a dead one when it does not come. Its own it need not wait for: it died there before.
"""

from __future__ import annotations

import datetime as dt
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.lake.delta_log import delta_version, run_of
from pipeline.lake.lake import Lake, LakeConflictError, StreamBatch
from pipeline.lake.lake_writer import COMPACTED_EVERY, LakeWriter
from pipeline.lake.session import INTERPRETED_PLANS, temporary_settings
from pipeline.replay.held_pulls import TIMEOUT_NEEDED, lacks_timeout
from pipeline.replay.replay import broker_store
from pipeline.replay.replay_job import answer, answer_woken, held_requests, response_rows, when_woken
from pipeline.replay.replay_run import ReplayOptions
from pipeline.schema import tables as t
from pipeline.schema.capture_tables import BAD_REQUEST
from pipeline.stream.batch_contents import Contents, SettingsOf, contents_of, file_number
from pipeline.stream.batch_work import RunBatches
from pipeline.stream.frame_pulls import ANSWERED, answered_frames
from pipeline.stream.request_stream import LINES_A_FILE
from pipeline.stream.stream_run import store_versions

_TRIES = 10
# how long another run may take from its first write to its commit before it counts as dead, in seconds
_PATIENCE = 15.0
_LOOK_SECONDS = 0.2
# to answer no more takes less time than to make code of the plans for it
_FEW_REQUESTS = 1_000
_NO_TIME = '%s, line %s: expected a "timestamp" in ms in the request, for --at request-time, found none'
_NO_TIMEOUT = f"%s, line %s: expected {TIMEOUT_NEEDED}, found none"


@dataclass(slots=True, kw_only=True)
class Batches(RunBatches):
    """Answers the batches of one checkpoint; called by Spark with each.

    Attributes:
        settings_of: the settings, given those of a file's header and where that is.
    """

    settings_of: SettingsOf
    _bounds: DataFrame | None = None
    _last: int = -1
    _goes_on: bool = False

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Answer a batch and commit it, unless that was done before a restart."""
        with self.at_work():
            self.require_go_on()
            lake = self.newest_lake(batch.sparkSession)
            self._keep_bounds(lake)
            if number > self._last or self.run.hold:  # what is held may change otherwise than it did
                self._answer(lake, batch.persist(), number)
                self._last = max(self._last, number)

    def _keep_bounds(self, lake: Lake) -> None:
        """Have the bounds of all queues, which every batch needs, in memory as long as they stay."""
        bounds = lake.table(t.QUEUE)
        if bounds is not self._bounds:
            if self._bounds is not None:
                self._bounds.unpersist()
            self._bounds = bounds.persist()

    def look_back(self, lake: Lake) -> None:
        """Find the last batch of this checkpoint in the lake, and whether the run had batches under other checkpoints."""
        rows = lake.require().versions().where((F.col("runId") == self.run.run_id) & F.col("batchId").isNotNull())
        own = F.col("checkpoint") == self.run.checkpoint
        found = rows.agg(F.max(F.when(own, F.col("batchId"))).alias("last"), F.count_if(~own).alias("others")).first()
        if found is not None:
            self._last = -1 if found["last"] is None else found["last"]
            self._goes_on = found["others"] > 0
            self._begun = self._goes_on or self._last >= 0

    def _answer(self, lake: Lake, persisted: DataFrame, number: int) -> None:
        started, again = self.now(), number <= self._last
        known = again or self._goes_on or (self.run.hold and self.run.store != store_versions(lake))
        try:
            rows = persisted.where("topic IS NOT NULL OR error IS NOT NULL OR frame IS NOT NULL")  # the others are heartbeats
            if self.run.at == "request-time":
                rows = rows.withColumn("error", F.coalesce("error", _no_time()))
            if self.run.hold:
                rows = rows.withColumn("error", F.coalesce("error", _no_timeout()))
            rows = rows.withColumn("requestId", _request_id(F.col("sourceDigest")))
            if known:
                rows = self._without_answered(lake, rows)
            contents = self._contents(lake, rows)
            if self.run.hold:
                rows = self._to_be_asked(lake, rows, contents, known=known)
                if again:  # what cannot be answered was found then
                    rows = rows.where(F.col("error").isNull() & ~F.coalesce(F.col("config").isin(*contents.refused), F.lit(False)))
                contents = self._contents(lake, rows)
            if contents.answered or contents.bad:
                retry_on_conflict(lake, self.run.run_id, self._tables(contents), lambda: self._write(lake, rows, contents, started, number))
        finally:
            persisted.unpersist()
        self.count(number, contents.answered, contents.bad)

    def _without_answered(self, lake: Lake, rows: DataFrame) -> DataFrame:
        """The rows without those that the run has answers for, or found bad."""
        mine = lake.table(t.PULL_RESPONSE).where(F.col("runId") == self.run.run_id)
        bad = self.run.opened(lake).table(BAD_REQUEST)
        known = mine.select(F.col("requestId").alias("id")).unionByName(bad.select(_bad_id().alias("id")))
        own = F.when(F.col("error").isNull(), F.col("requestId")).otherwise(_bad_id())
        return rows.withColumn("id", own).join(known, "id", "left_anti").drop("id").localCheckpoint()

    def _to_be_asked(self, lake: Lake, rows: DataFrame, contents: Contents, *, known: bool) -> DataFrame:
        """The rows with wokenMillis, but for requests that wait from now on, and for those of the state that have their answers.

        Those are not among the rows where that is `known`; else they are those that would not wait, as the store is what it was.
        """
        # those of the state are numbered as in the batches that they came in
        numbered = rows.withColumn("seq", F.monotonically_increasing_id()).localCheckpoint()
        bad = numbered.where(F.col("error").isNotNull() | F.col("config").isin(*contents.refused))
        parts = [bad.where("NOT released").withColumn("wokenMillis", F.lit(None).cast("BIGINT"))]
        for config, (settings, profile) in contents.settings.items():
            requests = numbered.where(F.col("error").isNull() & F.col("config").eqNullSafe(F.lit(config)))
            pull, at = settings.pull_settings(), ReplayOptions(at=self.run.at)
            held = held_requests(self.run.opened(lake), requests, options=at, settings=pull, profile=profile)
            held = held.localCheckpoint()
            woken = when_woken(self.run.opened(lake), held.where("released"), settings=settings, into_messages=profile.into_messages)
            waited = requests.join(held.select("seq", F.lit(True).alias("waits")), "seq", "left")
            waits = F.coalesce("waits", F.lit(False))
            if known:  # one may come and be given out in the same batch
                due = waited.where(F.col("released") | ~waits).dropDuplicates(["requestId"])
            else:
                due = waited.where(waits == F.col("released"))
            parts.append(due.drop("waits").join(woken, "seq", "left"))
        return reduce(DataFrame.unionByName, parts).localCheckpoint()

    def _contents(self, lake: Lake, rows: DataFrame) -> Contents:
        return contents_of(rows, broker_store(self.run.opened(lake)).entries_a_file, self.settings_of)

    def _tables(self, contents: Contents) -> list[t.Table]:
        """The tables that a batch writes to."""
        needed = ((t.PULL_RESPONSE, contents.answered), (BAD_REQUEST, contents.bad), (t.REPLAY_RUN, not self._begun))
        return [table for table, is_needed in needed if is_needed]

    def _write(self, lake: Lake, rows: DataFrame, contents: Contents, started: dt.datetime, number: int) -> None:
        writer = LakeWriter(lake, run_id=self.run.run_id, what="stream", broker=self.run.broker)
        writer.expect_commit()
        plans = INTERPRETED_PLANS if contents.answered + contents.bad <= _FEW_REQUESTS else {}
        with temporary_settings(lake.spark, plans):
            self._append(lake, writer, rows, contents, started)
        if contents.answered and number % COMPACTED_EVERY == COMPACTED_EVERY - 1:  # of all batches, which may have been large
            writer.compact(t.PULL_RESPONSE)
        with temporary_settings(lake.spark, plans):
            writer.commit(self.now(), StreamBatch(self.run.checkpoint, number))
        self._begun = True

    def _append(self, lake: Lake, writer: LakeWriter, rows: DataFrame, contents: Contents, started: dt.datetime) -> None:
        broker = F.lit(self.run.broker)
        for table in self._tables(contents):
            writer.prepare(table)
        if contents.answered:
            answers = self._answers(lake, rows, contents)
            writer.append(t.PULL_RESPONSE, answers.withColumns({"brokerName": broker, "runId": F.lit(self.run.run_id)}))
        if contents.bad:
            writer.append(BAD_REQUEST, _bad(rows, contents).withColumn("brokerName", broker))
        if not self._begun:
            writer.append(t.REPLAY_RUN, self.run.replay_run(lake, self.settings_of(None, ""), started).row(None))

    def _answers(self, lake: Lake, rows: DataFrame, contents: Contents) -> DataFrame:
        parts = []
        same_segments = broker_store(self.run.opened(lake)).entries_a_file == contents.entries_a_file  # no import came between
        for config, (settings, found) in contents.settings.items():
            pull, profile = settings.pull_settings(), found if same_segments else replace(found, touched=None)
            requests = rows.where(F.col("error").isNull() & F.col("config").eqNullSafe(F.lit(config)))
            options = ReplayOptions(at=self.run.at)
            if config in contents.framed:
                frames, requests = requests.where("frame IS NOT NULL"), requests.where("frame IS NULL")
                parts.append(answered_frames(self.run.opened(lake), frames, options=options, settings=settings))
                if not contents.framed[config]:
                    continue
            ask = answer_woken if self.run.hold else answer
            answers = ask(self.run.opened(lake), requests, options=options, settings=pull, profile=profile)
            parts.append(response_rows(self._with_ids(answers, requests, contents)).select(*ANSWERED))
        return reduce(DataFrame.unionByName, parts)

    def _with_ids(self, answers: DataFrame, requests: DataFrame, contents: Contents) -> DataFrame:
        """Answers with the requestId of their requests, which their seq tells, unless the requests were numbered anew to be held."""
        if self.run.hold:
            return answers.join(requests.select("seq", "requestId"), "seq")
        return answers.withColumn("requestId", _request_id(_digest_of_file(contents.digests)))


def _digest_of_file(digests: Mapping[int, str]) -> Column:
    """What a batch's files have for digests, by their numbers; one array for all rows."""
    listed = (digests.get(number, "") for number in range(max(digests, default=-1) + 1))
    return F.get(F.split(F.lit(",".join(listed)), ","), file_number().cast("INT"))


def _line() -> Column:
    return (F.col("seq") % LINES_A_FILE).cast("STRING")


def _request_id(digest: Column) -> Column:
    """As a replay of the file gives it."""
    return F.concat_ws("-", F.substring(digest, 1, 16), _line())


def _bad_id() -> Column:
    return F.concat_ws(" ", "sourceDigest", F.col("position").cast("STRING"), "source")


def _no_time() -> Column:
    return F.when(F.col("timestamp").isNull(), F.format_string(_NO_TIME, "source", _line()))


def _no_timeout() -> Column:
    return F.when(lacks_timeout(), F.format_string(_NO_TIMEOUT, "source", _line()))


def _bad(rows: DataFrame, contents: Contents) -> DataFrame:
    """Rows of bad_request: bad lines, and one for each request of a file whose settings cannot be used."""
    bad = rows.where("error IS NOT NULL")
    for config, error in contents.refused.items():
        of_file = rows.where(F.col("error").isNull() & (F.col("config") == config))
        bad = bad.unionByName(of_file.withColumn("error", F.lit(error)))
    return bad


def retry_on_conflict(lake: Lake, run_id: str, tables: Sequence[t.Table], write: Callable[[], None]) -> None:
    """Write to some tables as a run, again where another run wrote to them meanwhile."""
    for left in reversed(range(_TRIES)):
        _wait_for_others(lake, run_id, tables)
        try:
            write()
        except LakeConflictError:
            if not left:
                raise
            time.sleep(random.uniform(0, 2))  # noqa: S311 (two streams shall not try again at the same moments)
            lake.at = lake.newest()
        else:
            return


def _wait_for_others(lake: Lake, run_id: str, tables: Sequence[t.Table]) -> None:
    """Let another run that has written but not committed come to its end."""
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
