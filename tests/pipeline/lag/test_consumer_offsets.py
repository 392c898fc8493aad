"""Changes of consumer_offset: merged commits, runs that died, other runs, and an observation of lag in the same run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from pipeline.lag.lag_history import append_observation
from pipeline.lake.lake import Lake, LakeError
from pipeline.lake.lake_writer import LakeWriter
from pipeline.schema import tables as t
from pipeline.schema.lag_tables import LAG_HISTORY
from tests.makers.lag_lakes import write_state
from tests.makers.lakes import rows
from tests.runs.replaying import NOON
from tests.runs.sampling import slow_proof

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BEFORE = {("g", "t", 0): 40, ("g", "t", 1): 7, ("h", "%RETRY%h", 0): 3, ("gone-quiet", "t", 0): 5}
_COMMITS = "consumerGroup STRING, topic STRING, queueId INT, consumerOffset BIGINT, sequence BIGINT"


def run(spark: SparkSession, folder: Path, run_id: str) -> LakeWriter:
    return LakeWriter(Lake(spark, str(folder)), run_id=run_id, what="stream", broker="a")


def commits(spark: SparkSession, *found: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(found, _COMMITS)


def merge_offsets(writer: LakeWriter, commits: DataFrame, *, order: str) -> None:
    """Merge the last commit of each queue, by the column `order`, into the offsets of the writer's broker."""
    key = ("consumerGroup", "topic", "queueId")
    last = commits.where(F.col("consumerOffset").isNotNull()).groupBy(*key).agg(F.max_by("consumerOffset", order).alias("consumerOffset"))
    writer.prepare(t.CONSUMER_OFFSET)
    writer.merge(t.CONSUMER_OFFSET, last.withColumn("brokerName", F.lit(writer.broker)), ("brokerName", *key))


def offsets(spark: SparkSession, folder: Path) -> dict[tuple[str, str, str, int], int]:
    found = rows(spark, folder, t.CONSUMER_OFFSET)
    by_queue = {(row["brokerName"], row["consumerGroup"], row["topic"], row["queueId"]): row["consumerOffset"] for row in found}
    assert len(by_queue) == len(found), "a queue has one offset"
    return by_queue


@slow_proof
def test_the_last_commit_stays_whatever_dead_and_other_runs_do(spark: SparkSession, tmp_path: Path) -> None:
    write_state(spark, tmp_path, "a", BEFORE)
    write_state(spark, tmp_path, "b", {("g", "t", 0): 1})
    before = offsets(spark, tmp_path)

    dead = run(spark, tmp_path, "dead")
    merge_offsets(dead, commits(spark, ("g", "t", 0, 99, 1), ("dead", "t", 0, 99, 2)), order="sequence")
    append_observation(dead, 1_000)
    assert offsets(spark, tmp_path) == before, "a run that does not commit is not seen"

    writer = run(spark, tmp_path, "next")
    batch = [("g", "t", 0, 45, 30), ("g", "t", 0, 60, 20), ("g", "t", 1, 7, 21), ("g", "t", 1, None, 22), ("new", "t", 2, 8, 23)]
    merge_offsets(writer, commits(spark, *batch, ("h", "%RETRY%h", 0, 2, 24)), order="sequence")
    assert append_observation(writer, 2_000)
    assert not append_observation(writer, 2_000), "a time has one observation"
    writer.commit(NOON)
    after = {("g", "t", 0): 45, ("g", "t", 1): 7, ("h", "%RETRY%h", 0): 2, ("gone-quiet", "t", 0): 5, ("new", "t", 2): 8}
    of_a = {("a", *queue): offset for queue, offset in after.items()}
    assert offsets(spark, tmp_path) == of_a | {("b", "g", "t", 0): 1}
    observed = rows(spark, tmp_path, LAG_HISTORY)
    assert {(row["brokerName"], row["consumerGroup"], row["topic"], row["queueId"]): row["consumerOffset"] for row in observed} == of_a
    assert {row["observedAt"] for row in observed} == {2_000}


@slow_proof
def test_rows_that_slip_in_under_a_merge_stop_the_run(spark: SparkSession, tmp_path: Path) -> None:
    write_state(spark, tmp_path, "a", BEFORE)
    writer = run(spark, tmp_path, "slower")
    writer.prepare(t.CONSUMER_OFFSET)
    strange = spark.createDataFrame([("a", "strange", "t", 0, 99)], t.CONSUMER_OFFSET.schema)
    strange.write.format("delta").mode("append").save(str(tmp_path / "consumer_offset"))
    with pytest.raises(LakeError, match="found one; nothing of this run is visible"):
        merge_offsets(writer, commits(spark, ("g", "t", 0, 41, 1)), order="sequence")
    assert offsets(spark, tmp_path) == {("a", *queue): offset for queue, offset in BEFORE.items()}


def test_a_run_merges_again_and_leaves_the_session_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    name = "spark.databricks.delta.commitInfo.userMetadata"
    spark.conf.set(name, "of somebody else")
    try:
        writer = run(spark, tmp_path, "first")
        for offset in (41, 42, 42):  # the last one changes nothing
            merge_offsets(writer, commits(spark, ("g", "t", 0, offset, 1), ("g", "t", offset, 5, 1)), order="sequence")
        assert spark.conf.get(name) == "of somebody else"
        writer.commit(NOON)
    finally:
        spark.conf.unset(name)
    assert offsets(spark, tmp_path) == {("a", "g", "t", 0): 42, ("a", "g", "t", 41): 5, ("a", "g", "t", 42): 5}
