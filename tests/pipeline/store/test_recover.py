"""Recovery as the broker's load, start and clean shutdown: compared with every recorded one, and rule by rule on stores made for it."""

from __future__ import annotations

import hashlib
import json
import resource
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.files.store_files import StoreFiles
from pipeline.main import run
from pipeline.settings.settings import BrokerSettings
from pipeline.store.filter_bit_maps import bit_map_of, bloom_filter
from pipeline.store.recover import run_recover
from store_format.files.changed_files import ChangedFiles, changed_ranges
from store_format.files.files import FilePath
from store_format.index.index_dispatch import messages_to_index
from store_format.index.index_file import index_keys, indexed_messages
from store_format.java.string_hash import string_hash, string_hashes
from store_format.log.dispatch_request import read_requests
from store_format.queue.consume_queue import encode_units, units_of
from store_format.queue.consume_queue_dispatch import put_message_position_info
from store_format.queue.running_queue import Queue
from store_format.record.message import Host, Message, body_crc32, decode, decode_properties, decode_text, encode, encode_properties
from store_format.record.record_columns import Slices
from store_format.store.reput import read_mismatched
from tests.makers.made_store import Record, make_store
from tests.makers.stored_bytes import StoredBytes
from tests.runs.sampling import sampled
from tests.truth.golden import names, needs_golden, recovery
from tests.truth.places import PROJECT
from udfs.filters.bloom_filter import BloomFilter

LOG_FILE, QUEUE_FILE = 1000, 60
LONG_BYTES = 3 << 29
PRE_BLANK = (0, 2147483647, 0)
HOST = Host(address=bytes([127, 0, 0, 1]), port=10911)


def told_of(store: Path, config: dict[str, Any], *options: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(
        json.dumps(run_recover(str(store), settings=BrokerSettings.from_sources(header=config, options=options)))
    )
    return told


def every_file(store: Path) -> dict[str, tuple[int, bytes]]:
    return {str(path.relative_to(store)): (path.stat().st_mtime_ns, path.read_bytes()) for path in store.rglob("*") if path.is_file()}


# the recorded recoveries ---------------------------------------------------------------------------------------------------------------


@needs_golden
@pytest.mark.parametrize("name", names("recover", "*.json"))
def test_a_store_recovers_as_in_the_broker(stores: Path, name: str) -> None:
    recorded = recovery(name)
    store = stores / recorded["store"]
    before = every_file(store)
    assert told_of(store, recorded["config"]) == recorded
    assert every_file(store) == before


# with an abort file, the index is loaded into a private mapping, which counts as memory
@pytest.mark.parametrize("long", sampled([("checkpoint", "lock", "config/topics.json", "index/20260101000000000"), ("abort",)], 1))
def test_files_take_no_memory_beyond_the_bytes_of_their_formats(long: tuple[str, ...], tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "out.json"
    make_store(store, [Record(stamp=stamp) for stamp in range(20)], log_file=LOG_FILE, queue_file=QUEUE_FILE)
    for name in long:
        (store / name).parent.mkdir(exist_ok=True)
        with (store / name).open("wb") as file:
            file.write(bytes(7) + b"\1")
            file.truncate(LONG_BYTES)
    sizes = (f"--set=mappedFileSizeCommitLog={LOG_FILE}", f"--set=mappedFileSizeConsumeQueue={QUEUE_FILE}")
    command = (sys.executable, "-m", "pipeline.main", "recover", str(store), "--out", str(out), *sizes)
    # a limit for memory that is no mapped file: pullsim itself takes a third of it
    limited = partial(resource.setrlimit, resource.RLIMIT_DATA, (LONG_BYTES, LONG_BYTES))
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, preexec_fn=limited)
    assert (done.returncode, done.stderr) == (0, "")
    recovered = json.loads(out.read_text(encoding="utf-8"))
    assert recovered["start"] == "ok"
    if "checkpoint" in long:
        assert recovered["before"]["checkpoint"] == {"physicMsgTimestamp": 1, "logicsMsgTimestamp": 0, "indexMsgTimestamp": 0}
        assert {file["path"]: file["size"] for file in recovered["afterShutdown"]["files"]}["checkpoint"] == LONG_BYTES


@needs_golden
def test_lengths_of_files_are_taken_from_the_files(stores: Path) -> None:
    recorded = recovery("torn-tail-garbage")
    assert told_of(stores / "torn-tail-garbage", {})["afterShutdown"] == recorded["afterShutdown"]


@needs_golden
def test_the_command_writes_what_was_found(stores: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    assert run(["recover", str(stores / "torn-cq-behind"), "--out", str(out)]) == 0
    assert json.loads(out.read_text(encoding="utf-8"))["afterStart"] == recovery("torn-cq-behind")["afterStart"]
    assert "start dispatches 40 messages again" in capsys.readouterr().out


def test_the_command_refuses_what_is_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recover", str(tmp_path / "none"), "--out", str(tmp_path / "out.json")]) == 2
    assert "no such directory" in capsys.readouterr().err


# stores made for a rule ----------------------------------------------------------------------------------------------------------------


SIZES = {"mappedFileSizeCommitLog": LOG_FILE, "mappedFileSizeConsumeQueue": QUEUE_FILE, "maxHashSlotNum": 10, "maxIndexNum": 50}


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Twenty messages over some log files, eight to a file, the queues gone; with a checkpoint of zeros."""
    records = [Record(queue_id=number % 2, tag="A", stamp=1000 + number, body=bytes(20)) for number in range(20)]
    store = make_store(tmp_path / "store", records, log_file=LOG_FILE, queue_file=QUEUE_FILE).path
    shutil.rmtree(store / "consumequeue")
    return store


def first_record_of(store: Path, name: int) -> Path:
    return store / "commitlog" / f"{name:020d}"


def overwrite(path: Path, at: int, data: bytes) -> None:
    raw = bytearray(path.read_bytes())
    raw[at : at + len(data)] = data
    path.write_bytes(raw)


def test_start_dispatches_what_no_queue_has(made: Path) -> None:
    told = told_of(made, SIZES)
    assert (told["redispatchedInLoad"], told["start"], told["redispatchedInStart"]) == (0, "ok", 20)
    assert [queue["maxOffsetInQueue"] for queue in told["afterStart"]["queues"]] == [10, 10]
    assert told["afterStart"]["checkpointInMemory"]["logicsMsgTimestamp"] == 1019


def test_load_dispatches_after_a_kill(made: Path) -> None:
    (made / "abort").touch()
    told = told_of(made, SIZES)
    assert (told["redispatchedInLoad"], told["redispatchedInStart"], told["afterShutdown"]["abort"]) == (20, 0, False)


@pytest.mark.parametrize(("role", "physic"), [("SLAVE", 1019), ("ASYNC_MASTER", 0)])
def test_only_a_slave_sets_the_time_of_the_log_when_it_dispatches(made: Path, role: str, physic: int) -> None:
    told = told_of(made, SIZES, f"brokerRole={role}")
    assert told["afterShutdown"]["checkpoint"]["physicMsgTimestamp"] == physic


def test_start_never_ends_before_a_missing_file(made: Path) -> None:
    first_record_of(made, LOG_FILE).unlink()
    told = told_of(made, SIZES)
    assert told["start"] == "timeout"
    assert "afterShutdown" not in told
    assert told["afterStart"]["abort"] is False


@pytest.mark.parametrize(("abort", "started"), [(False, "timeout"), (True, "timeout")])
def test_nothing_is_dispatched_with_duplication(made: Path, abort: bool, started: str) -> None:
    if abort:
        (made / "abort").touch()
    told = told_of(made, SIZES, "duplicationEnable=true")
    assert (told["redispatchedInLoad"], told["redispatchedInStart"], told["start"]) == (0, 0, started)


@pytest.mark.parametrize(("broker_id", "started"), [(0, "ok"), (1, "timeout")])
def test_a_bad_record_stops_all_but_a_master_which_passes_over_the_rest_of_the_file(made: Path, broker_id: int, started: str) -> None:
    whole = told_of(made, SIZES)
    # three more files make the first one older than what load looks at
    assert len(whole["afterLoad"]["commitLogFiles"]) == 3
    torn = first_record_of(made, 0)
    size = int.from_bytes(torn.read_bytes()[:4], "big")
    (made / "commitlog").joinpath(f"{3 * LOG_FILE:020d}").write_bytes(bytes(LOG_FILE))
    overwrite(torn, size + 4, b"oops")
    told = told_of(made, SIZES, f"brokerId={broker_id}")
    assert told["start"] == started
    in_first = (LOG_FILE - 8) // size
    assert told["redispatchedInStart"] == (20 - in_first + 1 if broker_id == 0 else 1)


@pytest.mark.parametrize("setting", ["messageDelayLevel=1s 5q", "messageDelayLevel= 1s"])
def test_load_fails_on_delay_levels_that_are_none(made: Path, setting: str) -> None:
    told = told_of(made, SIZES, setting)
    assert (told["load"], told["afterLoad"]) == (False, None)


@pytest.mark.parametrize(("version", "goes_on"), [("4.9.3", False), ("4.9.8", True), ("5.5.0", True)])
def test_with_multi_dispatch_a_message_without_properties_stops_a_broker_4_9_3(tmp_path: Path, version: str, goes_on: bool) -> None:
    store = make_store(tmp_path / "store", [Record(tag="A"), Record(tag=None)], log_file=LOG_FILE, queue_file=QUEUE_FILE).path
    shutil.rmtree(store / "consumequeue")
    settings = ("enableMultiDispatch=true", f"rulesVersion={version}")
    told = told_of(store, SIZES, *settings)
    dispatched = told["redispatchedInLoad"] + told["redispatchedInStart"]
    assert (told["start"], dispatched) == (("ok", 2) if goes_on else ("timeout", 1))
    (store / "abort").touch()
    assert told_of(store, SIZES, *settings)["load"] is goes_on


@pytest.mark.parametrize(
    ("version", "topic", "name", "is_found"),
    [
        ("4.9.8", "T", "%LMQ%a", True),
        ("4.9.8", "%RETRY%g", "%LMQ%a", True),
        ("5.5.0", "T", "%LMQ%a", True),
        ("5.5.0", "%DLQ%g", "%LMQ%a", True),
        *(("5.5.0", topic, "%LMQ%a", False) for topic in ("%RETRY%g", "rmq_sys_x", "SCHEDULE_TOPIC_XXXX")),
        ("5.5.0", "T", "%LMQ%/a", False),
    ],
)
def test_messages_get_entries_in_further_queues(tmp_path: Path, version: str, topic: str, name: str, is_found: bool) -> None:
    # the text after the tag is more properties; the real broker did the same (tests/long/test_further_queues_oracle.py)
    tag = f"A\x02INNER_MULTI_DISPATCH\x01{name}\x02INNER_MULTI_QUEUE_OFFSET\x010"
    store = make_store(tmp_path / "store", [Record(topic=topic, tag=tag)], log_file=LOG_FILE, queue_file=QUEUE_FILE).path
    shutil.rmtree(store / "consumequeue")
    told = told_of(store, SIZES, "enableMultiDispatch=true", "enableLmq=true", f"rulesVersion={version}")
    assert told["start"] == "ok"
    paths = [file["path"].split("/") for file in told["afterShutdown"]["files"]]
    assert {path[1] for path in paths if path[0] == "consumequeue"} == ({topic, name} if is_found else {topic})


def test_a_queue_beyond_the_log_keeps_the_abort_file(made: Path) -> None:
    # an entry whose message begins before the log's end, and by its size ends far after it
    folder = made / "consumequeue" / "T" / "0"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}").write_bytes(encode_units([0], [2147483647], [0]).ljust(QUEUE_FILE, b"\0"))
    told = told_of(made, SIZES)
    assert (told["start"], told["redispatchedInStart"], told["afterShutdown"]["abort"]) == ("ok", 0, True)


def test_files_of_an_extension_without_its_queue_are_written_over(made: Path) -> None:
    lying = made / "consumequeue_ext" / "T" / "0" / f"{0:020d}"
    lying.parent.mkdir(parents=True)
    lying.write_bytes(b"\x07" * 300)
    told = told_of(made, SIZES, "enableConsumeQueueExt=true")
    units = b"".join(np.array([(20, 65, 1000 + 2 * number, 0)], ">i2,>i8,>i8,>i2").tobytes() for number in range(10))
    recorded = {file["path"]: file for file in told["afterShutdown"]["files"]}
    assert recorded["consumequeue_ext/T/0/00000000000000000000"]["sha256"] == hashlib.sha256(units + b"\x07" * 100).hexdigest()


def test_bit_maps_need_what_evaluates_expressions(made: Path) -> None:
    on = BrokerSettings.from_sources(options=["enableConsumeQueueExt=true", "enableCalcFilterBitMap=true"])
    assert bloom_filter(on) == BloomFilter(k=3, m=112)
    (made / "config").mkdir()
    bloom = {"bitPos": [0, 9, 111], "bitNum": 112}
    data = {"topic": "T", "consumerGroup": "g", "expression": "a = '1'", "expressionType": "SQL92", "bloomFilterData": bloom, "deadTime": 1}
    table = {"filterDataByTopic": {"T": {"topic": "T", "groupFilterData": {"g": data}}}}
    (made / "config" / "consumerFilter.json").write_text(json.dumps(table), encoding="utf-8")
    bits = bit_map_of(StoreFiles(str(made)), on)
    assert bits is not None
    assert (bits("T", {"a": "1"}), bits("T", {}), bits("U", {"a": "1"})) == (bytes([1, 2, *[0] * 11, 128]), bytes(14), None)
    bloom["bitPos"] = [0, 9, 113]  # BitsArray.check throws, and dispatch goes on without a bit map
    (made / "config" / "consumerFilter.json").write_text(json.dumps(table), encoding="utf-8")
    bits = bit_map_of(StoreFiles(str(made)), on)
    assert bits is not None
    assert (bits("T", {"a": "1"}), bits("T", {})) == (None, bytes(14))


# entries of a queue --------------------------------------------------------------------------------------------------------------------


def no_files() -> ChangedFiles:
    def read(path: FilePath) -> Any:
        raise AssertionError(path)

    return ChangedFiles(StoredBytes(read, is_there=False))


def put(queue: Queue, store: ChangedFiles, *messages: tuple[int, int, int]) -> None:
    """Put (offset in the log, size, offset in the queue)."""
    physic, sizes, offsets = np.array(messages, np.int64).T
    put_message_position_info(store, queue, physic, sizes, np.zeros(len(sizes), np.int64), offsets)


def entries(queue: Queue, store: ChangedFiles) -> list[tuple[int, int, int]]:
    found = []
    for file in queue.files:
        found += units_of(store.content(queue.path(file.name)))[: file.wrote // 20].tolist()
    return found


def new_queue() -> Queue:
    return Queue(topic="T", queue_id=0, folder=("consumequeue", "T", "0"), file_size=QUEUE_FILE)


@pytest.mark.parametrize(
    ("messages", "found"),
    [
        ([(100, 10, 0), (110, 10, 1)], [(100, 10, 0), (110, 10, 0)]),
        # what ends no later than the last one is there already, whatever its offset
        ([(100, 10, 0), (90, 20, 1)], [(100, 10, 0)]),
        # an offset below the end is, too; but offset 0 is not compared
        ([(100, 10, 0), (110, 10, 1), (120, 10, 1)], [(100, 10, 0), (110, 10, 0)]),
        ([(100, 10, 0), (110, 10, 0)], [(100, 10, 0), (110, 10, 0)]),
        # one that is too great is put where the queue ends
        ([(100, 10, 0), (110, 10, 7)], [(100, 10, 0), (110, 10, 0)]),
        # a queue without files begins with the file of its first entry
        ([(100, 10, 5), (110, 10, 6)], [PRE_BLANK, PRE_BLANK, (100, 10, 0), (110, 10, 0)]),
        ([(100, 10, 3)], [(100, 10, 0)]),
        # below 0 it is ignored, and the file it has made is filled up by the next one
        ([(100, 10, -1), (110, 10, 1), (120, 10, 2)], [PRE_BLANK, (110, 10, 0), (120, 10, 0)]),
    ],
)
def test_messages_are_put_behind_the_last_entry(messages: list[tuple[int, int, int]], found: list[tuple[int, int, int]]) -> None:
    at_once, one_by_one = no_files(), no_files()
    first, second = new_queue(), new_queue()
    put(first, at_once, *messages)
    for message in messages:
        put(second, one_by_one, message)
    assert entries(first, at_once) == entries(second, one_by_one) == found
    assert first == second


def test_a_full_file_is_followed_by_another_even_for_a_message_that_is_ignored() -> None:
    store, queue = no_files(), new_queue()
    put(queue, store, (0, 10, 0), (10, 10, 1), (20, 10, 2))
    assert [file.name for file in queue.files] == [f"{0:020d}"]
    put(queue, store, (30, 10, 1))
    assert [(file.name, file.wrote) for file in queue.files] == [(f"{0:020d}", QUEUE_FILE), (f"{QUEUE_FILE:020d}", 0)]
    assert queue.max_physic_offset == 30


def test_pre_blanks_set_the_least_offset() -> None:
    store, queue = no_files(), new_queue()
    put(queue, store, (0, 10, 4))
    assert (queue.min_logic_offset, [file.from_offset for file in queue.files]) == (80, [60])


@pytest.mark.parametrize(("count", "last"), [(0, -1), (1, 10), (2, 20), (3, None)])
def test_the_last_offset_of_a_full_file_throws(count: int, last: int | None) -> None:
    store, queue = no_files(), new_queue()
    for number in range(count):
        put(queue, store, (10 * number, 10, number))
    assert queue.last_offset(store) == last


# messages ------------------------------------------------------------------------------------------------------------------------------


def message(topic: str, properties: dict[str, str], body: bytes = b"") -> bytes:
    return encode(
        Message(
            queue_id=0,
            queue_offset=0,
            physic_offset=0,
            born_timestamp=0,
            born_host=HOST,
            store_timestamp=5000,
            store_host=HOST,
            body=body,
            body_crc=body_crc32(body),
            topic=topic.encode(),
            properties=encode_properties(properties),
        )
    )


SCHEDULE = "SCHEDULE_TOPIC_XXXX"


@pytest.mark.parametrize(
    ("topic", "properties", "in_load", "in_start"),
    [
        ("T", {"TAGS": "Aa", "DELAY": "2"}, 2112, 2112),
        ("T", {}, 0, 0),
        (SCHEDULE, {"TAGS": "Aa", "DELAY": "2"}, 2112, 5200),
        (SCHEDULE, {"TAGS": "Aa", "DELAY": "0"}, 2112, 2112),
        (SCHEDULE, {"TAGS": "Aa"}, 2112, 2112),
        (SCHEDULE, {"TAGS": "Aa", "DELAY": "x"}, None, None),
        (SCHEDULE, {"DELAY": "2147483648"}, None, None),
    ],
)
def test_a_delayed_message_gets_its_time_in_start_only(
    topic: str, properties: dict[str, str], in_load: int | None, in_start: int | None
) -> None:
    raw = np.frombuffer(message(topic, properties), np.uint8)
    for deliver, code in ((None, in_load), (lambda level, stored: stored + 100 * level, in_start)):
        requests = read_requests(raw, np.zeros(1, np.int64), deliver)
        assert requests.tags_code.tolist() == ([] if code is None else [code])


def test_a_record_whose_lengths_do_not_add_up_is_passed_over_by_its_size() -> None:
    raw = bytearray(message("Topic", {"a": "b"}, b"body"))
    whole = len(raw)
    raw[:4] = (whole + 16).to_bytes(4, "big")
    assert read_mismatched(np.frombuffer(bytes(raw), np.uint8)) == (whole + 16, whole)
    # its parts are read before they are added up
    assert read_mismatched(np.frombuffer(bytes(raw[:-1]), np.uint8)) is None
    raw[:4] = (2).to_bytes(4, "big")
    assert read_mismatched(np.frombuffer(bytes(raw), np.uint8)) is None


@pytest.mark.parametrize(
    ("text", "code"),
    [("", 0), ("Aa", 2112), ("BB", 2112), ("polygenelubricants", -(2**31)), ("🚀", 1773027), ("hello", 99162322)],
)
def test_hashes_are_those_of_java(text: str, code: int) -> None:
    raw = np.frombuffer(b"_" + text.encode() + b"_", np.uint8)
    at = Slices(np.ones(1, np.int64), np.array([len(raw) - 2], np.int64))
    assert (string_hash(text), string_hashes(raw, at).tolist()) == (code, [code])


@given(st.binary(max_size=30) | st.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_bytes_hash_as_the_text_they_decode_to(raw: bytes) -> None:
    at = Slices(np.zeros(1, np.int64), np.array([len(raw)], np.int64))
    assert string_hashes(np.frombuffer(raw, np.uint8), at).tolist() == [string_hash(decode_text(raw))]


KEYS = st.none() | st.text("a# é🚀\ud800", max_size=8)
MESSAGES = st.tuples(st.text("Té🚀", min_size=1, max_size=4), KEYS, KEYS, st.sampled_from([0, 4, 8, 12]))


@given(st.lists(MESSAGES, max_size=5))
def test_the_keys_of_many_messages_are_those_of_each(found: list[tuple[str, str | None, str | None, int]]) -> None:
    raw, positions, each = b"", [], []
    for topic, uniq_key, keys, sys_flag in found:
        properties = {name: text for name, text in (("UNIQ_KEY", uniq_key), ("KEYS", keys)) if text}
        stored = b"\x02".join(f"{name}\x01{text}".encode("utf-8", "surrogatepass") for name, text in properties.items())
        one = encode(replace(decode_or_fail(message(topic, {})), properties=stored, sys_flag=sys_flag, physic_offset=len(raw)))
        each.append((len(raw), 5000, index_keys(topic, decode_properties(stored), sys_flag)))
        positions.append(len(raw))
        raw += one
    told = messages_to_index(read_requests(np.frombuffer(raw, np.uint8), np.array(positions, np.int64), None))
    expected = indexed_messages(each)
    assert told.hashes.tolist() == expected.hashes.tolist()
    assert told.key_ends.tolist() == expected.key_ends.tolist()
    assert (told.offsets.tolist(), told.stamps.tolist()) == (expected.offsets.tolist(), expected.stamps.tolist())


def decode_or_fail(raw: bytes) -> Message:
    decoded = decode(raw)
    assert decoded is not None
    return decoded


# ranges over files ---------------------------------------------------------------------------------------------------------------------


@given(
    st.binary(max_size=40),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 40), st.binary(max_size=12)), max_size=8),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_ranges_over_a_file_are_what_writing_into_it_gives(
    base: bytes, is_new: bool, writes: list[tuple[int, bytes]], start: int, stop: int
) -> None:
    path = ("folder", "file")
    store = ChangedFiles(StoredBytes(lambda _: np.frombuffer(base, np.uint8), is_there=not is_new))
    store.create(path, 52)
    model = bytearray((b"" if is_new else base).ljust(52, b"\0"))
    for at, data in writes:
        store.write(path, at, np.frombuffer(data, np.uint8))
        model[at : at + len(data)] = data
    assert store.content(path).tobytes() == bytes(model)
    assert b"".join(piece.tobytes() for piece in store.pieces(path, 7)) == bytes(model)
    joined = store.joined()[path]
    assert joined.lay_over(np.frombuffer(base, np.uint8), start, stop).tobytes() == bytes(model[start:stop])
    ends = [at + len(data) for at, data in joined.ranges]
    assert all(end < at for end, (at, _) in zip(ends, joined.ranges[1:], strict=False))


def test_a_file_that_is_not_touched_is_not_copied() -> None:
    base = np.zeros(10, np.uint8)
    store = ChangedFiles(StoredBytes(lambda _: base))
    assert store.content(("a",)) is base


def test_a_deleted_file_comes_back_empty() -> None:
    store = ChangedFiles(StoredBytes(lambda _: np.ones(4, np.uint8)))
    store.delete(("a",))
    assert (store.deleted, store.is_created(("a",))) == ({("a",)}, False)
    store.create(("a",), 4)
    assert store.content(("a",)).tolist() == [0, 0, 0, 0]
    assert store.is_created(("a",))


@given(st.binary(max_size=20_000), st.lists(st.tuples(st.integers(0, 30_000), st.binary(min_size=1, max_size=5000)), max_size=4))
def test_the_pages_that_differ_are_found(former: bytes, writes: list[tuple[int, bytes]]) -> None:
    now = bytearray(former)
    for at, data in writes:
        now = now.ljust(at + len(data), b"\0")
        now[at : at + len(data)] = data
    store = ChangedFiles(StoredBytes(lambda _: np.frombuffer(former, np.uint8)))
    store.set_length(("a",), len(now))
    for at, changed in changed_ranges(np.frombuffer(former, np.uint8), np.frombuffer(bytes(now), np.uint8)):
        store.write(("a",), at, changed)
    assert store.content(("a",)).tobytes() == bytes(now)
