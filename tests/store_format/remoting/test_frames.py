"""RemotingCommand frames, compared with the real decoder: whole ones, broken ones, chunks of them, and JSON headers of every kind.

tests/data/remoting/json_headers.jsonl records the broker's own RemotingCommand.decode (4.9.3, fastjson 1.2.76): the fields that each header
sets, or the exception. If a header has no opaque, the real one is the next of a counter.
"""

from __future__ import annotations

import json
import pickle
import random
import struct
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_format.java.hash_maps import hash_map_order
from store_format.remoting.command import OPAQUE_OF_RECEIVER, RemotingCommand, SerializeType
from store_format.remoting.decoder import NettyDecoder
from store_format.remoting.errors import BUFFER_UNDERFLOW, OUT_OF_MEMORY, TOO_LONG_FRAME, FrameError
from store_format.remoting.frame import FRAME_MAX_LENGTH, decode_command, decode_frame, encode_frame
from store_format.remoting.header_text import DEPTH_MAX
from tests.makers.frame_cases import BAD, COMMANDS, GOOD, HEADERS, framed
from tests.truth.golden import golden_lines, needs_golden

ABSENT: dict[str, Any] = {
    "code": 0,
    "language": "JAVA",
    "version": 0,
    "opaque": OPAQUE_OF_RECEIVER,
    "flag": 0,
    "remark": None,
    "extFields": None,
}


def outcome(content: bytes) -> dict[str, Any]:
    """The decoded form, or the exception, in the form of the golden data."""
    try:
        return decode_command(content).decoded_form()
    except FrameError as error:
        return {"error": error.exception if 0 <= error.offset <= len(content) + 4 else f"position {error.offset}"}


@needs_golden
def test_every_recorded_frame_decodes_as_the_broker_decodes_it() -> None:
    rows = list(golden_lines("broker", "frames", "frames.jsonl"))
    assert len(rows) > 100
    for row in rows:
        assert decode_frame(bytes.fromhex(row["frameHex"])).decoded_form() == row["decoded"], row["name"]


@needs_golden
def test_every_recorded_frame_is_written_again_byte_by_byte() -> None:
    for row in golden_lines("broker", "frames", "frames.jsonl"):
        frame = bytes.fromhex(row["frameHex"])
        assert encode_frame(decode_frame(frame)) == frame, row["name"]


@needs_golden
def test_live_requests_and_responses_are_written_again_byte_by_byte() -> None:
    for row in golden_lines("broker", "frames", "live_pull.volatile.jsonl"):
        for name in ("requestHex", "responseHex"):
            frame = bytes.fromhex(row[name])
            assert encode_frame(decode_frame(frame)) == frame, row["name"]


@needs_golden
def test_malformed_chunks_are_refused_as_the_broker_refuses_them() -> None:
    for row in golden_lines("broker", "frames", "malformed.jsonl"):
        recorded, decoder = row["decoder"], NettyDecoder()
        commands = [decoder.feed(bytes.fromhex(chunk)) for chunk in row["chunksHex"]]
        assert [len(some) for some in commands] == recorded["perChunk"], row["name"]
        forms = [one.decoded_form() for some in commands for one in some]
        for form, told in zip(forms, recorded["commands"], strict=True):
            # the harness says so of every opaque in a line whose bytes hold a brace and nowhere the word
            same = ("opaque",) if told["opaque"] == OPAQUE_OF_RECEIVER else ()
            assert form == told | {name: form[name] for name in same}, row["name"]
        assert decoder.open == recorded["channelOpen"], row["name"]
        assert bool(decoder.errors) != decoder.open, row["name"]
        if "directDecode" in recorded:
            assert outcome(bytes.fromhex("".join(row["chunksHex"]))[4:]) == recorded["directDecode"], row["name"]


def test_json_headers_set_what_they_set_in_the_broker() -> None:
    rows = [json.loads(line) for line in HEADERS.read_text("utf-8").splitlines()]
    assert len(rows) > 800
    for row in rows:
        found = outcome(framed(row["header"].encode("utf-8", "surrogatepass"))[4:])
        expected = {"error": row["error"]} if "error" in row else ABSENT | row["set"]
        assert {name: found.get(name) for name in expected} == expected, row["header"]


@pytest.mark.parametrize("spoilt", ["", "\n", ',"b":null', ',"b":1'])
def test_the_quick_way_and_the_careful_way_agree(spoilt: str) -> None:
    header = '{"code":11,"extFields":{"a":"1","\\u4e2d":"x y"%s},"flag":0,"language":"GO","opaque":-5,"remark":"r","version":399}'
    if spoilt == "\n":
        header = "/**/" + header
        spoilt = ""
    found = outcome(framed((header % spoilt).encode())[4:])
    ext = {"a": "1", "中": "x y"} | ({} if not spoilt else {"b": None if "null" in spoilt else "1"})
    expected = {"code": 11, "flag": 0, "language": "GO", "opaque": -5, "remark": "r", "version": 399, "extFields": ext}
    assert {name: found[name] for name in expected} == expected


@given(COMMANDS)
def test_what_is_encoded_decodes_to_itself(command: RemotingCommand) -> None:
    assert decode_frame(encode_frame(command)) == command


@pytest.mark.parametrize(
    ("given_fields", "decoded_fields"),
    [
        ({"code": 32768}, {"code": -32768}),
        ({"code": 200050}, {"code": 3442}),
        ({"version": 40000}, {"version": -25536}),
        ({"remark": ""}, {"remark": None}),
        ({"ext_fields": {}}, {"ext_fields": None}),
        ({"ext_fields": {"a": None, "b": "c"}}, {"ext_fields": {"b": "c"}}),
        ({"body": b""}, {"body": None}),
    ],
)
def test_rocketmq_headers_lose_what_they_lose_in_the_broker(given_fields: Any, decoded_fields: Any) -> None:
    command = RemotingCommand(**({"code": 1, "opaque": 2, "serialize_type": SerializeType.ROCKETMQ} | given_fields))
    found = decode_frame(encode_frame(command))
    assert {name: getattr(found, name) for name in decoded_fields} == decoded_fields


def test_a_command_without_opaque_or_language_is_not_written() -> None:
    for kind in SerializeType:
        with pytest.raises(FrameError, match="opaque"):
            encode_frame(RemotingCommand(code=1, opaque=None, serialize_type=kind))
    with pytest.raises(FrameError, match="language"):
        encode_frame(RemotingCommand(code=1, opaque=1, language=None, serialize_type=SerializeType.ROCKETMQ))


@given(st.lists(COMMANDS, min_size=1, max_size=4), st.lists(st.integers(0, 400), max_size=6))
def test_it_does_not_matter_how_a_stream_is_cut(commands: list[RemotingCommand], cuts: list[int]) -> None:
    stream = b"".join(map(encode_frame, commands))
    bounds = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    decoder = NettyDecoder()
    found = [one for start, end in pairwise(bounds) for one in decoder.feed(stream[start:end])]
    assert (found, decoder.open) == (commands, True)


EXAMPLES = [
    RemotingCommand(code=11, opaque=7, flag=1, remark="FOUND", ext_fields={"topic": "T", "queueId": "3"}, body=b"abc", serialize_type=kind)
    for kind in SerializeType
]


@pytest.mark.parametrize("command", EXAMPLES, ids=["JSON", "ROCKETMQ"])
def test_a_frame_cut_at_any_byte_waits_or_fails_and_nothing_else(command: RemotingCommand) -> None:
    frame = encode_frame(command)
    for cut in range(len(frame)):
        decoder = NettyDecoder()
        assert (decoder.feed(frame[:cut]), decoder.open) == ([], True)
        assert decoder.feed(frame[cut:]) == [command]
        with pytest.raises(FrameError):
            decode_frame(frame[:cut])
        if cut >= 4:
            outcome(frame[4:cut])


@pytest.mark.parametrize("command", EXAMPLES, ids=["JSON", "ROCKETMQ"])
def test_any_changed_byte_gives_a_command_or_a_frame_error(command: RemotingCommand) -> None:
    digits = random.Random(5)
    frame = encode_frame(command)
    for _ in range(2000):
        junk = bytearray(frame)
        for _ in range(digits.randint(1, 4)):
            junk[digits.randrange(4, len(junk))] = digits.choice([0, 1, 0x7F, 0x80, 0xFF, 0x22, 0x7B, digits.randrange(256)])
        assert not is_position(outcome(bytes(junk[4:])))
        decoder = NettyDecoder()
        decoder.feed(bytes(junk[digits.randrange(8) :]))


def is_position(found: dict[str, Any]) -> bool:
    """Whether the position of an error is outside of the frame."""
    return str(found.get("error")).startswith("position ")


@given(st.binary(max_size=200))
def test_junk_gives_a_command_or_a_frame_error(junk: bytes) -> None:
    assert not [content for content in (junk, framed(junk)[4:], framed(junk, kind=1)[4:]) if is_position(outcome(content))]
    NettyDecoder().feed(junk)


@pytest.mark.parametrize("nested", ["[" * 5000, '{"a":' * 5000, '{"extFields":{"a":' + "[" * 5000])
def test_levels_without_end_are_refused(nested: str) -> None:
    assert outcome(framed(nested.encode())[4:]) == {"error": "JSONException"}
    assert DEPTH_MAX < 512


def rocketmq_header(key_length: int, value_length: int) -> bytes:
    ext = struct.pack(">h", key_length) + b"k" + struct.pack(">i", value_length) + b"v"
    return struct.pack(">hbhiiii", 11, 0, 1, 5, 0, 0, len(ext)) + ext


HOSTILE = {
    "frame length": (b"\x00\xff\xff\xfc" + b"\x00" * 8, None),
    "frame length above the limit": (b"\x00\xff\xff\xfd" + b"\x00" * 8, TOO_LONG_FRAME),
    "negative frame length": (b"\xff\xff\xff\xff", TOO_LONG_FRAME),
    "header length": (b"\x00\x00\x00\x08\x00\xff\xff\xffabcd", BUFFER_UNDERFLOW),
    "key length": (framed(rocketmq_header(0x7FFF, 1), 1), BUFFER_UNDERFLOW),
    "value length": (framed(rocketmq_header(1, 0x7FFFFFFD), 1), BUFFER_UNDERFLOW),
    "value length beyond any array": (framed(rocketmq_header(1, 0x7FFFFFFE), 1), OUT_OF_MEMORY),
    "digits": (framed(b'{"code":' + b"9" * 100_000 + b"}"), "JSONException"),
    "digits of a fraction": (framed(b'{"code":1.' + b"9" * 100_000 + b"}"), "JSONException"),
    "exponent": (framed(b'{"code":1e999999999}'), "JSONException"),
    "exponent in a text": (framed(b'{"remark":1e9999999999}'), "JSONException"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_is_allocated_for_a_length_that_is_only_claimed(name: str) -> None:
    chunk, exception = HOSTILE[name]
    decoder = NettyDecoder()
    tracemalloc.start()
    try:
        assert decoder.feed(chunk) == []
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
    finally:
        tracemalloc.stop()
    assert [error.exception for error in decoder.errors] == ([exception] if exception else [])


HUGE = framed(rocketmq_header(1, 0x7FFFFFFF), 1)


@pytest.mark.parametrize(
    ("chunks", "per_chunk", "is_open"),
    [  # read off the real NettyDecoder
        ([GOOD + BAD + GOOD + BAD + GOOD], [3], False),
        ([BAD, GOOD], [0, 0], False),
        ([GOOD + b"\0\0\0", b"\0", GOOD], [1, 0, 0], False),
        ([b"\x7f\xff\xff\xff" + GOOD], [0], False),
        ([GOOD + b"\x01\0\0\0" + GOOD], [1], False),
        ([b"\0\0\0\0" + GOOD], [1], False),
        ([b"\0\0\0\2\1"], [0], True),
        ([b"\0\0\0\2\1\2" + GOOD], [1], False),
        ([BAD + GOOD[:9], GOOD[9:]], [0, 0], False),
        ([GOOD, b"", GOOD], [1, 0, 1], True),
        ([HUGE + GOOD], [0], True),
        ([HUGE, GOOD], [0, 1], True),
        ([GOOD + HUGE + GOOD, GOOD], [1, 2], True),
    ],
)
def test_what_closes_a_connection_and_what_is_decoded_behind_it(chunks: list[bytes], per_chunk: list[int], is_open: bool) -> None:
    decoder = NettyDecoder()
    assert [len(decoder.feed(chunk)) for chunk in chunks] == per_chunk
    assert decoder.open is is_open


def test_errors_say_at_which_byte_of_the_connection() -> None:
    decoder = NettyDecoder()
    decoder.feed(GOOD[:5])
    decoder.feed(GOOD[5:] + framed('{"中":x}'.encode()))
    (error,) = decoder.errors
    assert error.position == len(GOOD) + 8 + len('{"中":'.encode())
    assert str(error) == f"frame, byte {error.position}: expected a value, found 'x}}'"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301


def test_a_position_behind_bytes_that_are_no_utf8_counts_bytes() -> None:
    with pytest.raises(FrameError) as caught:
        decode_frame(framed(b'{"a\xff\xe4\xb8":?}'))
    assert caught.value.position == 8 + 8


def test_a_frame_longer_than_the_broker_takes_is_refused_before_it_arrives() -> None:
    decoder = NettyDecoder(frame_max_length=100)
    assert decoder.feed(struct.pack(">i", 97)) == []
    assert [error.exception for error in decoder.errors] == [TOO_LONG_FRAME]
    assert FRAME_MAX_LENGTH == 16_777_216


def test_ext_fields_come_in_the_order_of_a_hash_map() -> None:
    # all as the broker wrote them
    assert hash_map_order(["b", "aa", "c", "Z", "k10", "k9"]) == ["aa", "b", "c", "Z", "k10", "k9"]
    assert hash_map_order(["10", "9", "1"]) == ["1", "9", "10"]
    # key0 to key24, which take 64 buckets
    order = [1, 2, 0, 5, 6, 3, 4, 9, 7, 8, 22, 21, 20, 15, 14, 13, 12, 19, 18, 17, 16, 11, 10, 24, 23]
    assert hash_map_order(f"key{number}" for number in range(25)) == [f"key{number}" for number in order]
    # nine and more keys in one of sixteen buckets
    crowded = [a + b + c for a in ("Aa", "BB") for b in ("Aa", "BB") for c in ("Aa", "BB", "CC")]
    assert hash_map_order(crowded) == sorted(crowded, key=lambda key: not key.endswith("CC"))
