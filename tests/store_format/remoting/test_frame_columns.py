"""Many frames as columns: every row has the plain decoder's result for that frame, whatever the frame is."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_format.remoting.command import LanguageCode, RemotingCommand, SerializeType
from store_format.remoting.errors import TOO_LONG_FRAME, FrameError
from store_format.remoting.frame import decode_command, encode_frame
from store_format.remoting.frame_columns import NO_LANGUAGE, NO_OPAQUE, FrameColumns, frame_columns, stream_columns
from store_format.remoting.frame_kernel import PULL_FIELDS
from store_format.remoting.headers import PullMessageRequestHeader, PullMessageResponseHeader, java_number
from tests.makers.frame_cases import BAD, COMMANDS, GOOD, HEADERS, framed
from tests.truth.golden import golden_lines, needs_golden

BITS = dict(PullMessageRequestHeader.NUMBERS) | dict(PullMessageResponseHeader.NUMBERS)
PULL = {"consumerGroup": "g", "topic": "T中", "queueId": "3", "queueOffset": "123", "sysFlag": "+6", "subVersion": "9223372036854775807"}


def columns_of(frames: list[bytes]) -> FrameColumns:
    columns = frame_columns(np.frombuffer(b"".join(frames), np.uint8))
    assert columns.lengths.tolist() == [len(frame) for frame in frames]
    assert columns.consumed == sum(map(len, frames))
    return columns


def row_of(columns: FrameColumns, row: int, numbers: dict[str, Any]) -> dict[str, Any]:
    language = int(columns.language[row])
    start, length = int(columns.body.starts[row]), int(columns.body.lengths[row])
    ints = {name: int(values[row]) if known[row] else None for name, (values, known) in numbers.items()}
    texts = {name: columns.text(row, name) for name in (*PULL_FIELDS, "remark")}
    return {
        "code": int(columns.code[row]),
        "flag": int(columns.flag[row]),
        "opaque": None if columns.opaque[row] == NO_OPAQUE else int(columns.opaque[row]),
        "version": int(columns.version[row]),
        "language": None if language == NO_LANGUAGE else LanguageCode(language),
        "body": columns.buffer[start : start + length].tobytes() or None,
        **{name: ints.get(name, text) for name, text in texts.items()},
    }


def expected_of(command: RemotingCommand) -> dict[str, Any]:
    ext = command.ext_fields or {}
    fields = {name: java_number(ext.get(name), BITS[name]) if name in BITS else ext.get(name) for name in PULL_FIELDS}
    names = ("code", "flag", "opaque", "version", "language", "body", "remark")
    return {name: getattr(command, name) for name in names} | fields


def check(frames: list[bytes]) -> FrameColumns:
    """Check every row against decode_command; returns the columns."""
    columns = columns_of(frames)
    numbers = {name: columns.numbers(name, bits) for name, bits in BITS.items()}
    for row, frame in enumerate(frames):
        try:
            command = decode_command(frame[4:])
        except FrameError as error:
            assert str(columns.errors[row]) == str(error)  # noqa: PT017
            continue
        assert row not in columns.errors
        assert row_of(columns, row, numbers) == expected_of(command), frame
    return columns


@needs_golden
def test_recorded_frames_have_the_fields_that_were_recorded() -> None:
    rows = list(golden_lines("broker", "frames", "frames.jsonl"))
    columns = check([bytes.fromhex(row["frameHex"]) for row in rows])
    assert columns.errors == {}
    assert len(columns.careful_rows()) < len(rows) / 10


def test_json_headers_of_every_kind_go_the_careful_way_or_say_the_same() -> None:
    import json

    headers = [json.loads(line)["header"].encode("utf-8", "surrogatepass") for line in HEADERS.read_text("utf-8").splitlines()]
    check([framed(header, body=b"xy") for header in headers])


@given(st.lists(COMMANDS, max_size=8))
def test_any_commands_have_their_fields(commands: list[RemotingCommand]) -> None:
    check([encode_frame(command) for command in commands])


@pytest.mark.parametrize("kind", SerializeType)
def test_changed_bytes_say_the_same_both_ways(kind: SerializeType) -> None:
    digits = random.Random(7)
    fields: dict[str, str | None] = {**PULL, "other": 'x\x01\x02"\n', "": "y\\"}
    command = RemotingCommand(code=11, opaque=-7, flag=0, version=399, remark="r", ext_fields=fields, body=b"ab", serialize_type=kind)
    frame = encode_frame(command)
    frames = [frame]
    for _ in range(4000):
        junk = bytearray(frame)
        for _ in range(digits.randint(1, 3)):
            junk[digits.randrange(4, len(junk))] = digits.choice(
                [0, 1, 0x7F, 0x80, 0xFF, 0x22, 0x2C, 0x5C, 0x7D, 0x30, digits.randrange(256)]
            )
        frames.append(bytes(junk))
    assert 0 not in check(frames).careful_rows()


@pytest.mark.parametrize("kind", SerializeType)
@pytest.mark.parametrize(
    "number",
    [
        "0",
        "-1",
        "+1",
        "-0",
        "",
        "-",
        "+",
        " 1",
        "1x",
        "00012",
        "٣",
        "2147483647",
        "2147483648",
        "9" * 18,
        "9" * 19,
        "9" * 25,
        "-" + "9" * 18,
    ],
)
def test_numbers_of_ext_fields_are_those_of_java(kind: SerializeType, number: str) -> None:
    fields: dict[str, str | None] = {"queueId": number, "queueOffset": number, "maxOffset": number}
    check([encode_frame(RemotingCommand(code=11, opaque=1, ext_fields=fields, serialize_type=kind))])


def test_frames_with_errors_do_not_stop_the_ones_behind_them() -> None:
    columns = check([GOOD, BAD, b"\0\0\0\0", b"\0\0\0\3abc", framed(b"", kind=9), GOOD])
    assert sorted(columns.errors) == [1, 2, 3, 4]


@pytest.mark.parametrize("rest", [b"", b"\0", GOOD[:3], GOOD[:4], GOOD[:-1], b"\x00\xff\xff\xfc"])
def test_what_is_not_whole_is_left_over(rest: bytes) -> None:
    columns = frame_columns(np.frombuffer(GOOD + GOOD + rest, np.uint8))
    assert (len(columns.starts), columns.consumed, columns.stopped_by) == (2, 2 * len(GOOD), None)


@pytest.mark.parametrize("length", [b"\x00\xff\xff\xfd", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"])
def test_a_length_above_the_limit_stops(length: bytes) -> None:
    columns = frame_columns(np.frombuffer(GOOD + length + GOOD, np.uint8))
    assert len(columns.starts) == 1
    assert columns.stopped_by is not None
    assert (columns.stopped_by.exception, columns.stopped_by.position) == (TOO_LONG_FRAME, len(GOOD))


def test_a_stream_is_read_in_parts_of_as_many_frames_as_one_wants() -> None:
    stream = np.frombuffer(GOOD * 10, np.uint8)
    parts = list(stream_columns(stream, max_frames=3))
    assert [len(part.starts) for part in parts] == [3, 3, 3, 1]
    assert sum(part.consumed for part in parts) == len(stream)
    assert [int(opaque) for part in parts for opaque in part.opaque] == [1] * 10
