"""Walks over records: real, cut and damaged ones, and bytes that are no records, compared with a plain reading of the same bytes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_format import big_endian as be
from store_format.broker_version import BrokerVersion
from store_format.layout import BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG
from store_format.log import commit_log as cl
from store_format.record.message import Message, encode
from store_format.record.record_length import record_length
from tests.makers.records import BLANK_MAGIC, RECORD_MAGIC, V2_MAGIC, blank, messages, placed
from tests.runs.sampling import examples

BLANK, BAD = "blank", "bad"


class OutOfBytesError(Exception):
    """A read past the end of a ByteBuffer."""


class Reader:
    """The part of ByteBuffer that a check of a record uses."""

    def __init__(self, raw: bytes, at: int) -> None:
        self.raw, self.at = raw, at

    def take(self, length: int) -> bytes:
        if length < 0 or self.at + length > len(self.raw):
            raise OutOfBytesError
        self.at += length
        return self.raw[self.at - length : self.at]

    def number(self, form: str) -> int:
        value: int = struct.unpack(f">{form}", self.take(struct.calcsize(form)))[0]
        return value


def check_message(raw: bytes, at: int, check_crc: bool, with_v2: bool = False) -> int | str:
    """CommitLog.checkMessageAndReturnSize: the size of a good record, BLANK or BAD; `with_v2` in 5.5.0."""
    try:
        return _check(Reader(raw, at), check_crc, with_v2)
    except OutOfBytesError:
        return BAD


def _check(reader: Reader, check_crc: bool, with_v2: bool) -> int | str:
    size, magic = reader.number("i"), reader.take(4)
    if magic == BLANK_MAGIC:
        return BLANK
    is_v2 = with_v2 and magic == V2_MAGIC
    if magic != RECORD_MAGIC and not is_v2:
        return BAD
    stored_crc = reader.number("i")
    reader.take(4 + 4 + 8 + 8)
    sys_flag = reader.number("i")
    born = 20 if sys_flag & BORNHOST_V6_FLAG else 8
    store = 20 if sys_flag & STOREHOSTADDRESS_V6_FLAG else 8
    reader.take(8 + born + 8 + store + 4 + 8)
    body = reader.take(max(reader.number("i"), 0))
    if body and check_crc and zlib.crc32(body) & 0x7FFFFFFF != stored_crc:
        return BAD
    topic = reader.take(reader.number("h" if is_v2 else "b"))
    properties = reader.take(max(reader.number("h"), 0))
    length = 48 + born + 8 + store + 16 + len(body) + 1 + is_v2 + len(topic) + 2 + len(properties)
    return size if size == length else BAD


def read_through(raw: bytes, check_crc: bool, with_v2: bool = False) -> tuple[list[int], int, str]:
    """Positions of the good records from the start on, the position at which they end, and what ends them."""
    at, positions = 0, list[int]()
    while True:
        found = check_message(raw, at, check_crc, with_v2)
        if isinstance(found, str):
            return positions, at, found
        positions.append(at)
        at += found


def array(raw: bytes) -> be.Bytes:
    return np.frombuffer(raw, np.uint8)


def walked(raw: bytes, limit: int, a_call: int, version: BrokerVersion = BrokerVersion.V4_9_3) -> tuple[list[int], int, cl.WalkEnd]:
    """The whole walk up to `limit`, `a_call` records at a time."""
    at, positions = 0, []
    for _ in range(len(raw) + 2):
        part = cl.walk(array(raw), at, limit, a_call, version)
        positions += part.positions.tolist()
        at = part.end
        if part.ended is not None:
            return positions, at, part.ended
    raise AssertionError("the walk does not end")


LOGS = st.lists(messages(), max_size=4).map(lambda found: placed(found, 0))
LOGS_OF_5 = st.lists(messages(with_v2=True), max_size=4).map(lambda found: placed(found, 0))
TAILS: dict[str, Callable[[st.DrawFn], bytes]] = {
    "nothing": lambda draw: b"",
    "zeros": lambda draw: bytes(draw(st.integers(1, 200))),
    "blank": lambda draw: blank(8 + draw(st.integers(0, 500))) + draw(st.binary(max_size=200)),
    "junk": lambda draw: draw(st.binary(min_size=1, max_size=200)),
    "half a record": lambda draw: encode(draw(messages()))[: draw(st.integers(0, 90))],
    "a magic code": lambda draw: draw(st.binary(min_size=4, max_size=4)) + RECORD_MAGIC + draw(st.binary(max_size=300)),
}


@st.composite
def log_files(draw: st.DrawFn, logs: st.SearchStrategy[list[Message]] = LOGS) -> bytes:
    """Records, and one of TAILS after them."""
    return b"".join(map(encode, draw(logs))) + TAILS[draw(st.sampled_from(sorted(TAILS)))](draw)


@st.composite
def damaged_files(draw: st.DrawFn, logs: st.SearchStrategy[list[Message]] = LOGS) -> bytes:
    """Log files with some bytes changed, most likely those of sizes and flags."""
    raw = bytearray(draw(log_files(logs)) or b"\0")
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(raw) - 1) | st.integers(0, min(len(raw) - 1, 110)))
        raw[at] = draw(st.integers(0, 255) | st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    return bytes(raw)


ANY_BYTES = log_files() | damaged_files() | st.binary(max_size=400)


@given(ANY_BYTES, st.integers(1, 3))
def test_a_walk_finds_what_a_plain_reading_finds(raw: bytes, a_call: int) -> None:
    positions, end, _ = read_through(raw, check_crc=False)
    found, found_end, ended = walked(raw, len(raw), a_call)
    assert (found, found_end) == (positions, end)
    assert (ended is cl.WalkEnd.BLANK) == (check_message(raw, end, check_crc=False) == BLANK)


@given(log_files(LOGS_OF_5) | damaged_files(LOGS_OF_5), st.integers(1, 3), st.booleans())
def test_a_walk_by_5_5_0_finds_records_of_both_versions(raw: bytes, a_call: int, check_crc: bool) -> None:
    version = BrokerVersion.V5_5_0
    positions, end, why = read_through(raw, check_crc, with_v2=True)
    found_end, ended = cl.walk_checked(array(raw), len(raw), check_crc=check_crc, version=version)
    assert (found_end, ended is cl.WalkEnd.BLANK) == (end, why == BLANK)
    assert walked(raw, len(raw), a_call, version)[0][: len(positions)] == positions


@given(LOGS_OF_5)
def test_a_v2_record_ends_the_walk_of_4_9(log: list[Message]) -> None:
    raw, count = b"".join(map(encode, log)), next((row for row, one in enumerate(log) if len(one.topic) > 127), len(log))
    positions, end, ended = walked(raw, len(raw), 8)
    assert positions == [one.physic_offset for one in log[:count]]
    assert (end, ended) == ((len(raw), cl.WalkEnd.LIMIT) if count == len(log) else (log[count].physic_offset, cl.WalkEnd.NO_RECORD))


@pytest.mark.parametrize(
    ("topic_length", "found"), [(b"\0\x7f", [0]), (b"\0\x80", [0]), (b"\0\xff", [0]), (b"\xff\xff", []), (b"\x01\0", [])]
)
def test_the_topic_of_a_v2_record_is_as_long_as_a_signed_short_says(topic_length: bytes, found: list[int]) -> None:
    raw = bytearray(encode_minimal()[:-3] + topic_length + bytes(min(int.from_bytes(topic_length, "big"), 255)) + bytes(2))
    raw[:4], raw[4:8] = len(raw).to_bytes(4, "big"), V2_MAGIC
    assert walked(bytes(raw), len(raw), 8, BrokerVersion.V5_5_0)[0] == found


@given(ANY_BYTES, st.integers(1, 3))
def test_positions_only_rise_and_each_is_a_record(raw: bytes, a_call: int) -> None:
    found, end, _ = walked(raw, len(raw), a_call)
    borders = [*found, end]
    for start, following in pairwise(borders):
        assert following - start >= 91
        assert record_length(array(raw), start, len(raw)) == following - start


@given(ANY_BYTES)
def test_a_checked_walk_ends_where_recovery_ends(raw: bytes) -> None:
    for check_crc in (False, True):
        _, end, why = read_through(raw, check_crc)
        found_end, ended = cl.walk_checked(array(raw), len(raw), check_crc=check_crc)
        assert found_end == end
        assert (ended is cl.WalkEnd.BLANK) == (why == BLANK)


@given(ANY_BYTES, st.binary(max_size=120), st.data())
def test_bytes_from_the_limit_on_do_not_count(raw: bytes, other: bytes, data: st.DataObject) -> None:
    limit = data.draw(st.integers(0, len(raw)))
    cut = walked(raw[:limit], limit, 8)
    assert walked(raw, limit, 8) == cut
    assert walked(raw[:limit] + other, limit, 8) == cut
    assert cut[1] <= limit


@given(st.data())
@settings(max_examples=examples(40))
def test_damaged_real_files_are_walked_as_by_a_plain_reading(small_store: Path, data: st.DataObject) -> None:
    files = sorted((small_store / "commitlog").iterdir())
    raw = bytearray(data.draw(st.sampled_from(files)).read_bytes())
    for at in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=8)):
        raw[at] = data.draw(st.integers(0, 255))
    damaged = bytes(raw)
    for check_crc in (False, True):
        positions, end, why = read_through(damaged, check_crc)
        found_end, ended = cl.walk_checked(array(damaged), len(damaged), check_crc=check_crc)
        assert (found_end, ended is cl.WalkEnd.BLANK) == (end, why == BLANK)
    assert walked(damaged, len(damaged), 50)[0][: len(positions)] == positions


@given(messages(), messages())
def test_a_log_cut_at_any_byte_ends_before_the_cut_record(first: Message, second: Message) -> None:
    raw = b"".join(map(encode, placed([first, second], 0)))
    border = len(encode(first))
    for limit in range(len(raw) + 1):
        whole = [position for position, end in ((0, border), (border, len(raw))) if end <= limit]
        end = [0, border, len(raw)][len(whole)]
        ended = cl.WalkEnd.LIMIT if limit - end < 8 else cl.WalkEnd.BAD_RECORD
        assert walked(raw, limit, 8) == (whole, end, ended)


@given(LOGS)
@pytest.mark.parametrize(
    ("tail", "ended"),
    [
        (b"", cl.WalkEnd.LIMIT),
        (bytes(7), cl.WalkEnd.LIMIT),
        (bytes(8), cl.WalkEnd.NO_RECORD),
        (blank(8), cl.WalkEnd.BLANK),
        (blank(100) + b"\xaa" * 92, cl.WalkEnd.BLANK),
        (b"\xff\xff\xff\xff" + BLANK_MAGIC, cl.WalkEnd.BLANK),  # recovery does not look at a blank's size
        (b"\0\0\0\x5b" + RECORD_MAGIC, cl.WalkEnd.BAD_RECORD),
        (b"\0\0\0\x5b" + RECORD_MAGIC + b"\xff" * 200, cl.WalkEnd.BAD_RECORD),
        (b"junk that is long enough", cl.WalkEnd.NO_RECORD),
    ],
    ids=["nothing", "too few zeros", "zeros", "blank", "blank and junk", "blank of no size", "header cut", "wrong header", "junk"],
)
def test_what_follows_the_last_record_ends_the_walk(tail: bytes, ended: cl.WalkEnd, log: list[Message]) -> None:
    raw = b"".join(map(encode, log))
    assert walked(raw + tail, len(raw + tail), 8) == ([message.physic_offset for message in log], len(raw), ended)


@given(messages(), st.integers(-20, 20).filter(bool))
def test_a_size_that_is_not_the_sum_of_the_parts_is_no_record(message: Message, off: int) -> None:
    raw = bytearray(encode(message) + bytes(40))
    raw[:4] = (len(raw) - 40 + off).to_bytes(4, "big")
    assert walked(bytes(raw), len(raw), 8) == ([], 0, cl.WalkEnd.BAD_RECORD)


@pytest.mark.parametrize(("topic_length", "found"), [(127, [0]), (128, []), (255, [])])
def test_a_topic_is_no_longer_than_a_signed_byte_says(topic_length: int, found: list[int]) -> None:
    raw = bytearray(encode_minimal() + bytes(topic_length))
    raw[:4], raw[88] = len(raw).to_bytes(4, "big"), topic_length
    assert walked(bytes(raw), len(raw), 8)[0] == found


def test_the_sum_of_an_empty_body_is_not_checked() -> None:
    raw = bytearray(encode_minimal())
    raw[8:12] = b"\1\2\3\4"
    assert cl.walk_checked(array(bytes(raw)), len(raw), check_crc=True) == (91, cl.WalkEnd.LIMIT)
    assert cl.first_bad_body(array(bytes(raw)), np.array([0])) == 1


@given(st.lists(messages().filter(lambda message: message.body), min_size=1, max_size=4), st.data())
def test_a_changed_body_ends_a_checked_walk_and_no_other(found: list[Message], data: st.DataObject) -> None:
    log = placed(found, 0)
    raw = bytearray(b"".join(map(encode, log)))
    index = data.draw(st.integers(0, len(log) - 1))
    start, body = log[index].physic_offset, log[index].body
    header = 48 + len(log[index].born_host.address) + 4 + 8 + len(log[index].store_host.address) + 4 + 16
    raw[start + header + data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    assert cl.walk_checked(array(bytes(raw)), len(raw), check_crc=True) == (start, cl.WalkEnd.BAD_CRC)
    assert cl.walk_checked(array(bytes(raw)), len(raw), check_crc=False) == (len(raw), cl.WalkEnd.LIMIT)
    positions = np.array([message.physic_offset for message in log], np.int64)
    assert cl.first_bad_body(array(bytes(raw)), positions) == index


@pytest.mark.parametrize("records", [1, 2, 5])
def test_a_log_longer_than_a_batch_is_walked_to_its_end(records: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cl, "WALK_BATCH", 2)
    record = bytearray(encode_minimal())
    raw = bytes(record) * records + blank(8)
    assert cl.walk_checked(array(raw), len(raw), check_crc=True) == (len(raw) - 8, cl.WalkEnd.BLANK)


def encode_minimal() -> bytes:
    """The shortest record: IPv4 hosts, no body, no topic, no properties."""
    return (91).to_bytes(4, "big") + RECORD_MAGIC + bytes(83)


def test_the_shortest_record_has_91_bytes() -> None:
    assert walked(encode_minimal(), 91, 1) == ([0], 91, cl.WalkEnd.LIMIT)


@pytest.mark.parametrize("number", [0, 1, -1, 2**31 - 1, -(2**31), 0x01020304])
def test_numbers_are_big_endian_and_signed(number: int) -> None:
    raw = array(b"\xff" + struct.pack(">iqh", number, number << 31, number >> 16))
    assert be.int32_at(raw, 1) == number
    assert be.int64_at(raw, 5) == number << 31
    assert be.int16_at(raw, 13) == number >> 16
