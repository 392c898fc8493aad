"""A store imported as it was found: the same bytes come back, whatever the files are, and no replay answers from it."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.lake.lake import Lake
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.schema import tables as t
from tests.makers.lakes import import_as, rows, tiny_store
from tests.makers.store_trees import differing, tree
from tests.runs.in_session import pullsim_in
from tests.runs.sampling import sampled, slow_proof
from tests.truth.golden import names, needs_golden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.runs.in_session import Pullsim

ALL_STORES = names("recover", "*.json")


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


def found_and_exported(spark: SparkSession, store: Path, folder: Path) -> Path:
    from pipeline.export.export_store import export_store

    import_as(spark, folder / "lake", store, as_found=True, by_spark=True)
    export_store(
        OpenedBroker(Lake(spark, str(folder / "lake")), "b"), str(folder / "out" / "store"), run_id="export", progress=lambda _: None
    )
    return folder / "out" / "store"


@slow_proof
@needs_golden
@pytest.mark.parametrize("name", sampled(ALL_STORES, 1))
def test_a_store_comes_back_as_it_was_found(spark: SparkSession, stores: Path, tmp_path: Path, name: str) -> None:
    assert differing(tree(found_and_exported(spark, stores / name, tmp_path)), tree(stores / name)) == []


def sick_store(path: Path) -> Path:
    """A store on which no broker starts, for many reasons."""
    store = tiny_store(path, [("T", 0), ("T", 1), ("%RETRY%g", 3)])
    log = store / "commitlog" / f"{0:020d}"
    raw = bytearray(log.read_bytes())
    raw[2000:2004] = b"\xff" * 4
    log.write_bytes(bytes(raw[:-9]) + b"rubbish!\0")
    queue = store / "consumequeue" / "T" / "0" / f"{0:020d}"
    units = bytearray(queue.read_bytes())
    units[20:40] = struct.pack(">qiq", -5, -(2**31), 2**63 - 1)
    units[100:120] = struct.pack(">qiq", 2**63 - 1, 2**31 - 1, -1)
    queue.write_bytes(bytes(units))
    contents = {
        "commitlog/notes.txt": b"x" * 70_000,
        f"commitlog/{1 << 16:020d}": b"cut",
        f"commitlog/{12345:020d}": bytes(1 << 16),
        "commitlog/folder/in it": b"y",
        f"consumequeue/T/1/{4000:020d}": b"",
        f"consumequeue/T/1/{210:020d}": bytes(range(200)),
        f"consumequeue/T/1/{2**63 + 200:020d}"[:60]: b"z" * 200,
        f"consumequeue/T/01/{0:020d}": b"1" * 200,
        "consumequeue/T/+7/none": b"2",
        "config/topics.json": b"{ broken",
        "config/consumerOffset.json": b"\xff\xfe",
        "config/delayOffset.json": b'{"offsetTable":{1:9}}',
        "checkpoint": b"\0\0\0\0\0\0\0\7\1",
        "index/20240101000000000": b"too short",
        "index/not one": bytes(10) + b"1",
        "abort": b"not empty",
        "lock": b"",
    }
    for name, content in contents.items():
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_bytes(content)
    (store / "consumequeue" / "T" / "007" / "empty").mkdir(parents=True)
    os.utime(log, ns=(10**18, 10**18))
    return store


@slow_proof
def test_what_no_broker_takes_comes_back_too(spark: SparkSession, tmp_path: Path) -> None:
    store = sick_store(tmp_path / "store")
    assert differing(tree(found_and_exported(spark, store, tmp_path)), tree(store)) == []
    entries = rows(spark, tmp_path / "lake", t.CONSUME_QUEUE, "topic = 'T' AND queueId = 0")
    told = {row["queueOffset"]: (row["physicOffset"], row["size"], row["tagsCode"]) for row in entries}
    assert told[1] == (-5, -(2**31), 2**63 - 1)
    assert told[5] == (2**63 - 1, 2**31 - 1, -1)
    assert sorted(told) == [0, 1, 2, 3, 4, 5]
    assert {row["offset"] for row in rows(spark, tmp_path / "lake", t.DELAY_OFFSET)} == {9}


@slow_proof
def test_verify_tells_the_tables_of_what_no_broker_takes_right(spark: SparkSession, tmp_path: Path, pullsim: Pullsim) -> None:
    store = sick_store(tmp_path / "store")
    import_as(spark, tmp_path / "lake", store, as_found=True)
    code, out, err = pullsim("verify", store, "--lake", tmp_path / "lake")
    assert code == 1, err
    assert "MAPPED_FILE commitlog/notes.txt" in out
    assert "QUEUE_NAME consumequeue/T/007" in out
    assert [line for line in out.splitlines() if line.startswith("TABLE_")] == []


@pytest.mark.parametrize("then_started", [False, pytest.param(True, marks=slow_proof)])
def test_a_replay_refuses_a_store_as_it_was_found(small_store: Path, tmp_path: Path, pullsim: Pullsim, *, then_started: bool) -> None:
    store, lake, requests = tmp_path / "store", tmp_path / "lake", tmp_path / "requests.jsonl"
    shutil.copytree(small_store, store)
    (store / "abort").write_bytes(b"")
    pull = '{"request":{"group":"g","topic":"TopicTest","queueId":0,"offset":0,"maxMsgNums":1,"filter":null}}\n'
    requests.write_text(pull, encoding="utf-8")
    assert pullsim("import", store, "--lake", lake, "--as-found")[0] == 0
    code, _, err = pullsim("replay", "--lake", lake, "--requests", requests, "--out", tmp_path / "out.jsonl")
    assert code == 2
    assert "import it without --as-found" in err
    assert not (tmp_path / "out.jsonl").exists()
    if then_started:
        assert pullsim("import", store, "--lake", lake)[0] == 0
        assert pullsim("replay", "--lake", lake, "--requests", requests, "--out", tmp_path / "out.jsonl")[0] == 0
