"""Rows of the files under config/: which file has the offsets of groups, by the broker's settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.files.store_files import StoreFiles
from pipeline.rows.config_tables import config_files, config_rows
from pipeline.schema import tables as t


@pytest.fixture
def store(tmp_path: Path) -> StoreFiles:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "consumerOffset.json").write_text('{"offsetTable":{"orders@before":{0:1}}}')
    of_lmq = '{"lmqOffsetTable":{"orders@%LMQ%dev":4},"offsetTable":{"orders@g":{3:7}}}'
    (tmp_path / "config" / "lmqConsumerOffset.json").write_text(of_lmq)
    return StoreFiles(str(tmp_path))


def test_a_broker_with_light_message_queues_has_all_offsets_in_a_file_of_its_own(store: StoreFiles) -> None:
    found = config_rows(store, "b", enable_lmq=True)
    rows = [tuple(row.values()) for row in found.tables[t.CONSUMER_OFFSET].to_pylist()]
    assert (rows, found.notes) == ([("b", "g", "orders", 3, 7), ("b", "%LMQ%dev", "orders", 0, 4)], ())


def test_another_broker_does_not_read_that_file_and_the_setting_is_told(store: StoreFiles) -> None:
    found = config_rows(store, "b")
    assert [row["consumerGroup"] for row in found.tables[t.CONSUMER_OFFSET].to_pylist()] == ["before"]
    (note,) = found.notes
    assert "lmqConsumerOffset.json: not read" in note
    assert note.endswith("give --set enableLmq=true")


def test_offsets_of_a_broker_without_light_message_queues_are_told_if_there_are_no_others(store: StoreFiles, tmp_path: Path) -> None:
    (tmp_path / "config" / "lmqConsumerOffset.json").unlink()
    found = config_rows(store, "b", enable_lmq=True)
    assert found.tables[t.CONSUMER_OFFSET].num_rows == 0
    (note,) = found.notes
    assert "/consumerOffset.json: not read" in note
    assert note.endswith("give --set enableLmq=false")


@pytest.mark.parametrize(("enable_lmq", "name"), [(False, "consumerOffset.json"), (True, "lmqConsumerOffset.json")])
def test_a_follower_looks_at_the_file_that_the_broker_writes(enable_lmq: bool, name: str) -> None:
    files = config_files(enable_lmq=enable_lmq)
    assert (files[t.CONSUMER_OFFSET], files[t.PULL_OFFSET], files[t.TOPIC_CONFIG]) == ((name,), (name,), ("topics.json",))
