"""The contents of a stream's batch, counted in one job: by file, and by the segments in which its requests start."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.settings.settings import BrokerSettings, SettingsError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.stream.batch_contents import Contents

ENTRIES_A_FILE = 20_000
HEADER = json.dumps({"maxTransferCountOnMessageInMemory": 5})
REFUSED = json.dumps({"brokerRole": "NOBODY"})
CONFIGS = [None, HEADER, REFUSED, HEADER]  # of each file
# file, topic, queueId, offset, maxMsgNums, type of filter
REQUESTS = [
    (0, "a", 0, 0, 32, None),
    (0, "a", 0, 8191, 16, "TAG"),
    (0, "a", 0, 8192, 32, None),
    (0, "b", 1, 20_000, 32, None),
    (0, "b", 1, -1, 32, None),
    (1, "a", 0, 5, 900, "SQL92"),
    (1, "a", 1, 19_999, 32, None),
    (2, "c", 0, 0, 32, "SQL92"),
    (3, "a", 0, 7, 64, "TAG"),
]
ASKED = {("a", 0, 0, 4, 900), ("a", 0, 1, 1, 32), ("b", 1, 3, 1, 32), ("a", 1, 2, 1, 32), ("c", 0, 0, 1, 32)}


def settings_of(header: dict[str, Any] | None, where: str) -> BrokerSettings:
    if header == json.loads(REFUSED):
        raise SettingsError(where, "brokerRole", "a role", "NOBODY")
    return BrokerSettings.from_sources(header=header, header_where=where)


def row(number: int, file: int, **values: object) -> dict[str, object]:
    from pipeline.stream.request_stream import LINES_A_FILE

    of_file = {"source": f"file {file}", "sourceDigest": f"digest {file}", "config": CONFIGS[file]}
    return {"seq": file * LINES_A_FILE + number} | of_file | values


@pytest.fixture(scope="module")
def batch(spark: SparkSession) -> DataFrame:
    from pipeline.stream.request_stream import STREAM_SCHEMA

    names = ("topic", "queueId", "queueOffset", "maxMsgNums", "filterType")
    rows = [row(number, file, **dict(zip(names, one, strict=True))) for number, (file, *one) in enumerate(REQUESTS)]
    bad = {"error": "bad", "topic": "bad", "queueId": 0, "queueOffset": 3, "maxMsgNums": 9_000}
    rows += [row(20, 1, **bad), row(21, 3, frame={}, queueOffset=5, topic="framed", queueId=0, maxMsgNums=1)]
    return spark.createDataFrame(rows, STREAM_SCHEMA)


def contents(batch: DataFrame) -> Contents:
    from pipeline.stream.batch_contents import contents_of

    return contents_of(batch, ENTRIES_A_FILE, settings_of)


def test_configurations_are_told_apart_where_numbers_do_not_tell_files(spark: SparkSession) -> None:
    """So it is with held pulls, which are numbered anew."""
    from pipeline.stream.request_stream import STREAM_SCHEMA

    of_all = {"topic": "a", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32}
    rows = [row(number, file, **of_all) | {"seq": number} for number, file in enumerate([1, 0, 2])]
    found = contents(spark.createDataFrame(rows, STREAM_SCHEMA))
    assert {config: kinds.about for config, (_, kinds) in found.settings.items()} == {None: 1, HEADER: 1}
    assert set(found.refused) == {REFUSED}
    assert (found.answered, found.bad) == (2, 1)


def check(found: Contents) -> None:
    assert set(found.settings) == {None, HEADER}
    assert [found.settings[config][0].pull_settings().max_transfer_count_on_message_in_memory for config in (None, HEADER)] == [32, 5]
    kinds = {config: (kinds.into_messages, kinds.far, kinds.about) for config, (_, kinds) in found.settings.items()}
    assert kinds == {None: (False, False, 5), HEADER: (True, True, 4)}
    assert found.refused == {REFUSED: str(SettingsError("file 2, line 1", "brokerRole", "a role", "NOBODY"))}
    assert found.framed == {HEADER: True}
    assert found.digests == {number: f"digest {number}" for number in range(4)}
    assert (found.answered, found.bad) == (9, 2)


def test_a_batch_is_counted_by_its_files_and_tells_the_segments_that_it_asks_for(batch: DataFrame) -> None:
    found = contents(batch)
    check(found)
    for _, kinds in found.settings.values():
        assert kinds.touched is not None
        assert {tuple(one.values()) for one in kinds.touched.to_pylist()} == ASKED


def test_of_too_many_segments_a_batch_tells_none(batch: DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.stream.batch_contents.SOME_SEGMENTS", 8)  # groups: five by file, four by segment and one without
    found = contents(batch)
    check(found)
    assert all(kinds.touched is None for _, kinds in found.settings.values())


def test_segments_are_those_that_a_replay_finds(batch: DataFrame) -> None:
    from pipeline.replay.touched_segments import touched_segments

    requests = batch.where("error IS NULL AND frame IS NULL")
    asked = touched_segments(requests, entries_a_file=ENTRIES_A_FILE, whole_files=False).known
    assert asked is not None
    assert {tuple(one.values()) for one in asked.to_pylist()} == ASKED
