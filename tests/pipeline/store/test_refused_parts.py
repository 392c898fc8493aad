"""Parts of a 5.x broker's store that are not modelled are refused by name; parts that its default settings make are not refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.main import run
from tests.makers.lakes import tiny_store

OTHER_TOPIC = {"topicName": "t", "attributes": {"cleanup.policy": "DELETE", "queue.type": "SimpleCQ", "message.type": "FIFO"}}


def with_attribute(name: str, value: str) -> str:
    return json.dumps({"topicConfigTable": {"t": {"topicName": "t", "attributes": {name: value}}}})


# file, content, what the message names
PARTS = {
    "queues in RocksDB": ("consumequeue_rocksdb/CURRENT", "MANIFEST-000005\n", "storeType=defaultRocksDB"),
    "config in one RocksDB": ("config/metadata/CURRENT", "MANIFEST-000005\n", "config in RocksDB"),
    "offsets in RocksDB": ("config/consumerOffsets/CURRENT", "MANIFEST-000005\n", "config in RocksDB"),
    "config of version 2": ("config/rdb/CURRENT", "MANIFEST-000005\n", "config in RocksDB"),
    "tiered storage": ("config/tieredStoreMetadata.json", "{}", "tiered storage"),
    "a compaction log": ("compaction/compactionLog/t/0/00000000000000000000", "x", "a compaction topic"),
    "a compaction topic": ("config/topics.json", with_attribute("cleanup.policy", "COMPACTION"), "a compaction topic"),
    "batch queues": ("batchconsumequeue/t/0/00000000000000000000", "x", "queue.type=BatchCQ"),
    "a topic with batch queues": ("config/topics.json", with_attribute("queue.type", "BatchCQ"), "queue.type=BatchCQ"),
}


def recover(store: Path, *options: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = run(["recover", str(store), "--out", str(store.parent / "out.json"), *options])
    return code, capsys.readouterr().err


@pytest.mark.parametrize("name", PARTS)
def test_a_part_that_is_not_modelled_is_named(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tiny_store(tmp_path / "store", [("t", 0)])
    path, content, what = PARTS[name]
    (store / path).parent.mkdir(parents=True, exist_ok=True)
    (store / path).write_text(content, "utf-8")
    code, err = recover(store, capsys=capsys)
    assert (code, what in err, err.count("\n")) == (2, True, 1)
    assert str(store) in err
    assert "which pullsim does not read" in err


@pytest.mark.parametrize(
    ("setting", "what"),
    [
        ("storeType=defaultRocksDB", "queues in RocksDB"),
        ("configManagerVersion=v2", "config in RocksDB"),
        ("messageStorePlugIn=org.apache.rocketmq.tieredstore.TieredMessageStore", "tiered storage"),
    ],
)
def test_a_setting_names_the_part(setting: str, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tiny_store(tmp_path / "store", [("t", 0)])
    code, err = recover(store, "--rules", "5.5.0", "--set", setting, capsys=capsys)
    assert (code, what in err) == (2, True)


def test_what_the_default_settings_make_is_no_such_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tiny_store(tmp_path / "store", [("t", 0)])
    for path, content in (
        ("rocksdbstore/CURRENT", "MANIFEST-000005\n"),
        ("compaction/position-checkpoint", "{}"),
        ("config/topics.json", json.dumps({"topicConfigTable": {"t": OTHER_TOPIC}})),
    ):
        (store / path).parent.mkdir(parents=True, exist_ok=True)
        (store / path).write_text(content, "utf-8")
    assert recover(store, capsys=capsys) == (0, "")


def test_the_setting_storetype_says_that_queues_in_rocksdb_are_left_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tiny_store(tmp_path / "store", [("t", 0)])
    (store / "consumequeue_rocksdb").mkdir()
    (store / "consumequeue_rocksdb" / "CURRENT").write_text("x")
    assert recover(store, "--rules", "5.5.0", "--set", "storeType=default", capsys=capsys) == (0, "")
