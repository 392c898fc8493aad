"""One record as an object: round trips, cut and damaged records, and real records as the broker's decoder decoded them."""

from __future__ import annotations

import base64
import struct
import zlib
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from store_format.layout import BORNHOST_V6_FLAG, COMPRESSED_FLAG, STOREHOSTADDRESS_V6_FLAG
from store_format.record import message as m
from tests.makers.records import SEPARATED, TEXTS, messages
from tests.truth.golden import golden_lines, needs_golden

V4, V6 = m.Host(address=bytes([10, 20, 30, 250]), port=10911), m.Host(address=bytes(range(16)), port=65535)


def simple(**fields: Any) -> m.Message:
    """A message that the broker decodes, with some fields given."""
    usual: dict[str, Any] = {
        "queue_id": 1,
        "queue_offset": 2,
        "physic_offset": 3,
        "born_timestamp": 4,
        "born_host": V4,
        "store_timestamp": 5,
        "store_host": V4,
        "body": b"body",
        "topic": b"Topic",
        "properties": b"a\x01b",
    }
    return m.Message(**(usual | fields))


@given(messages())
def test_what_was_encoded_is_decoded(message: m.Message) -> None:
    raw = m.encode(message)
    assert m.decode(raw) == replace(message, store_size=len(raw))
    assert int.from_bytes(raw[:4], "big") == len(raw)


@pytest.mark.parametrize("born_v6", [False, True])
@pytest.mark.parametrize("store_v6", [False, True])
def test_the_hosts_take_the_widths_that_sys_flag_says(born_v6: bool, store_v6: bool) -> None:
    flag = BORNHOST_V6_FLAG * born_v6 | STOREHOSTADDRESS_V6_FLAG * store_v6
    message = simple(sys_flag=flag, born_host=V6 if born_v6 else V4, store_host=V6 if store_v6 else V4)
    raw = m.encode(message)
    assert len(raw) == 91 + 12 * (born_v6 + store_v6) + len(b"body" + b"Topic" + b"a\x01b")
    assert m.decode(raw) == replace(message, store_size=len(raw))


@pytest.mark.parametrize("length", [0, 127, 32767])
def test_the_longest_texts_fit(length: int) -> None:
    message = simple(topic=bytes(min(length, 127)), properties=b"x" * length, body=bytes(length))
    decoded = m.decode(m.encode(message))
    assert decoded is not None
    assert (decoded.topic, decoded.properties, decoded.body) == (message.topic, message.properties, message.body)


@given(messages(), st.binary(max_size=40))
def test_what_follows_a_record_does_not_count(message: m.Message, junk: bytes) -> None:
    raw = m.encode(message)
    assert m.decode(raw + junk) == replace(message, store_size=len(raw))


@given(messages())
def test_a_record_cut_anywhere_is_no_message(message: m.Message) -> None:
    raw = m.encode(message)
    assert [end for end in range(len(raw)) if m.decode(raw[:end]) is not None] == []


@st.composite
def garbled_records(draw: st.DrawFn) -> bytes:
    """Records with some bytes changed; most of these are still messages."""
    raw = bytearray(m.encode(draw(messages())))
    for _ in range(draw(st.integers(1, 4))):
        raw[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(0, 255))
    return bytes(raw)


@given(garbled_records() | st.binary(max_size=300))
def test_any_bytes_decode_or_are_no_message(raw: bytes) -> None:
    decoded = m.decode(raw)
    if decoded is not None:
        assert len(m.encode(decoded)) <= len(raw)


# positions in a record with IPv4 hosts and the four bytes of `simple`'s body
BODY_LENGTH, TOPIC_LENGTH, PROPERTIES_LENGTH = 84, 92, 98


@pytest.mark.parametrize(
    ("at", "number", "decodes"),
    [
        (0, struct.pack(">i", -5), True),  # the size is not looked at
        (4, struct.pack(">i", 12), True),  # nor is the magic code
        (52, struct.pack(">i", 65535), True),  # ports
        (52, struct.pack(">i", 65536), False),
        (52, struct.pack(">i", -1), False),
        (68, struct.pack(">i", 65536), False),
        (BODY_LENGTH, struct.pack(">i", 1 << 30), False),
        (TOPIC_LENGTH, struct.pack(">b", -1), False),
        (TOPIC_LENGTH, struct.pack(">b", 127), False),
        (PROPERTIES_LENGTH, struct.pack(">h", 4), False),
    ],
)
def test_only_lengths_and_ports_make_a_message_undecodable(at: int, number: bytes, decodes: bool) -> None:
    raw = bytearray(m.encode(simple()))
    raw[at : at + len(number)] = number
    assert (m.decode(bytes(raw)) is not None) == decodes


@pytest.mark.parametrize("length", [-1, -(2**31)])
def test_a_negative_body_length_stands_for_no_body(length: int) -> None:
    raw = bytearray(m.encode(simple(body=b"")))
    raw[BODY_LENGTH : BODY_LENGTH + 4] = struct.pack(">i", length)
    decoded = m.decode(bytes(raw))
    assert decoded is not None
    assert (decoded.body, decoded.topic, decoded.properties) == (b"", b"Topic", b"a\x01b")


@pytest.mark.parametrize("length", [-1, -(2**15)])
def test_negative_properties_stand_for_none(length: int) -> None:
    raw = bytearray(m.encode(simple()))
    raw[PROPERTIES_LENGTH : PROPERTIES_LENGTH + 2] = struct.pack(">h", length)
    decoded = m.decode(bytes(raw))
    assert decoded is not None
    assert decoded.properties == b""


ZLIB = zlib.compress(b"x" * 100)


@pytest.mark.parametrize(
    ("body", "decodes"),
    [
        (ZLIB, True),
        (ZLIB + b"junk", True),
        (zlib.compress(bytes(3 << 20)), True),
        (b"", True),
        (b"hello", False),
        (ZLIB[:-1], False),
        (ZLIB[:-4] + bytes(4), False),
        (ZLIB[:4], False),
        (ZLIB[:1], False),
    ],
)
def test_a_message_said_to_be_compressed_must_inflate(body: bytes, decodes: bool) -> None:
    decoded = m.decode(m.encode(simple(body=body, sys_flag=COMPRESSED_FLAG)))
    assert (decoded is not None) == decodes
    assert decoded is None or decoded.body == body
    assert m.decode(m.encode(simple(body=body))) is not None


# as new String(bytes, UTF_8) decodes them
@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"a\xc3\xa9\xf0\x9f\x9a\x80", "aé🚀"),
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xed\xb0\xbf", "\ufffd"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xed\xa0A", "\ufffdA"),
        (b"\xed\xa0\xbd\xed\xb8\x80", "\ufffd\ufffd"),
        (b"\xc0\x80", "\ufffd\ufffd"),
        (b"\xe0\x80\x80", "\ufffd\ufffd\ufffd"),
        (b"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"),
        (b"\xe2\x82", "\ufffd"),
        (b"\xf0\x9f\x98", "\ufffd"),
        (b"\xe2(\xa1", "\ufffd(\ufffd"),
        (b"\xfeA", "\ufffdA"),
    ],
)
def test_malformed_text_is_replaced_as_java_replaces_it(raw: bytes, text: str) -> None:
    assert m.decode_text(raw) == text


def string2message_properties(text: str) -> dict[str, str]:
    """The reading of MessageDecoder.string2messageProperties, one index at a time."""
    found: dict[str, str] = {}
    index = 0
    while index < len(text):
        end = text.find("\x02", index)
        if end < 0:
            end = len(text)
        separator = text.find("\x01", index)
        if end - index >= 3 and index < separator < end - 1:
            found[text[index:separator]] = text[separator + 1 : end]
        index = end + 1
    return found


@given(SEPARATED | TEXTS)
@example("a\x01b\x02a\x01c")
@example("\x02\x02a\x01\x02\x01b\x02a\x01\x01\x02b\x01c\x01d")
def test_properties_are_read_as_java_reads_them(text: str) -> None:
    assert m.decode_properties(text.encode()) == string2message_properties(text)


NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=8)


@given(st.dictionaries(NAMES, NAMES, max_size=6))
def test_properties_go_round(properties: dict[str, str]) -> None:
    raw = m.encode_properties(properties)
    assert m.decode_properties(raw) == properties
    assert list(m.decode_properties(raw)) == list(properties)
    assert m.decode_properties(raw + b"\x02") == properties


def codec(kind: str) -> list[dict[str, Any]]:
    rows = [row for row in golden_lines("broker", "codec.jsonl") if row["kind"] == kind]
    assert rows, kind
    return rows


@needs_golden
def test_properties_are_read_and_written_as_recorded() -> None:
    for row in codec("string2properties"):
        if row["s"] is not None:
            assert m.decode_properties(row["s"].encode()) == row["map"]
    for row in codec("properties2string"):
        entries = {name: value for name, value in row["entriesInOrder"] or [] if value is not None}
        assert m.encode_properties(entries) == row["s"].encode()


@needs_golden
def test_ids_and_sums_are_those_recorded() -> None:
    for row in codec("messageId"):
        store_host = m.Host(address=ip_address(row["ip"]).packed, port=row["port"])
        assert simple(store_host=store_host, physic_offset=row["offset"]).msg_id == row["msgId"]
    for row in codec("hex"):
        assert m.body_crc32(bytes.fromhex(row["bytesHex"])) == row["crc32"]


def as_recorded(message: m.Message) -> dict[str, Any]:
    """The fields of golden/broker/frames/message_lists.jsonl that do not depend on the client."""
    body = message.body
    if message.sys_flag & COMPRESSED_FLAG:
        body = zlib.decompress(body)
    return {
        "storeSize": message.store_size,
        "bodyCRC": message.body_crc,
        "queueId": message.queue_id,
        "flag": message.flag,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.physic_offset,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp,
        "bornHost": message.born_host.address,
        "storeTimestamp": message.store_timestamp,
        "storeHost": message.store_host.address,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "body": base64.b64encode(body).decode(),
        "topic": message.topic.decode(),
        "properties": message.properties_map(),
    }


def in_our_form(recorded: dict[str, Any]) -> dict[str, Any]:
    ours = {name: value for name, value in recorded.items() if name not in {"tags", "keys", "msgId"}}
    for name in ("bornHost", "storeHost"):
        ours[name] = ip_address(ours[name].rpartition("|")[0]).packed
    return ours | {"properties": ours["properties"] or {}, "body": ours["body"] or ""}


@needs_golden
def test_lists_of_messages_decode_as_recorded() -> None:
    rows = [row for row in golden_lines("broker", "frames", "message_lists.jsonl") if row["kind"] == "messageList"]
    assert rows
    for row in rows:
        rest, decoded = bytes.fromhex(row["bodyHex"]), []
        while rest and (message := m.decode(rest)) is not None:
            decoded.append(as_recorded(message))
            rest = rest[message.store_size :]
        assert decoded == [in_our_form(message) for message in row["decoded"]], row["name"]
