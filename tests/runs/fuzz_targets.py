"""The targets of fuzzing: for each parser of bytes its seeds, and what must hold for any bytes that the parser accepts.

Seeds come from the store and the frames beside the tests, so that the fuzzers run without golden data.
"""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.files.store_files import StoreFiles
from pipeline.rows.config_tables import config_rows
from pipeline.rows.log_records import write_records
from pipeline.schema.tables import COMMIT_LOG, STORE_FILE_RANGE
from pipeline.settings.settings import BrokerSettings
from pipeline.store.message_store import store_over
from pipeline.store.store_settings import store_settings
from pipeline.verify.verify_store import plan_of
from store_format.big_endian import Bytes, Positions
from store_format.broker_version import BrokerVersion
from store_format.config import config_files as cf
from store_format.config.fastjson import parse_json, plain
from store_format.errors import CorruptStoreError, UnusableInputError
from store_format.files.mapped_files import MappedFile
from store_format.index.index_dispatch import messages_to_index
from store_format.index.index_file import IndexSizes
from store_format.index.index_service import IndexService, load_index, query_offset
from store_format.index.index_sizes import infer_index_sizes, sizes_agree
from store_format.layout import BLANK_MAGIC_CODE, CQ_UNIT, MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2
from store_format.log.commit_log import first_bad_body, walk, walk_checked
from store_format.log.dispatch_request import read_requests
from store_format.queue import consume_queue as cq
from store_format.queue import consume_queue_ext as ext
from store_format.queue.entry_lookup import look_up
from store_format.record import record_columns as rc
from store_format.record.message import Message, decode, encode
from store_format.remoting.command import RemotingCommand, SerializeType
from store_format.remoting.decoder import NettyDecoder
from store_format.remoting.errors import FrameError
from store_format.remoting.frame import decode_frame, encode_frame
from store_format.remoting.frame_columns import NO_OPAQUE, frame_columns
from store_format.remoting.headers import PullMessageRequestHeader, PullMessageResponseHeader
from store_format.remoting.heartbeat import decode_heartbeat
from store_format.remoting.message_list import client_form, decode_batch, decode_messages
from store_format.store.checkpoint import CHECKPOINT_LENGTH, decode_checkpoint, encode_checkpoint
from store_format.store.dispatcher import DispatchError
from store_format.store.entry_check import Held, check_keys, check_units
from store_format.store.recovery import FileWalk, recover_normally
from tests.makers.log_rows import batches_of
from tests.runs import fuzz_traffic as traffic
from tests.runs import fuzz_written as written
from tests.runs.fuzz_files import place, small_store
from tests.truth.places import DATA

LONGEST = (1 << 16) + 1
REFUSALS = (UnusableInputError, ext.UnitUnderflowError, DispatchError)


@dataclass(frozen=True, slots=True)
class Target:
    """A parser: its seeds, words of its language, and a function that calls it and checks the result."""

    seeds: Callable[[], list[bytes]]
    use: Callable[[bytes], None]
    words: tuple[bytes, ...] = ()


def array(raw: bytes) -> Bytes:
    return np.frombuffer(raw, np.uint8)


def file_of(raw: bytes) -> MappedFile:
    return MappedFile(name=f"{0:020d}", from_offset=0, length=len(raw), wrote=len(raw))


# commit log ---------------------------------------------------------------------------------------------------------------------------


@cache
def log_seeds() -> list[bytes]:
    """A few records of each kind, the end of a file with its BLANK, and the end of the log with the zeros after it."""
    found = []
    for path in sorted((small_store() / "commitlog").iterdir()):
        raw = path.read_bytes()
        positions = walk(array(raw), 0, len(raw), 100_000)
        edges = [*positions.positions.tolist(), positions.end]
        found += [raw[edges[0] : edges[2]], raw[edges[len(edges) // 2] : edges[len(edges) // 2 + 3]], raw[edges[-3] : edges[-1] + 40]]
    message = decode(found[0])
    assert message is not None
    found += [encode(replace(message, topic=b"t" * length, magic_code=MESSAGE_MAGIC_CODE_V2)) + found[0] for length in (100, 128, 300)]
    return found


def plain_walk(raw: bytes, version: BrokerVersion) -> list[int]:
    """The positions at which records start, found with struct alone."""
    known = {MESSAGE_MAGIC_CODE} if version == BrokerVersion.V4_9_3 else {MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2}
    found, at = [], 0
    while at + 8 <= len(raw):
        size, magic = struct.unpack_from(">ii", raw, at)
        if magic == BLANK_MAGIC_CODE or magic not in known or size < 91 or at + size > len(raw):
            break
        flags = raw[at + 39]
        body_at = at + 48 + (20 if flags & 16 else 8) + 8 + (20 if flags & 32 else 8) + 12
        if body_at + 4 > at + size:
            break
        topic_at = body_at + 4 + max(struct.unpack_from(">i", raw, body_at)[0], 0)
        length = struct.Struct(">h" if magic == MESSAGE_MAGIC_CODE_V2 else ">b")
        if topic_at + length.size > at + size or length.unpack_from(raw, topic_at)[0] < 0:
            break
        properties_at = topic_at + length.size + length.unpack_from(raw, topic_at)[0]
        if properties_at + 2 > at + size:
            break
        if properties_at + 2 + max(struct.unpack_from(">h", raw, properties_at)[0], 0) != at + size:
            break
        found.append(at)
        at += size
    return found


def use_commit_log(raw: bytes) -> None:
    for version in (BrokerVersion.V4_9_3, BrokerVersion.V5_5_0):
        _use_commit_log(raw, version)


def _use_commit_log(raw: bytes, version: BrokerVersion) -> None:
    content = array(raw)
    positions = walk(content, 0, len(raw), len(raw) // 91 + 1, version).positions
    assert positions.tolist() == plain_walk(raw, version)
    end, ended = walk_checked(content, len(raw), check_crc=True, version=version)
    recover_normally([file_of(raw)], [FileWalk(name="", end=end, ended=ended)])
    bad = first_bad_body(content, positions)
    parts = rc.locate(content, positions)
    for row, at in enumerate(positions.tolist()):
        body = raw[int(parts.body.starts[row]) :][: int(parts.body.lengths[row])]
        crc = struct.unpack_from(">i", raw, at + 8)[0]
        assert (not body or zlib.crc32(body) & 0x7FFFFFFF == crc) or bad <= row
    requests = read_requests(content, positions, lambda level, stored: level * 1000 + stored)
    messages_to_index(requests)
    _hold_entries(raw, positions, version)
    sizes = rc.prefixes(content, positions)["storeSize"].astype(np.int32)
    if len(raw):
        look_up([file_of(raw)], [len(raw)], lambda _: content, positions, sizes, version)


def _hold_entries(raw: bytes, positions: Positions, version: BrokerVersion) -> None:
    """Check that dispatch makes the right entries of messages, and that the entry check survives entries for other places."""
    content = array(raw)
    requests = read_requests(content, positions, None)
    units = np.zeros(len(requests), CQ_UNIT)
    units["physicOffset"], units["size"], units["tagsCode"] = requests.physic_offset, requests.size, requests.tags_code
    for row in range(min(len(requests), 20)):
        topic, one = requests.text(requests.topic, row) or "", slice(row, row + 1)
        queue = (topic, int(requests.queue_id[row]))
        entries = positions[one], units[one], requests.queue_offset[one], queue
        held = check_units(content, len(raw), *entries, is_lmq=False, version=version)
        start, length = int(requests.topic.starts[row]), int(requests.topic.lengths[row])
        assert held.tolist()[0] in {Held.RIGHT, Held.UNSURE} or topic.encode() != raw[start : start + length]
        check_units(content, len(raw), positions[one] + row - 3, *entries[1:], is_lmq=True, version=version)
    keys = messages_to_index(requests)
    places = np.repeat(positions[: len(requests)], np.diff(keys.key_ends, prepend=0))
    hashes = keys.hashes.astype(np.int64)
    assert set(check_keys(content, len(raw), places, hashes, version).tolist()) <= {Held.RIGHT, Held.UNSURE}
    check_keys(content, len(raw), places - 5, hashes, version)


def use_rows(raw: bytes) -> None:
    """Check that every byte of a file comes back from its rows of commit_log and store_file_range."""
    for version in (BrokerVersion.V4_9_3, BrokerVersion.V5_5_0):
        _use_rows(raw, version)


def _use_rows(raw: bytes, version: BrokerVersion) -> None:
    content, file = array(raw), file_of(raw)
    made = np.zeros(len(raw), np.uint8)
    for batch in batches_of(COMMIT_LOG, file, content, version=version):
        write_records(batch, max(len(raw), 1), lambda _: (made, 0))
    for batch in batches_of(STORE_FILE_RANGE, file, content, version=version):
        for row in batch.to_pylist():
            assert not made[row["position"] : row["position"] + len(row["bytes"])].any()
            made[row["position"] : row["position"] + len(row["bytes"])] = array(row["bytes"])
    assert pa.py_buffer(made).equals(pa.py_buffer(content))


def use_message(raw: bytes) -> None:
    for uncompress, version in product((True, False), (BrokerVersion.V4_9_3, BrokerVersion.V5_5_0)):
        message = decode(raw, uncompress_body=uncompress, version=version)
        # 4.9.3 reads a V2 record as if it were V1
        if message is not None and (version != BrokerVersion.V4_9_3 or message.magic_code != MESSAGE_MAGIC_CODE_V2):
            again = decode(encode(message), uncompress_body=uncompress, version=version)
            assert again is not None
            assert replace(again, store_size=message.store_size) == message
            assert bytes.fromhex(message.msg_id)[:4] == message.store_host.address[:4]
            message.properties_map()


# queue, extension, index, checkpoint --------------------------------------------------------------------------------------------------


@cache
def queue_seeds() -> list[bytes]:
    found = [path.read_bytes()[:1000] for path in sorted((small_store() / "consumequeue").glob("*/*/*"))[:20]]
    return [*found, struct.pack(">qiq", 0, 2147483647, 0) * 5 + found[0][:400], b""]


def use_consume_queue(raw: bytes) -> None:
    units = cq.units_of(array(raw))
    whole = len(raw) // 20 * 20
    assert cq.encode_units(*(units[name].tolist() for name in units.dtype.names or ())) == raw[:whole]
    file = replace(file_of(raw), length=max(whole, 20), wrote=whole)
    for files in ([], [file]):
        recovered = cq.recover(files, lambda _: units)
        for end in (0, 1000, 2**62, -1):
            cut = cq.truncate_dirty_logic_files(recovered, end, lambda _: units)
            assert 0 <= cut.max_offset <= len(units)
            assert 0 <= cq.correct_min_offset(cut.files, end, lambda _: units) <= len(units)


def ext_seeds() -> list[bytes]:
    units = [ext.ExtUnit(tags_code=5, msg_store_time=10**12, bit_map=bytes(size)) for size in (0, 1, 16, 300)]
    one = b"".join(map(ext.encode_unit, units))
    return [one + b"\xff\xff" + bytes(30), one + bytes(60), b"\xff\xff" + bytes(40), bytes(50)]


def use_extension(raw: bytes) -> None:
    content, file = array(raw), file_of(raw)
    at = 0
    while at < len(raw):
        unit = ext.decode_unit(content[at:])
        if unit is None:
            break
        assert ext.decode_unit(array(ext.encode_unit(unit))) == replace(unit, size=20 + len(unit.bit_map or b""))
        at += unit.size
    if not raw:
        return
    files = ext.recover([file], lambda _: content)
    for offset in (0, 20, len(raw) - 1, len(raw), 2**40):
        ext.get(files, ext.address_of(offset), lambda _: content)
        ext.truncate_by_min_address(files, ext.address_of(offset))
        ext.truncate_by_max_address(files, ext.address_of(offset), lambda _: content)


INDEX_SIZES = IndexSizes(hash_slot_num=7, index_num=40)


@cache
def index_seeds() -> list[bytes]:
    service = IndexService(sizes=INDEX_SIZES)
    for path in sorted((small_store() / "commitlog").iterdir())[:3]:
        raw = path.read_bytes()
        service.build_index(messages_to_index(read_requests(array(raw), walk(array(raw), 0, len(raw), 40).positions, None)))
    return [bytes(INDEX_SIZES.file_length), *(file.content.tobytes() for file in service.files)]


def use_index(raw: bytes) -> None:
    entries = [("20240101000000000", array(raw))]
    with contextlib.suppress(CorruptStoreError):
        infer_index_sizes(entries)
    for last_exit_ok in (True, False):
        loaded = load_index(entries, INDEX_SIZES, last_exit_ok=last_exit_ok, writable=True)
        for file in loaded.files:
            assert sizes_agree(file) in {True, False}
        try:
            found = query_offset(loaded.files, "TopicTest", "a", 40, 0, 2**63 - 1).phy_offsets
            assert len(found) <= 40
        except CorruptStoreError:
            pass
    service = IndexService(sizes=INDEX_SIZES, files=list(loaded.files))
    log = log_seeds()[0]
    service.build_index(messages_to_index(read_requests(array(log), walk(array(log), 0, len(log), 9).positions, None)))


def use_checkpoint(raw: bytes) -> None:
    found = decode_checkpoint(raw)
    again = encode_checkpoint(found, raw)
    assert decode_checkpoint(again) == found
    assert (len(again), again[24:]) == (max(CHECKPOINT_LENGTH, len(raw)), raw[24:].ljust(len(again) - 24, b"\0"))
    assert -(2**63) <= found.min_timestamp_index <= found.min_timestamp < 2**63


# config -------------------------------------------------------------------------------------------------------------------------------

CONFIG = {
    "topics": (cf.decode_topic_configs, cf.encode_topic_configs),
    "subscriptionGroup": (cf.decode_subscription_groups, cf.encode_subscription_groups),
    "consumerOffset": (cf.decode_consumer_offsets, cf.encode_consumer_offsets),
    "delayOffset": (cf.decode_delay_offsets, cf.encode_delay_offsets),
    "consumerFilter": (cf.decode_consumer_filters, cf.encode_consumer_filters),
}
_TEXTS = ["{", "}", "[", "]", ",", ":", '"', "'", "\\", "\\u0000", "\\ud83d", "\\x41", "null", "true", "-", "1e5", "0x1f", "1.5", "NaN"]
_BYTES = [b"9" * 30, b"@type", b"$ref", b"/*", b"*/", b"//\n", b"\xff", b"\xed\xa0\x80", b"\xf0\x9f\x9a\x80", b"\x1a", b"{0:1}"]
JSON_WORDS = (*map(str.encode, _TEXTS), *_BYTES)


def config_seeds(name: str) -> Callable[[], list[bytes]]:
    return lambda: [(DATA / "config" / f"{name}.json").read_bytes(), b"{}", b"null", b" "]


def use_config(name: str) -> Callable[[bytes], None]:
    decoder, encoder = CONFIG[name]

    def use(raw: bytes) -> None:
        table = decoder(raw, "x.json")
        written = encoder(table)  # type: ignore[operator]
        # members that no class of the broker knows are not written
        assert decoder(written, "x.json") == table or "extra='{" in repr(table)
        assert encoder(decoder(written, "x.json")) == written  # type: ignore[operator]

    return use


def use_fastjson(raw: bytes) -> None:
    plain(parse_json(raw, "x.json"))


CONFIG_FILES: dict[str, bytes] = {
    **{f"{name}.json": (DATA / "config" / f"{name}.json").read_bytes() for name in CONFIG},
    "consumerOrderInfo.json": b'{"table":{"T@g":{0:{"popTime":5,"i":60000,"o":[7,1,2],"c":{7:1},"l":9,"cm":3}}}}',
    "timermetrics": b'{"dataVersion":{"counter":1},"timingCount":{"T":{"count":2,"timeStamp":1700000000000}}}',
    "transactionMetrics": b'{"transactionCount":{"T":{"count":1,"timeStamp":1700000000000}}}',
    "timercheck": bytes(range(64)),
}


@cache
def config_folder() -> Path:
    """The folder config of a store that has nothing else."""
    folder = place("config")
    folder.mkdir()
    return folder


def config_folder_seeds() -> list[bytes]:
    """Seeds: the number of a file, and its bytes; from 128 on it is the .bak of that file."""
    return [bytes([number + more]) + content for more in (0, 128) for number, content in enumerate(CONFIG_FILES.values())]


def use_config_folder(raw: bytes) -> None:
    """Check that the only file of a folder config is refused, or becomes rows of its table; notes about it are printable."""
    if not raw:
        return
    name = list(CONFIG_FILES)[raw[0] % 128 % len(CONFIG_FILES)]
    path = config_folder() / (f"{name}.bak" if raw[0] >= 128 else name)
    path.write_bytes(raw[1:])
    try:
        found = config_rows(StoreFiles(str(config_folder().parent)), "broker")
    finally:
        path.unlink()
    assert all(note.isprintable() and len(note) < 1500 for note in found.notes), found.notes


# frames -------------------------------------------------------------------------------------------------------------------------------


@cache
def frame_seeds() -> list[bytes]:
    """A pull in both forms, headers of every kind, and a few frames one after the other."""
    pull = {"consumerGroup": "g", "topic": "T", "queueId": "0", "queueOffset": "7", "maxMsgNums": "32", "sysFlag": "2", "subscription": "*"}
    pulls = [
        encode_frame(RemotingCommand(code=11, opaque=5, ext_fields=dict(pull), body=b"body", serialize_type=kind)) for kind in SerializeType
    ]
    lines = (DATA / "remoting" / "json_headers.jsonl").read_text(encoding="utf-8").splitlines()
    headers = [json.loads(line)["header"].encode() for line in lines[:200:5]]
    return [*pulls, *(struct.pack(">ii", 4 + len(header), len(header)) + header for header in headers), b"".join(pulls * 2)]


def use_frame(raw: bytes) -> None:
    try:
        command = decode_frame(raw)
    except FrameError:
        command = None
    if command is not None:
        for header in (PullMessageRequestHeader, PullMessageResponseHeader):
            with contextlib.suppress(FrameError):
                header.decode(command.ext_fields)
        again = decode_frame(encode_frame(command))
        # a language that the receiver does not know is null; null is not written, so it comes back as the default, Java
        assert again == command or (command.language is None and replace(again, language=None) == command), (again, command)
    _use_stream(raw)


def _use_stream(raw: bytes) -> None:
    """Check that the columns of many frames equal the decoded single frames, and that a stream in parts equals the whole stream."""
    columns = frame_columns(array(raw))
    for row in range(len(columns.starts)):
        start, length = int(columns.starts[row]), int(columns.lengths[row])
        try:
            command = decode_frame(raw[start : start + length])
        except FrameError:
            assert row in columns.errors
            continue
        assert row not in columns.errors
        assert (columns.code[row], columns.flag[row], columns.version[row]) == (command.code, command.flag, command.version)
        assert columns.opaque[row] == (NO_OPAQUE if command.opaque is None else command.opaque)
        assert columns.text(row, "topic") == (command.ext_fields or {}).get("topic")
    whole, parts = NettyDecoder(), NettyDecoder()
    found = whole.feed(raw)
    in_parts = [command for at in range(0, len(raw), 100) for command in parts.feed(raw[at : at + 100])]
    if not whole.errors:
        assert in_parts == found


def heartbeat_seeds() -> list[bytes]:
    topic = {
        "classFilterMode": False,
        "codeSet": [1],
        "expressionType": "TAG",
        "subString": "a",
        "subVersion": 5,
        "tagsSet": ["a"],
        "topic": "T",
    }
    consumer = {
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY",
        "groupName": "g",
        "messageModel": "CLUSTERING",
        "subscriptionDataSet": [topic],
        "unitMode": False,
    }
    whole = {"clientID": "c", "consumerDataSet": [consumer], "producerDataSet": [{"groupName": "p"}]}
    return [json.dumps(whole).encode(), b"{}", json.dumps({"consumerDataSet": [consumer, consumer]}).encode()]


def use_heartbeat(raw: bytes) -> None:
    decode_heartbeat(raw)


def use_message_list(raw: bytes) -> None:
    found: list[Message] = decode_messages(raw)
    assert sum(len(encode(message)) for message in found) <= len(raw)
    for message in found:
        client_form(message)
    decode_messages(raw, read_body=False)


def batch_seeds() -> list[bytes]:
    one = struct.pack(">iiiii", 40, 0, 5, 1, 4) + b"body" + struct.pack(">h", 3) + b"a\x01b"
    return [one, one * 3, base64.b64decode("AAAAAA==")]


def use_batch(raw: bytes) -> None:
    assert sum(len(message.body) + len(message.properties) + 22 for message in decode_batch(raw)) <= len(raw)


# whole stores -------------------------------------------------------------------------------------------------------------------------

STORE_SIZES = BrokerSettings.from_sources(options=["maxHashSlotNum=100", "maxIndexNum=600"])


@cache
def store_files() -> list[Path]:
    """The files of a store that are damaged one at a time. Of the long log files only the first is."""
    store = small_store()
    shutil.copytree(store, store.with_name("damaged"))
    files = sorted(path for path in store.with_name("damaged").rglob("*") if path.is_file())
    return [path for path in files if path.parent.name != "commitlog" or path.name == f"{0:020d}"]


def store_seeds() -> list[bytes]:
    """Seeds: the number of a file, and its bytes."""
    return [bytes([number]) + path.read_bytes() for number, path in enumerate(store_files())]


def use_store(raw: bytes) -> None:
    """Load, start and shut down a store with one damaged file, and check every file of it."""
    if not raw:
        return
    path = store_files()[raw[0] % len(store_files())]
    former = path.read_bytes()
    path.write_bytes(raw[1:].ljust(len(former), b"\0")[: len(former)] if raw[-1] % 2 else raw[1:])
    try:
        _use_damaged(small_store().with_name("damaged"))
    finally:
        path.write_bytes(former)


def _use_damaged(store: Path) -> None:
    files = StoreFiles(str(store))
    plan = plan_of(files, STORE_SIZES, topic_tasks=2)
    for task in range(plan.tasks):
        list(plan.run(task))
    broker = store_over(files, store_settings(files, STORE_SIZES))
    if broker.load() and broker.start() == "ok":
        broker.shutdown()


TARGETS: dict[str, Target] = {
    "commit log": Target(log_seeds, use_commit_log),
    "rows": Target(log_seeds, use_rows),
    "message": Target(log_seeds, use_message),
    "consume queue": Target(queue_seeds, use_consume_queue),
    "extension": Target(ext_seeds, use_extension),
    "index": Target(index_seeds, use_index),
    "checkpoint": Target(lambda: [(small_store() / "checkpoint").read_bytes(), b"", bytes(24)], use_checkpoint),
    **{f"config {name}": Target(config_seeds(name), use_config(name), JSON_WORDS) for name in CONFIG},
    "config folder": Target(config_folder_seeds, use_config_folder, JSON_WORDS),
    "fastjson": Target(lambda: [seed for name in CONFIG for seed in config_seeds(name)()], use_fastjson, JSON_WORDS),
    "frame": Target(frame_seeds, use_frame, JSON_WORDS),
    "heartbeat": Target(heartbeat_seeds, use_heartbeat, JSON_WORDS),
    "message list": Target(log_seeds, use_message_list),
    "batch": Target(batch_seeds, use_batch),
    "store": Target(store_seeds, use_store),
    "pcap": Target(traffic.pcap_seeds, traffic.use_capture),
    "pcapng": Target(traffic.pcapng_seeds, traffic.use_capture),
    "requests": Target(traffic.request_seeds, traffic.use_requests, (*JSON_WORDS, *traffic.REQUEST_WORDS)),
    "Parquet requests": Target(traffic.parquet_seeds, traffic.use_parquet),
    "SQL92": Target(traffic.sql92_seeds, traffic.use_sql92, traffic.SQL_WORDS),
    "scenarios": Target(written.scenario_seeds, written.use_scenarios, JSON_WORDS),
    "workload": Target(written.workload_seeds, written.use_workload("x.toml"), written.TOML_WORDS),
    "JSON workload": Target(written.json_workload_seeds, written.use_workload("x.json"), JSON_WORDS),
    "simulation": Target(written.simulation_seeds, written.use_simulation, written.TOML_WORDS),
    "properties": Target(written.properties_seeds, written.use_properties, written.PROPERTIES_WORDS),
    "look-ups": Target(written.lookup_seeds, written.use_lookups, JSON_WORDS),
    "frame file": Target(written.frame_file_seeds, written.use_frame_file, JSON_WORDS),
    "subscription": Target(lambda: [b"TagA || TagB", b"*", b"||"], traffic.use_subscription, (b"||", b" ", b"*", b"\0", b"\xc2\xa0")),
}

# targets that share a time limit
GROUPS: dict[str, tuple[str, ...]] = {
    "log": ("commit log", "rows", "message"),
    "queues": ("consume queue", "extension", "checkpoint"),
    "index": ("index",),
    "config": (*(f"config {name}" for name in CONFIG), "config folder", "fastjson"),
    "frames": ("frame", "heartbeat", "message list", "batch"),
    "store": ("store",),
    "captures": ("pcap", "pcapng"),
    "requests": ("requests", "Parquet requests"),
    "filters": ("SQL92", "subscription"),
    "written": ("scenarios", "workload", "JSON workload", "simulation", "properties", "look-ups", "frame file"),
}
# the parsers, each with the targets among which its inputs are divided
PARSERS: dict[str, tuple[str, ...]] = {
    "records": GROUPS["log"],
    "queue": ("consume queue",),
    "ext": ("extension",),
    "index": GROUPS["index"],
    "config": GROUPS["config"],
    "frames": GROUPS["frames"],
    "pcap": ("pcap",),
    "pcapng": ("pcapng",),
    "SQL92": GROUPS["filters"],
    "requests": ("requests",),
    "Parquet": ("Parquet requests",),
    "written": GROUPS["written"],
}
assert sorted(name for names in GROUPS.values() for name in names) == sorted(TARGETS)
