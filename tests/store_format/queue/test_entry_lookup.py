"""The records that entries point to: compared with MappedFileQueue.java's look-ups in plain Python, and with the broker's deliveries."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.files.store_files import StoreFiles
from pipeline.store import load_files as lf
from store_format.big_endian import Bytes
from store_format.files.mapped_files import MappedFile, offset_to_file_name
from store_format.queue.consume_queue import units_of
from store_format.queue.entry_lookup import NO_TIMESTAMP, EntriesInLog, find_files, look_up
from store_format.record.message import Message, decode, encode
from tests.makers.records import INTS, messages, placed
from tests.runs.sampling import examples
from tests.truth.golden import golden_lines, meta_of, names, needs_golden

SIZE = 400
UNKNOWN = "it reads past the delivered bytes"


@dataclass
class JavaLog:
    """The part of CommitLog that finds bytes: (start, content, bytes in use) of each file."""

    files: list[tuple[int, bytes, int]]

    def find_mapped_file_by_offset(self, offset: int, *, first_if_none: bool) -> tuple[int, bytes, int] | None:
        if not self.files:
            return None
        for file in self.files:
            if file[0] <= offset < file[0] + SIZE:
                return file
        return self.files[0] if first_if_none else None

    def get_message(self, offset: int, size: int) -> tuple[int, bytes] | None:
        """The start of the delivered bytes, and the bytes; None for null, and if Java's sum of position and size overflows."""
        file = self.find_mapped_file_by_offset(offset, first_if_none=offset == 0)
        if file is None or size < 0:
            return None
        start, content, wrote = file
        at = offset % SIZE
        return (start + at, content[at : at + size]) if at + size <= wrote else None

    def pickup_store_timestamp(self, offset: int, size: int) -> int | str:
        if self.files and offset >= self.files[0][0]:
            found = self.get_message(offset, size)
            if found is not None:
                raw = found[1]
                if len(raw) < 40:
                    return UNKNOWN
                at = 68 if struct.unpack_from(">i", raw, 36)[0] & 0x10 else 56
                return int.from_bytes(raw[at : at + 8], "big", signed=True) if len(raw) >= at + 8 else UNKNOWN
        return -1


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[MappedFile], dict[str, Bytes], list[Message]]:
    """Some files of a log, perhaps with holes between them, the last one not full; and the records in them."""
    numbers = sorted(draw(st.sets(st.integers(0, 5), max_size=4)))
    files, contents, lying = [], {}, []
    for number in numbers:
        records = placed(draw(st.lists(messages(text_properties=True), max_size=3)), number * SIZE)
        inside = [record for record in records if record.physic_offset + record.store_size <= (number + 1) * SIZE]
        raw = b"".join(map(encode, inside))
        content = raw + draw(st.binary(min_size=SIZE - len(raw), max_size=SIZE - len(raw)))
        wrote = draw(st.integers(0, SIZE)) if number == numbers[-1] else SIZE
        name = offset_to_file_name(number * SIZE)
        files.append(MappedFile(name=name, from_offset=number * SIZE, length=SIZE, wrote=wrote))
        contents[name] = np.frombuffer(content, np.uint8)
        lying += inside
    return files, contents, lying


OFFSETS = st.integers(-5, 6 * SIZE + 5) | st.sampled_from([0, SIZE, -(2**63), 2**63 - 1])
SIZES = st.integers(-2, 120) | st.sampled_from([0, 39, 40, 63, 64, 75, 76, SIZE, SIZE + 1, 2**31 - 1, -(2**31)]) | INTS


@given(logs(), st.lists(st.tuples(OFFSETS, SIZES), max_size=8))
@settings(max_examples=examples(300))
def test_entries_find_what_the_broker_finds(
    log: tuple[list[MappedFile], dict[str, Bytes], list[Message]], wild: list[tuple[int, int]]
) -> None:
    files, contents, lying = log
    java = JavaLog([(file.from_offset, contents[file.name].tobytes(), file.wrote) for file in files])
    entries = wild + [(message.physic_offset, message.store_size) for message in lying]
    entries += [(message.physic_offset, message.store_size + off) for message in lying for off in (-1, 1)]
    entries += [(message.physic_offset, size) for message in lying for size in (39, 40, 63, 64, 75, 76)]
    found = looked_up(files, contents, entries)
    assert find_files(files, np.array([offset for offset, _ in entries], np.int64)).tolist() == [
        -1 if file is None else [one.from_offset for one in files].index(file[0])
        for file in (java.find_mapped_file_by_offset(offset, first_if_none=offset == 0) for offset, _ in entries)
    ]
    for (offset, size), index, at, stamp, is_record in zip(
        entries, found.file.tolist(), found.positions.tolist(), found.store_timestamps.tolist(), found.is_record.tolist(), strict=True
    ):
        delivered = java.get_message(offset, size)
        assert (index >= 0) == (delivered is not None)
        expected = java.pickup_store_timestamp(offset, size)
        assert stamp == (expected if isinstance(expected, int) and expected >= 0 else NO_TIMESTAMP)
        assert is_record == (delivered is not None and is_whole_record(delivered[1], offset, delivered[0]))
        if delivered is not None:
            assert files[index].from_offset + at == delivered[0]


def is_whole_record(raw: bytes, offset: int, start: int) -> bool:
    """Whether the bytes are one record of the length and offset that it names, at the entry's offset, that a row gives back."""
    message = decode(raw)
    if message is None or message.store_size != len(raw) or not message.topic or start != offset:
        return False
    try:
        message.topic.decode()
    except UnicodeDecodeError:
        return False
    return message.physic_offset == offset and encode(message) == raw and raw[4:8] == bytes.fromhex("daa320a7")


def looked_up(files: list[MappedFile], contents: dict[str, Bytes], entries: list[tuple[int, int]]) -> EntriesInLog:
    offsets, sizes = np.array([offset for offset, _ in entries], np.int64), np.array([size for _, size in entries], np.int32)
    return look_up(files, [file.wrote for file in files], lambda file: contents[file.name], offsets, sizes)


def test_an_entry_of_size_0_delivers_no_bytes_which_is_not_null() -> None:
    """MappedFile.selectMappedBuffer: 0 + 0 <= its read position."""
    file = MappedFile(name="f", from_offset=SIZE, length=SIZE, wrote=10)
    found = looked_up([file], {"f": np.zeros(SIZE, np.uint8)}, [(0, 0), (SIZE + 10, 0), (SIZE + 11, 0), (0, -1)])
    assert found.file.tolist() == [0, 0, -1, -1]
    assert not found.is_record.any()
    assert (found.store_timestamps == NO_TIMESTAMP).all()


def test_offset_0_of_a_cleaned_log_finds_another_messages_bytes_but_no_store_time(small_store: Path) -> None:
    raw = (small_store / "commitlog" / "00000000000000065536").read_bytes()
    size = int.from_bytes(raw[:4], "big")
    file = MappedFile(name="f", from_offset=65536, length=65536, wrote=65536)
    found = looked_up([file], {"f": np.frombuffer(raw, np.uint8)}, [(0, size), (65536, size)])
    assert (found.file.tolist(), found.positions.tolist()) == ([0, 0], [0, 0])
    assert found.is_record.tolist() == [False, True]
    message = decode(raw)
    assert message is not None
    assert found.store_timestamps.tolist() == [NO_TIMESTAMP, message.store_timestamp]


def test_records_behind_the_walked_part_are_not_taken_for_rows(small_store: Path) -> None:
    raw = (small_store / "commitlog" / "00000000000000000000").read_bytes()
    size = int.from_bytes(raw[:4], "big")
    file = MappedFile(name="f", from_offset=0, length=65536, wrote=65536)
    for walked, is_record in ((size, True), (0, False)):
        found = look_up([file], [walked], lambda _: np.frombuffer(raw, np.uint8), np.array([0]), np.array([size], np.int32))
        assert found.is_record.tolist() == [is_record]


class Queues:
    """The entries of a loaded store, and the records that they point to."""

    def __init__(self, path: Path) -> None:
        self.store = StoreFiles(str(path))
        config = meta_of(path)["config"]
        names_of_sizes = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue")
        self.sizes = lf.file_sizes(self.store, {name: int(config[name]) for name in names_of_sizes})
        self.log = lf.recover_log(self.store, lf.load_log(self.store, self.sizes), check_crc=True).files
        self.found: dict[tuple[str, int, int], tuple[int, bytes, int, bool]] = {}
        for topic in lf.topics(self.store):
            for queue_id in lf.queue_ids(self.store, topic):
                for file in lf.recover_queue(self.store, topic, queue_id, self.sizes, None).files:
                    self._read(topic, queue_id, file)

    def _read(self, topic: str, queue_id: int, file: MappedFile) -> None:
        units = units_of(self.store.content("consumequeue", topic, str(queue_id), file.name)[: file.wrote])
        content = partial(self.store.content, "commitlog")
        walked = [one.wrote for one in self.log]
        offsets, sizes = units["physicOffset"].astype(np.int64), units["size"].astype(np.int32)
        found = look_up(self.log, walked, lambda one: content(one.name), offsets, sizes)
        for row, (index, at, stamp, is_record) in enumerate(
            zip(found.file.tolist(), found.positions.tolist(), found.store_timestamps.tolist(), found.is_record.tolist(), strict=True)
        ):
            raw = b"" if index < 0 else content(self.log[index].name)[at : at + int(sizes[row])].tobytes()
            start = -1 if index < 0 else self.log[index].from_offset + at
            self.found[topic, queue_id, file.from_offset // 20 + row] = (start, raw, stamp, is_record)


@pytest.fixture(scope="module")
def queues_of(stores: Path) -> dict[str, Queues]:
    """Loaded stores by name, each loaded when it is first used."""

    class ByName(dict[str, Queues]):
        def __missing__(self, name: str) -> Queues:
            self[name] = Queues(stores / name)
            return self[name]

    return ByName()


@needs_golden
@pytest.mark.parametrize("name", names("lookup", "*.jsonl"))
def test_store_times_of_entries_are_those_recorded(queues_of: dict[str, Queues], name: str) -> None:
    header, *asked = golden_lines("store", "lookup", f"{name}.jsonl")
    found, compared = queues_of[header["store"]].found, 0
    for row in asked:
        if row["op"] == "getMessageStoreTimeStamp":
            start, _, stamp, _ = found.get((row["topic"], row["queueId"], row["consumeQueueOffset"]), (-1, b"", NO_TIMESTAMP, False))
            assert stamp == (NO_TIMESTAMP if row["result"] == -1 else row["result"])
            compared += start >= 0
    assert compared > 50


CLEAN_TRACES = (
    "basic-default",
    "cleaned-default",
    "holes-default",
    "preblank0-default",
    "preblank1-default",
    "window-default",
    "ext-default",
)


@needs_golden
@pytest.mark.parametrize("name", CLEAN_TRACES)
def test_entries_find_the_bytes_that_the_broker_delivered(queues_of: dict[str, Queues], name: str) -> None:
    header, *answers = golden_lines("store", "traces", f"{name}.jsonl")
    found, seen = queues_of[header["store"]].found, 0
    for answer in answers:
        request, response = answer["request"], answer["response"]
        messages_found = (response or {}).get("messages", [])
        if request["filter"] is None and messages_found:
            start, raw, _, is_record = found[request["topic"], request["queueId"], request["offset"]]
            if start >= 0:
                assert as_recorded(start, raw) == messages_found[0]
                assert is_record == (messages_found[0]["msgId"] is not None)
                seen += 1
    assert seen > 20


def as_recorded(start: int, raw: bytes) -> dict[str, Any]:
    message = decode(raw)
    found: dict[str, Any] = dict.fromkeys(("queueOffset", "physicOffset", "msgId", "tags", "keys", "bodyCrc", "storeTimestamp"))
    if message is not None:
        found = {
            "queueOffset": message.queue_offset,
            "physicOffset": message.physic_offset,
            "msgId": message.msg_id,
            "tags": message.properties_map().get("TAGS"),
            "keys": message.properties_map().get("KEYS"),
            "bodyCrc": message.body_crc,
            "storeTimestamp": message.store_timestamp,
        }
    return found | {"startOffset": start, "storeSize": len(raw), "rawCrc32": zlib.crc32(raw)}
