"""Records as columns: each column has the values that the plain decoder reads from the same bytes."""

from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from store_format.big_endian import Bytes, Positions
from store_format.log.commit_log import walk
from store_format.record import record_columns as rc
from store_format.record.message import Message, decode, decode_properties, encode
from tests.makers.records import messages, placed

FROM_OFFSETS = st.sampled_from([0, 1 << 30, 7 << 40])
LOGS = st.lists(messages(text_properties=True), max_size=5)


def log_of(found: list[Message]) -> tuple[Bytes, Positions]:
    """Some other bytes and then the records one after the other, and the positions at which the records start."""
    before = b"\xda\xa3\x20"
    content = np.frombuffer(before + b"".join(map(encode, found)), np.uint8)
    positions = walk(content, len(before), len(content), len(found) + 1).positions
    assert len(positions) == len(found)
    return content, positions


def taken(content: Bytes, slices: rc.Slices) -> list[bytes]:
    """Each range's bytes, by way of `gather`."""
    offsets, data = rc.gather(content, slices)
    assert offsets.dtype == np.int32
    ends = offsets.tolist()
    return [data[start:end].tobytes() for start, end in pairwise(ends)]


@given(st.lists(messages(), max_size=5))
def test_columns_hold_what_the_decoder_reads(found: list[Message]) -> None:
    content, positions = log_of(found)
    parts = rc.locate(content, positions)
    prefix, middle = rc.prefixes(content, positions), rc.middles(content, parts)
    decoded = [decode(content[at:].tobytes()) for at in positions.tolist()]
    read = [message for message in decoded if message is not None]
    assert len(read) == len(found)
    columns = {
        "store_size": prefix["storeSize"],
        "magic_code": prefix["magicCode"],
        "body_crc": prefix["bodyCrc"],
        "queue_id": prefix["queueId"],
        "flag": prefix["flag"],
        "queue_offset": prefix["queueOffset"],
        "physic_offset": prefix["physicOffset"],
        "sys_flag": prefix["sysFlag"],
        "born_timestamp": prefix["bornTimestamp"],
        "store_timestamp": rc.store_timestamps(content, parts),
        "reconsume_times": middle["reconsumeTimes"],
        "prepared_transaction_offset": middle["preparedTransactionOffset"],
    }
    for name, column in columns.items():
        assert column.tolist() == [getattr(message, name) for message in read], name
    assert middle["bodyLength"].tolist() == [len(message.body) for message in read]
    assert taken(content, parts.body) == [message.body for message in read]
    assert taken(content, parts.topic) == [message.topic for message in read]
    assert taken(content, parts.properties) == [message.properties for message in read]
    for name, hosts in (("born_host", parts.born_host), ("store_host", parts.store_host)):
        ours = [getattr(message, name) for message in read]
        assert taken(content, hosts) == [host.address + struct.pack(">i", host.port) for host in ours]


def maps_of(content: Bytes, properties: rc.Properties) -> list[dict[bytes, bytes]]:
    """The properties of each record, in their order; a name met twice in one record is an error."""
    pairs = list(zip(taken(content, properties.names), taken(content, properties.values), strict=True))
    maps, at = [], 0
    for count in properties.counts.tolist():
        maps.append(dict(pairs[at : at + count]))
        assert len(maps[-1]) == count
        at += count
    assert at == len(pairs)
    return maps


@given(LOGS)
def test_properties_are_those_of_the_plain_reading(found: list[Message]) -> None:
    content, positions = log_of(found)
    maps = maps_of(content, rc.parse_properties(content, rc.locate(content, positions).properties))
    assert [[(name.decode(), value.decode()) for name, value in one.items()] for one in maps] == [
        list(decode_properties(message.properties).items()) for message in found
    ]


STRAY = st.text("ab\x01\x02", max_size=40)


@given(st.lists(STRAY, max_size=6))
@example(["a\x01b\x02a\x01c", "", "\x01", "\x02\x02", "a\x01", "\x01b", "a\x01\x02b", "a\x01b\x01c\x02", "a\x01b\x02b\x01a\x02a\x01b"])
@example(["a\x01b\x02" * 200])
def test_stray_separators_and_repeated_names_are_read_alike(texts: list[str]) -> None:
    raw = [text.encode() for text in texts]
    lengths = np.array([len(one) for one in raw], np.int64)
    content = np.frombuffer(b"".join(raw) or b"\0", np.uint8)
    slices = rc.Slices(np.cumsum(lengths) - lengths, lengths)
    properties = rc.parse_properties(content, slices)
    expected = [{name.encode(): value.encode() for name, value in decode_properties(one).items()} for one in raw]
    assert maps_of(content, properties) == expected
    for name in (b"a", b"b", b"ab", b"c"):
        picked = rc.pick_property(content, properties, name)
        values = [
            None if length < 0 else content[start : start + length].tobytes()
            for start, length in zip(picked.starts.tolist(), picked.lengths.tolist(), strict=True)
        ]
        assert values == [one.get(name) for one in expected]


def test_negative_lengths_are_empty_or_missing() -> None:
    content = np.frombuffer(b"a\x01b", np.uint8)
    slices = rc.Slices(np.array([0, 0, 1]), np.array([-1, 3, -32768]))
    assert maps_of(content, rc.parse_properties(content, slices)) == [{}, {b"a": b"b"}, {}]
    assert taken(content, slices) == [b"", b"a\x01b", b""]
    assert rc.are_utf8(content, slices).tolist() == [True, True, True]


LIKELY = st.lists(
    st.sampled_from(["a", "é", "€", "🚀", "\u07ff", "\u0800", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff"]).map(str.encode)
    | st.sampled_from(
        [b"\x80", b"\xbf", b"\xc0", b"\xc1", b"\xc2", b"\xdf", b"\xe0\x9f\xbf", b"\xe0\xa0", b"\xed\xa0\x80", b"\xed\x9f\xbf"]
    )
    | st.sampled_from([b"\xf0\x8f\xbf\xbf", b"\xf0\x90\x80", b"\xf4\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5", b"\xff", b"\xe2\x28\xa1"]),
    max_size=4,
).map(b"".join)


def is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(st.lists(LIKELY | st.binary(max_size=6), max_size=8), st.binary(max_size=3))
def test_the_utf8_check_is_that_of_python(parts: list[bytes], behind: bytes) -> None:
    lengths = np.array([len(part) for part in parts], np.int64)
    content = np.frombuffer(b"".join(parts) + behind + b"\x80", np.uint8)
    checked = rc.are_utf8(content, rc.Slices(np.cumsum(lengths) - lengths, lengths))
    assert checked.tolist() == [is_utf8(part) for part in parts]


def test_every_pair_of_bytes_is_checked_as_python_checks_it() -> None:
    pairs = [bytes([first, second]) for first in range(256) for second in range(256)]
    for tail in (b"", b"\x80", b"\xbf\x80"):
        parts = [pair + tail for pair in pairs]
        length = len(parts[0])
        slices = rc.Slices(np.arange(len(parts)) * length, np.full(len(parts), length))
        checked = rc.are_utf8(np.frombuffer(b"".join(parts), np.uint8), slices)
        assert checked.tolist() == [is_utf8(part) for part in parts]


@given(LOGS, FROM_OFFSETS)
def test_records_where_they_say_they_are_can_be_rows(found: list[Message], from_offset: int) -> None:
    content, positions = log_of(placed(found, from_offset + 3))
    assert rc.representable(content, positions, from_offset).all()
    assert not rc.representable(content, positions, from_offset + 1).any()


@pytest.mark.parametrize(
    ("topic", "body_length", "properties_length", "rows"),
    [
        (b"T", 0, 0, True),
        ("主题".encode(), 0, 0, True),
        (b"", 0, 0, False),
        (b"\xff", 0, 0, False),
        (b"T\xc3", 0, 0, False),
        (b"T", -1, 0, False),
        (b"T", 0, -1, False),
    ],
)
def test_a_record_that_no_row_gives_back_is_no_row(topic: bytes, body_length: int, properties_length: int, rows: bool) -> None:
    raw = (91 + len(topic)).to_bytes(4, "big") + b"\xda\xa3\x20\xa7" + bytes(20) + (5).to_bytes(8, "big") + bytes(48)
    raw += struct.pack(">i", body_length) + bytes([len(topic)]) + topic + struct.pack(">h", properties_length)
    content = np.frombuffer(raw, np.uint8)
    positions = walk(content, 0, len(raw), 2).positions
    assert positions.tolist() == [0]
    assert rc.representable(content, positions, 5).tolist() == [rows]


@given(
    st.lists(
        st.tuples(st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20), st.integers(-(2**63), 2**63 - 1)), max_size=5
    )
)
def test_an_id_is_the_upper_case_hex_of_host_and_offset(ids: list[tuple[bytes, int]]) -> None:
    lengths = np.array([len(host) for host, _ in ids], np.int64)
    content = np.frombuffer(b"".join(host for host, _ in ids) or b"\0", np.uint8)
    hosts = rc.Slices(np.cumsum(lengths) - lengths, lengths)
    offsets, text = rc.message_ids(content, hosts, np.array([offset for _, offset in ids], np.int64))
    texts = [text[start:end].tobytes().decode() for start, end in pairwise(offsets.tolist())]
    assert texts == [(host + struct.pack(">q", offset)).hex().upper() for host, offset in ids]
