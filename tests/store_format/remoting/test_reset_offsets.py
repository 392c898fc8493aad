"""Bodies of RESET_CONSUMER_CLIENT_OFFSET: those that a real broker sent, those for C++ clients, and damaged ones."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_format.remoting.reset_offset import decode_reset_offset
from tests.truth.captured import CAPTURES, exchanges, unpack
from tests.truth.golden import needs_golden

RESET_CONSUMER_CLIENT_OFFSET = 220


@needs_golden
@pytest.mark.parametrize("name", [name for name in CAPTURES if name != "lossy"])
def test_offsets_are_those_that_the_broker_told_its_administrator(name: str, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path)
    told = [one for one in exchanges(folder) if one["request"]["code"] == RESET_CONSUMER_CLIENT_OFFSET]
    assert told
    for one in told:
        assert one["dir"] == "s2c"
        body = base64.b64decode(one["request"]["body_b64"])
        found = decode_reset_offset(body)
        assert {topic for topic, _ in found} == {one["request"]["ext"]["topic"]}
        # each queue stands in the text once, as fastjson writes it
        assert len(found) == body.count(b'"queueId":')
        for (_, queue_id), offset in found.items():
            assert f'"queueId":{queue_id},"topic":"{one["request"]["ext"]["topic"]}"}}:{offset}'.encode() in body


def test_the_body_for_other_languages_is_a_list() -> None:
    queues = [{"brokerName": "b", "offset": 7, "queueId": 1, "topic": "t"}, {"queueId": 2, "topic": "t"}, 3]
    assert decode_reset_offset(json.dumps({"offsetTable": queues}).encode()) == {("t", 1): 7}


def test_the_greatest_numbers_are_read() -> None:
    body = b'{"queueId":2147483647,"topic":"t"}:9223372036854775807,{"queueId":-2147483648,"topic":"t"}:-9223372036854775808'
    assert decode_reset_offset(body) == {("t", 2**31 - 1): 2**63 - 1, ("t", -(2**31)): -(2**63)}


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b'{"offsetTable":{{"queueId":"1","topic":"t"}:4}}', b'{"offsetTable":{{"queueId":1,"topic":"t"}:', b"\xff{}:1"],
)
def test_what_is_no_offset_is_left_out(body: bytes) -> None:
    assert decode_reset_offset(body) == {}


@given(st.binary(max_size=200))
def test_any_bytes_are_read(body: bytes) -> None:
    assert all(isinstance(topic, str) and isinstance(offset, int) for (topic, _), offset in decode_reset_offset(body).items())
