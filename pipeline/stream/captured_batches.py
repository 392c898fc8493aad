"""A stream of captured pulls: answer the pulls of the table `pull_request`, capture by capture, as captures are added.

Rule: the source of the stream is the Delta table `lake_version`, so that the stream sees committed captures only. A capture has its answers
if any of its pulls has an answer, because the answers of a capture are committed together.
Surprise: a stream of `pull_request` itself would fail when a capture is read again, because this replaces rows. It would also see rows of
captures that died.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.capture.captured_pulls import SOURCES_MAX, pulls_of
from pipeline.capture.replay_captured import answered_captured
from pipeline.lake.lake import Lake, StreamBatch
from pipeline.lake.lake_writer import COMPACTED_EVERY, LakeWriter
from pipeline.replay.replay_run import ReplayOptions
from pipeline.schema import tables as t
from pipeline.schema.capture_tables import PULL_REQUEST
from pipeline.settings.settings import BrokerSettings
from pipeline.stream.batch_work import RunBatches
from pipeline.stream.batches import retry_on_conflict

CAPTURE = "capture"  # value of lake_version.what for a capture


def committed_runs(lake: Lake) -> DataFrame:
    """A stream of the rows of lake_version; rows that were removed from Delta's log are skipped."""
    return lake.spark.readStream.format("delta").option("failOnDataLoss", "false").load(lake.path(t.LAKE_VERSION.name))


@dataclass(slots=True, kw_only=True)
class CapturedBatches(RunBatches):
    """Answers new captures; Spark calls it with each batch of `committed_runs`.

    Attributes:
        settings: of the broker.
        captures_max: most captures whose answers are committed together.
    """

    settings: BrokerSettings
    captures_max: int
    _answered: set[str] = field(default_factory=set)

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Answer the captures without answers, if the batch has a commit of a capture."""
        with self.at_work():
            self._take(batch, number)

    def _take(self, batch: DataFrame, number: int) -> None:
        first = self._lake is None
        lake = self.newest_lake(batch.sparkSession)
        captured = batch.where((F.col("what") == CAPTURE) & (F.col("brokerName") == self.run.broker))
        if not first and captured.isEmpty():
            return
        size = min(self.captures_max, SOURCES_MAX)
        new = [digest for digest in self._captures(lake.table(PULL_REQUEST)) if digest not in self._answered]
        for start in range(0, len(new), size):
            self.require_go_on()
            self._answer(lake, new[start : start + size], number)

    def look_back(self, lake: Lake) -> None:
        """Read from the lake whether the run has begun, and which captures it has answered."""
        lake.require()
        mine = F.col("runId") == self.run.run_id
        self._begun = not lake.table(t.REPLAY_RUN).where(mine).isEmpty()
        answered = lake.table(t.PULL_RESPONSE).where(mine).select("requestId")
        self._answered = set(self._captures(lake.table(PULL_REQUEST).join(answered, "requestId", "left_semi")))

    def _captures(self, pulls: DataFrame) -> list[str]:
        rows = pulls.where(F.col("brokerName") == self.run.broker).select("sourceDigest").distinct().orderBy("sourceDigest").collect()
        return [row["sourceDigest"] for row in rows]

    def _answer(self, lake: Lake, sources: Sequence[str], number: int) -> None:
        started = self.now()
        tables = [t.PULL_RESPONSE] if self._begun else [t.PULL_RESPONSE, t.REPLAY_RUN]
        answered: list[int] = []
        retry_on_conflict(lake, self.run.run_id, tables, lambda: answered.append(self._write(lake, sources, started, number)))
        self._begun = True
        self._answered.update(sources)
        self.count(number, answered[-1])

    def _write(self, lake: Lake, sources: Sequence[str], started: dt.datetime, number: int) -> int:
        """Answer captures and commit the answers; gives the number of answers."""
        broker, run_id = self.run.opened(lake), self.run.run_id
        writer = LakeWriter(lake, run_id=run_id, what="stream", broker=broker.name)
        pulls = pulls_of(broker.table(PULL_REQUEST), sources)
        options = ReplayOptions(at=self.run.at)
        with answered_captured(broker, pulls, options=options, settings=self.settings) as answers:
            writer.prepare(t.PULL_RESPONSE)
            writer.append(t.PULL_RESPONSE, answers.withColumns({"brokerName": F.lit(broker.name), "runId": F.lit(run_id)}))
            count = answers.count()
        if self.done.batches % COMPACTED_EVERY == COMPACTED_EVERY - 1:
            writer.compact(t.PULL_RESPONSE)
        if not self._begun:
            writer.prepare(t.REPLAY_RUN)
            writer.append(t.REPLAY_RUN, self.run.replay_run(lake, self.settings, started).row(None))
        writer.commit(self.now(), StreamBatch(self.run.checkpoint, number))
        return count
