"""Verify: the real broker's clean stores have no findings, and each kind of damage has the finding that names it."""

from __future__ import annotations

import shutil
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.files.store_files import StoreFiles
from pipeline.schema import tables as t
from pipeline.settings.settings import BrokerSettings
from pipeline.verify.verify_log import Checked
from pipeline.verify.verify_store import plan_of
from store_format.config.config_files import encode_consumer_offsets
from store_format.config.config_rows import ConsumerOffsets
from tests.makers.lakes import MESSAGES, import_as, tiny_store
from tests.makers.report_lakes import write_rows
from tests.runs.in_session import pullsim_in
from tests.runs.sampling import sampled, slow_proof
from tests.truth.golden import meta_of, needs_golden
from tests.truth.golden5 import needs_golden5, unpacked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.runs.in_session import Pullsim

# stores whose files the broker wrote and nobody took away; the others lack commit log or queue files
WHOLE = ("basic", "cleaned", "small", "window")
Damage = Callable[[Path], object]


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


def checked_files(store: Path, sizes: Mapping[str, int] | None = None) -> list[Checked]:
    plan = plan_of(StoreFiles(str(store)), BrokerSettings(sizes or {}), topic_tasks=8)
    return [*plan.odd, *(one for task in range(plan.tasks) for one in plan.run(task))]


def findings(store: Path, sizes: Mapping[str, int] | None = None) -> set[tuple[str, str]]:
    """(code, path) of each finding about single files, and CQ_MISSING for queues with fewer entries than messages."""
    checked = checked_files(store, sizes)
    queued: Counter[tuple[str, int]] = Counter()
    for one in checked:
        queued.update(one.queued)
    unqueued = {("CQ_MISSING", f"{topic}/{queue_id}") for (topic, queue_id), count in queued.items() if count > 0}
    return unqueued | {(found.code, found.path) for one in checked for found in one.findings}


@needs_golden
@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_store_of_the_broker_has_no_findings(stores: Path, name: str) -> None:
    assert findings(stores / name) == set()


@needs_golden
def test_a_queue_extension_is_checked_unit_by_unit(stores: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(stores / "ext", store)
    # the one file of that store that no broker wrote
    (store / "config" / "consumerFilter.json").unlink()
    assert findings(store) == set()
    path = next((store / "consumequeue_ext").glob("*/*/*"))
    overwrite(path, 2 + 8, struct.pack(">q", 1))
    assert {code for code, _ in findings(store)} == {"CQ_NO_EXT"}
    raw = path.read_bytes()
    overwrite(path, -2, b"x")
    assert ("EXT_TAIL", str(path.relative_to(store))) in findings(store)
    path.write_bytes(raw)
    overwrite(path, 0, struct.pack(">h", 19))
    assert ("EXT_DIFFERS", str(path.relative_to(store))) in findings(store)
    overwrite(path, 2 + 8 + 8, struct.pack(">h", 2**15 - 1))  # a bit map that is longer than the file
    assert ("EXT_BAD_UNIT", str(path.relative_to(store))) in findings(store)


@needs_golden
def test_bytes_after_the_last_entry_of_an_index_file_are_found(stores: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(stores / "basic", store)
    path = sorted((store / "index").iterdir())[-1]
    overwrite(path, -2, b"x")
    config = meta_of(stores / "basic")["config"]
    sizes = {name: int(config[name]) for name in ("maxHashSlotNum", "maxIndexNum")}  # they cannot be found from such files
    assert findings(store, sizes) == {("INDEX_TAIL", str(path.relative_to(store)))}


@needs_golden5
@pytest.mark.parametrize("name", [*WHOLE, "ext", "lmq", "replica"])
def test_a_whole_store_of_broker_5_5_0_has_no_findings(name: str) -> None:
    assert findings(unpacked("stores") / "stores" / name) == set()


@needs_golden5
def test_the_store_of_a_broker_5_5_0_with_clients_has_no_findings() -> None:
    store = unpacked("live") / "live" / "store"
    assert findings(store) == set()
    told = {one.path: one.result for one in checked_files(store)}
    names = ("consumerOrderInfo.json", "timermetrics", "transactionMetrics")
    assert "not checked" not in {told[f"config/{name}{end}"] for name in names for end in ("", ".bak")}


@needs_golden5
def test_of_a_store_that_lost_its_queues_the_lack_of_entries_alone_is_found() -> None:
    found = findings(unpacked("stores") / "stores" / "preblank0")
    assert {code for code, _ in found} == {"CQ_MISSING"}
    assert {path.rpartition("/")[0] for _, path in found} == {"TopicTest", "audit.log-v1", "BatchTopic"}


@needs_golden5
def test_an_empty_last_file_of_the_log_stops_a_broker_4_9_only() -> None:
    (found,) = [one for one in checked_files(unpacked("stores") / "stores" / "torn-last-file-length-0") if one.findings]
    assert found.path == "commitlog/00000000000000393216"
    assert [(one.code, "5.5.0 deletes it" in one.text) for one in found.findings] == [("MAPPED_FILE", True)]


TORN = {
    "torn-bad-crc": "LOG_BAD_CRC",
    "torn-bad-size": "LOG_BAD_RECORD",
    "torn-bad-magic-old-cq-missing": "LOG_NO_RECORD",
    "torn-cq-ahead": "CQ_BEYOND_LOG",
    "torn-cq-behind-one": "CQ_MISSING",
    "torn-cq-file-missing": "FILES_MISSING",
    "torn-cq-wrong-size": "MAPPED_FILE",
    "torn-ext-missing": "CQ_NO_EXT",
    "torn-index-corrupt": "INDEX_CHAINS",
    "torn-index-short": "INDEX_LENGTH",
    "torn-tail-garbage": "LOG_TAIL",
    "torn-zero-middle": "CQ_NO_RECORD",
}


@needs_golden
@pytest.mark.parametrize("name", TORN)
def test_what_was_torn_is_named(stores: Path, name: str) -> None:
    assert TORN[name] in {code for code, _ in findings(stores / name)}


@needs_golden5
@pytest.mark.parametrize("name", sampled(sorted(set(TORN) - {"torn-index-corrupt"}), 4))
def test_what_was_torn_in_a_store_of_5_5_0_is_named(name: str) -> None:
    assert TORN[name] in {code for code, _ in findings(unpacked("stores") / "stores" / name)}


def test_the_store_beside_the_tests_has_no_findings(small_store: Path) -> None:
    assert findings(small_store) == set()


def overwrite(path: Path, at: int, data: bytes) -> None:
    raw = bytearray(path.read_bytes())
    raw[at : at + len(data)] = data
    path.write_bytes(raw)


def log_file(store: Path, number: int = 0) -> Path:
    return sorted((store / "commitlog").iterdir())[number]


def queue_file(store: Path, topic: str = "TopicTest") -> Path:
    return sorted((store / "consumequeue" / topic / "0").iterdir())[0]


def index_file(store: Path) -> Path:
    return sorted((store / "index").iterdir())[0]


def exchange_first_entries(store: Path) -> None:
    """Exchange the first two entries of a queue, so that each points to a message of another offset."""
    raw = queue_file(store).read_bytes()
    overwrite(queue_file(store), 0, raw[20:40] + raw[:20])


def point_elsewhere(store: Path) -> None:
    """Let an entry of a full index file point to the message of an earlier entry, which has other keys."""
    raw = index_file(store).read_bytes()
    overwrite(index_file(store), -200 + 4, raw[-300 + 4 : -300 + 12])


def write(store: Path, name: str, content: bytes) -> None:
    (store / name).parent.mkdir(exist_ok=True)
    (store / name).write_bytes(content)


def config(offset: int) -> bytes:
    return b'{\n\t"offsetTable":{\n\t\t"TopicTest@group":{0:%d\n\t\t}\n\t}\n}' % offset


# first record of the store: where its body begins (IPv4 hosts: 48 + 8 + 8 + 8 + 16), and its parts before that
BODY = 88
LAST = 6  # number of the last file of that store's log

DAMAGES: dict[str, tuple[Damage, set[str]]] = {
    "another body": (lambda store: overwrite(log_file(store), BODY, b"\0\0\0\0"), {"LOG_BAD_CRC"}),
    "a size too large": (lambda store: overwrite(log_file(store), 0, b"\x7f"), {"LOG_BAD_RECORD", "CQ_NO_RECORD", "INDEX_NO_MESSAGE"}),
    "no magic code": (lambda store: overwrite(log_file(store), 4, bytes(4)), {"LOG_NO_RECORD", "CQ_NO_RECORD", "INDEX_NO_MESSAGE"}),
    "another physicOffset": (lambda store: overwrite(log_file(store), 28, b"\1"), {"LOG_ODD_RECORD"}),
    "garbage behind the log": (lambda store: overwrite(log_file(store, LAST), -9, b"garbage"), {"LOG_TAIL"}),
    "a file made before it is needed": (lambda store: write(store, f"commitlog/{458752:020d}", bytes(65536)), set()),
    "a cut file of the log": (lambda store: write(store, f"commitlog/{log_file(store).name}", b"x"), {"MAPPED_FILE"}),
    "a log file missing": (lambda store: log_file(store, 3).unlink(), {"FILES_MISSING", "CQ_NO_RECORD", "INDEX_NO_MESSAGE"}),
    "an entry of another size": (lambda store: overwrite(queue_file(store), 8, struct.pack(">i", 91)), {"CQ_NO_RECORD", "CQ_MISSING"}),
    "an entry of another tag": (lambda store: overwrite(queue_file(store), 12, struct.pack(">q", 5)), {"CQ_TAGS_CODE"}),
    "an entry behind the log": (lambda store: overwrite(queue_file(store), 0, struct.pack(">q", 1 << 40)), {"CQ_BEYOND_LOG", "CQ_MISSING"}),
    "an entry gone": (lambda store: overwrite(queue_file(store), 20, bytes(20)), {"CQ_NOT_FULL", "CQ_TAIL", "CQ_MISSING"}),
    "entries in another order": (exchange_first_entries, {"CQ_OTHER_MESSAGE", "CQ_MISSING"}),
    "a queue gone": (lambda store: shutil.rmtree(store / "consumequeue" / "TopicTest"), {"CQ_MISSING"}),
    "another key": (lambda store: overwrite(index_file(store), -20 * 10, b"\x01"), {"INDEX_SIZES"}),
    "another message of a key": (point_elsewhere, {"INDEX_OTHER_KEY"}),
    "another first message of an index file": (
        lambda store: overwrite(index_file(store), 16, struct.pack(">q", 5)),
        {"INDEX_HEADER"},
    ),
    "an index file cut": (lambda store: index_file(store).write_bytes(index_file(store).read_bytes()[:-1]), {"INDEX_LENGTH"}),
    "a checkpoint ahead": (lambda store: overwrite(store / "checkpoint", 0, struct.pack(">q", 1 << 50)), {"CHECKPOINT_AHEAD"}),
    "a checkpoint cut": (lambda store: write(store, "checkpoint", bytes(24)), {"CHECKPOINT_LENGTH"}),
    "an offset behind its queue": (lambda store: write(store, "config/consumerOffset.json", config(61)), {"OFFSET_BEYOND_QUEUE"}),
    "the offset at the queue's end": (lambda store: write(store, "config/consumerOffset.json", config(60)), set()),
    "config that is no JSON": (lambda store: write(store, "config/topics.json", b"{"), {"CONFIG_BROKEN"}),
    "config that people wrote": (lambda store: write(store, "config/topics.json", b'{ "topicConfigTable": {} }'), {"CONFIG_DIFFERS"}),
    "an order info that is no JSON": (lambda store: write(store, "config/consumerOrderInfo.json", b"{"), {"CONFIG_BROKEN"}),
    "counts that people wrote": (lambda store: write(store, "config/timermetrics", b'{ "timingCount":{}}'), {"CONFIG_DIFFERS"}),
    "counts without numbers": (lambda store: write(store, "config/transactionMetrics", b'{"transactionCount":{"t":5}}'), {"CONFIG_BROKEN"}),
    "an abort file": (lambda store: write(store, "abort", b""), {"NOT_SHUT_DOWN"}),
    "another lock": (lambda store: write(store, "lock", b"locked"), {"LOCK_OTHER"}),
    "a file of no broker": (lambda store: write(store, "notes.txt", b"x"), set()),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found_by_its_code(small_store: Path, tmp_path: Path, name: str) -> None:
    store = tmp_path / "store"
    shutil.copytree(small_store, store)
    damage, expected = DAMAGES[name]
    damage(store)
    assert {code for code, _ in findings(store)} == expected


def test_offsets_of_many_groups_are_held_against_the_files_of_their_queues(tmp_path: Path) -> None:
    store = tiny_store(tmp_path / "store", [("T", 0), ("U", 1)])
    offsets = {
        "T@a": {0: MESSAGES},
        "U@b": {1: MESSAGES + 1},
        "T@b": {0: 1, 1: 1},
        "T@c": {0: 2**62},
        "U@d": {1: -1},
        "T@d": {0: 0},
        "None@d": {0: 5},
    }
    write(store, "config/consumerOffset.json", encode_consumer_offsets(ConsumerOffsets(offsetTable=offsets)))
    told = f"4 offsets past the end of their queue; the first of group b: U/1, {MESSAGES + 1}"
    assert [found.text for one in checked_files(store) for found in one.findings if found.code == "OFFSET_BEYOND_QUEUE"] == [told]


def test_the_command_tells_files_findings_and_their_number(small_store: Path, tmp_path: Path, pullsim: Pullsim) -> None:
    code, out, err = pullsim("verify", small_store)
    files = sorted(str(path.relative_to(small_store)) for path in small_store.rglob("*") if path.is_file())
    assert code == 0, err
    assert [line.split("\t")[0] for line in out.splitlines()] == [*files, f"{len(files)} files, 0 findings"]
    assert f"commitlog/{log_file(small_store).name}\tcommitlog\t65536\tok" in out

    store = tmp_path / "store"
    shutil.copytree(small_store, store)
    shutil.rmtree(store / "consumequeue" / "TopicTest" / "0")
    overwrite(log_file(store), BODY, b"\0\0\0\0")
    (store / "commitlog" / "\x1b[2J").write_bytes(b"x")
    code, out, _ = pullsim("verify", store)
    assert code == 1
    assert "MAPPED_FILE commitlog/\\x1b[2J: " in out
    assert "\x1b" not in out, "a terminal takes no name as a command"
    assert "CQ_MISSING consumequeue/TopicTest/0: 60 messages of the commit log without an entry" in out
    assert "LOG_BAD_CRC commitlog/00000000000000000000: byte 0: a body whose CRC-32 is not that of the record" in out
    assert out.endswith("3 findings\n")


@pytest.mark.parametrize("folder", ["none", "."])
def test_what_is_no_store_is_refused(tmp_path: Path, pullsim: Pullsim, folder: str) -> None:
    code, out, err = pullsim("verify", tmp_path / folder)
    assert (code, out) == (2, "")
    assert "expected" in err


@slow_proof
@pytest.mark.parametrize("layout", ["partitioned", "clustered"])
def test_the_tables_are_held_against_the_store(spark: SparkSession, tmp_path: Path, pullsim: Pullsim, layout: str) -> None:
    store, lake = tiny_store(tmp_path / "store", [("T", 0), ("U", 1)]), tmp_path / "lake"
    import_as(spark, lake, store, layout="partitioned" if layout == "partitioned" else "clustered")
    code, out, err = pullsim("verify", store, "--lake", lake)
    assert code == 0, out + err

    overwrite(log_file(store), 1000, b"behind the log")
    (store / "new file").write_bytes(b"new")
    code, out, _ = pullsim("verify", store, "--lake", lake)
    assert code == 1
    log = f"commitlog/{log_file(store).name}"
    assert f"LOG_TAIL {log}" in out
    assert f"TABLE_BYTES {log}: " in out
    assert "TABLE_FILE new file: a file of the store that is not in store_file" in out
    assert "TABLE_CONSTRAINT" not in out


@slow_proof  # test_constraints has what finds them
def test_a_row_that_breaks_a_constraint_is_a_finding(spark: SparkSession, tmp_path: Path, pullsim: Pullsim) -> None:
    store, lake = tiny_store(tmp_path / "store", [("T", 0), ("U", 1)]), tmp_path / "lake"
    import_as(spark, lake, store)
    write_rows(spark, lake, "b", {t.QUEUE: [{"topic": "T", "queueId": 0, "minOffset": 4, "maxOffset": 3}]})
    _, out, _ = pullsim("verify", store, "--lake", lake)
    assert "TABLE_CONSTRAINT queue: expected minOffset BETWEEN 0 AND maxOffset, found 1 rows where it is not so" in out
