"""Bodies of pull responses and batches, compared with the real MessageDecoder."""

from __future__ import annotations

import zlib
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_format.layout import COMPRESSED_FLAG
from store_format.record.message import Host, Message, encode
from store_format.remoting import message_list
from store_format.remoting.errors import FrameError
from store_format.remoting.message_list import client_form, decode_batch, decode_messages, java_host, uncompressed_body
from tests.truth.golden import golden_lines, needs_golden


def message(body: bytes = b"", *, sys_flag: int = 0) -> Message:
    host = Host(address=b"\x7f\0\0\1", port=10911)
    return Message(
        queue_id=1,
        queue_offset=2,
        physic_offset=3,
        born_timestamp=4,
        born_host=host,
        store_timestamp=5,
        store_host=host,
        body=body,
        topic=b"T",
        properties=b"TAGS\x01a",
        sys_flag=sys_flag,
    )


@needs_golden
def test_recorded_message_lists_decode_as_the_client_decodes_them() -> None:
    for row in golden_lines("broker", "frames", "message_lists.jsonl"):
        body = bytes.fromhex(row["bodyHex"])
        if row["kind"] == "batch":
            assert [one.decoded_form() for one in decode_batch(body)] == row["decoded"]
            continue
        assert row["error"] is None
        assert [client_form(one) for one in decode_messages(body)] == row["decoded"], row["name"]
        plain = [client_form(one, read_body=False)["body"] for one in decode_messages(body, read_body=False)]
        assert plain == row["withoutReadBody"], row["name"]


@needs_golden
def test_recorded_lists_cut_anywhere_give_a_beginning_of_them() -> None:
    rows = [row for row in golden_lines("broker", "frames", "message_lists.jsonl") if row["kind"] == "messageList"]
    body = bytes.fromhex(rows[0]["bodyHex"])
    whole = decode_messages(body)
    ends = list(accumulate(one.store_size for one in whole))
    assert ends[-1] == len(body)
    for cut in range(len(body)):
        assert decode_messages(body[:cut]) == whole[: sum(end <= cut for end in ends)]


@given(st.binary(max_size=300))
def test_junk_is_no_error(junk: bytes) -> None:
    decode_messages(junk)
    record = encode(message(b"x"))
    assert len(decode_messages(record + junk)) >= 1


def test_a_body_is_inflated_and_no_further_than_it_should_be(monkeypatch: pytest.MonkeyPatch) -> None:
    compressed = message(zlib.compress(b"a" * 1000), sys_flag=COMPRESSED_FLAG)
    assert uncompressed_body(compressed) == b"a" * 1000
    monkeypatch.setattr(message_list, "UNCOMPRESSED_MAX", 999)
    with pytest.raises(FrameError, match="at most 999 bytes"):
        uncompressed_body(compressed)
    with pytest.raises(FrameError, match="a compressed body"):
        uncompressed_body(message(b"no zlib", sys_flag=COMPRESSED_FLAG))


@pytest.mark.parametrize(
    ("address", "shown"),
    [  # java.net.InetAddress.getHostAddress
        (bytes([10, 0, 0, 1]), "10.0.0.1|10911"),
        (bytes(15) + b"\1", "0:0:0:0:0:0:0:1|10911"),
        (bytes.fromhex("20010db8000000000000ff0000428329"), "2001:db8:0:0:0:ff00:42:8329|10911"),
        (bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 1]), "10.0.0.1|10911"),
    ],
)
def test_hosts_are_written_as_java_writes_them(address: bytes, shown: str) -> None:
    assert java_host(Host(address=address, port=10911)) == shown


@pytest.mark.parametrize(
    ("body", "exception", "position"),
    [
        (bytes(19), "BufferUnderflowException", 0),
        (bytes(16) + b"\xff\xff\xff\xff\0\0", "NegativeArraySizeException", 20),
        (bytes(16) + b"\x7f\xff\xff\xf0\0\0", "BufferUnderflowException", 20),
        (bytes(20) + b"\0", "BufferUnderflowException", 20),
        (bytes(20) + b"\x80\0", "NegativeArraySizeException", 22),
        (bytes(22) + bytes(20) + b"\0\5abcd", "BufferUnderflowException", 44),
    ],
)
def test_a_batch_that_ends_early_is_an_error(body: bytes, exception: str, position: int) -> None:
    with pytest.raises(FrameError) as caught:
        decode_batch(body)
    assert (caught.value.exception, caught.value.position) == (exception, position)
