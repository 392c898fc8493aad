"""The segments that are read for some requests: those in which the requests start, and few others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# three segments of a file of 20,000 entries, and those of the next
ENTRIES_A_FILE = 20_000
SEGMENTS = [(number, number // 3 * ENTRIES_A_FILE) for number in range(6)]
TOPICS = ("plain", "it's \\ odd")


def touched(spark: SparkSession, asked: list[tuple[str, int, int]], *, whole_files: bool) -> set[tuple[str, int, int]]:
    from pipeline.replay.touched_segments import only_touched, touched_segments

    rows = [(topic, queue, *one) for topic in TOPICS for queue in (0, 1) for one in SEGMENTS]
    segments = spark.createDataFrame(rows, "topic STRING, queueId INT, segment BIGINT, fileFirstOffset BIGINT")
    pulls = [(*pull, number) for number, pull in enumerate(asked)]
    requests: DataFrame = spark.createDataFrame(pulls, "topic STRING, queueId INT, queueOffset BIGINT, maxMsgNums INT")
    found = touched_segments(requests, entries_a_file=ENTRIES_A_FILE, whole_files=whole_files)
    return {(row["topic"], row["queueId"], row["segment"]) for row in only_touched(segments, found).collect()}


ASKED = [(TOPICS[0], 0, 8191), (TOPICS[0], 0, 8192), (TOPICS[1], 1, 20_000), (TOPICS[1], 0, -1), (TOPICS[0], 1, 10**9)]
STARTED_IN = {(TOPICS[0], 0, 0), (TOPICS[0], 0, 1), (TOPICS[1], 1, 3)}


def test_few_requests_touch_the_segments_that_they_start_in(spark: SparkSession) -> None:
    assert touched(spark, ASKED, whole_files=False) == STARTED_IN


def test_requests_that_may_need_more_touch_the_whole_file(spark: SparkSession) -> None:
    whole = {(topic, queue, segment // 3 * 3 + more) for topic, queue, segment in STARTED_IN for more in range(3)}
    assert touched(spark, ASKED, whole_files=True) == whole


def test_no_request_touches_none(spark: SparkSession) -> None:
    assert touched(spark, [(TOPICS[0], 0, -5)], whole_files=False) == set()


MANY = [(TOPICS[1], queue, offset) for queue in (0, 1) for offset in (9_000, 21_000)]


def test_more_requests_touch_the_same_segments(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline.replay import touched_segments

    monkeypatch.setattr(touched_segments, "_FEW_RANGES", 1)
    assert touched(spark, ASKED, whole_files=False) == STARTED_IN
    assert touched(spark, MANY, whole_files=False) == {(TOPICS[1], queue, segment) for queue in (0, 1) for segment in (1, 3)}


def test_many_requests_touch_a_range_of_their_topics(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline.replay import touched_segments

    monkeypatch.setattr(touched_segments, "_FEW_RANGES", 1)
    monkeypatch.setattr(touched_segments, "SOME_SEGMENTS", 1)
    assert touched(spark, MANY, whole_files=False) == {(TOPICS[1], queue, segment) for queue in (0, 1) for segment in (1, 2, 3)}


def test_where_there_are_many_queues_or_topics_a_range_is_that_of_each_topic_or_of_all(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline.replay import touched_segments as ts

    asked = spark.createDataFrame([("a", 0, 5), ("a", 0, 7), ("a", 1, 1), ("it's", 0, 9)], "topic STRING, queueId INT, segment BIGINT")
    rows = [(topic, queue, segment) for topic in ("a", "it's", "other") for queue in (0, 1, 2) for segment in range(12)]
    segments = spark.createDataFrame(rows, "topic STRING, queueId INT, segment BIGINT")

    def kept() -> set[tuple[str, int, int]]:
        return {tuple(row) for row in segments.where(ts.range_condition(asked, "segment")).collect()}

    assert kept() == {("a", 0, 5), ("a", 0, 6), ("a", 0, 7), ("a", 1, 1), ("it's", 0, 9)}
    monkeypatch.setattr(ts, "_FEW_RANGES", 2)
    of_topics = {"a": range(1, 8), "it's": range(9, 10)}
    assert kept() == {(topic, queue, segment) for topic, queue, segment in rows if segment in of_topics.get(topic, ())}
    monkeypatch.setattr(ts, "_FEW_RANGES", 1)
    assert kept() == {row for row in rows if 1 <= row[2] <= 9}
    assert segments.where(ts.range_condition(asked.where("FALSE"), "segment")).count() == 0
