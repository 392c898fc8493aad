"""Headers of pulls and bodies of heartbeats: those that real clients sent, and the forms that the broker's classes read."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_format.java.string_hash import string_hash
from store_format.remoting.errors import FrameError
from store_format.remoting.frame import decode_frame
from store_format.remoting.headers import PullMessageRequestHeader, PullMessageResponseHeader, PullSysFlag, RequestCode, java_number
from store_format.remoting.heartbeat import decode_heartbeat
from tests.truth.golden import golden_lines, needs_golden

LONGS = st.integers(-(2**63), 2**63 - 1)
INTS = st.integers(-(2**31), 2**31 - 1)


@needs_golden
def test_recorded_pulls_read_field_by_field() -> None:
    requests = responses = 0
    for row in golden_lines("broker", "frames", "frames.jsonl"):
        command = decode_frame(bytes.fromhex(row["frameHex"]))
        if row["name"].startswith("PULL_MESSAGE"):
            assert command.code == RequestCode.PULL_MESSAGE
            request = PullMessageRequestHeader.decode(command.ext_fields)
            assert request.missing() == ()
            assert request.ext_fields() == row["decoded"]["extFields"]
            requests += 1
        elif row["name"].startswith("PULL_RESPONSE"):
            response = PullMessageResponseHeader.decode(command.ext_fields)
            assert response.missing() == ()
            assert response.ext_fields() == row["decoded"]["extFields"]
            responses += 1
    assert min(requests, responses) > 3


@needs_golden
def test_flag_bits_are_those_of_the_broker() -> None:
    rows = [row for row in golden_lines("broker", "codec.jsonl") if row["kind"] == "pullSysFlagHas"]
    assert rows
    names = ("commit", "suspend", "subscription", "classFilter", "litePull")
    for row in rows:
        header = PullMessageRequestHeader.decode({"sysFlag": str(row["flag"])})
        assert [header.has(flag) for flag in PullSysFlag] == [row[name] for name in names]


@given(
    st.builds(PullMessageResponseHeader, suggestWhichBrokerId=LONGS, nextBeginOffset=LONGS, minOffset=st.none() | LONGS, maxOffset=LONGS)
)
def test_a_header_reads_what_it_writes(header: PullMessageResponseHeader) -> None:
    assert PullMessageResponseHeader.decode(header.ext_fields()) == header


def test_a_required_field_that_is_missing_or_no_number_is_null() -> None:
    header = PullMessageRequestHeader.decode({"topic": "T", "queueId": "x", "queueOffset": " 1", "sysFlag": "6", "commitOffset": None})
    names = ("consumerGroup", "queueId", "queueOffset", "maxMsgNums", "commitOffset", "suspendTimeoutMillis", "subVersion")
    assert header.missing() == names
    assert (header.has(PullSysFlag.SUSPEND), header.has(PullSysFlag.COMMIT_OFFSET)) == (True, False)
    assert PullMessageRequestHeader.decode(None).missing()[0] == "consumerGroup"
    assert not PullMessageRequestHeader.decode(None).has(PullSysFlag.SUSPEND)


@pytest.mark.parametrize(
    ("text", "bits", "number"),
    [  # Integer.parseInt and Long.parseLong
        ("0", 32, 0),
        ("+7", 32, 7),
        ("-7", 32, -7),
        ("007", 32, 7),
        ("٣", 32, 3),
        ("2147483647", 32, 2147483647),
        ("2147483648", 32, None),
        ("-2147483648", 32, -2147483648),
        ("2147483648", 64, 2147483648),
        ("9223372036854775807", 64, 9223372036854775807),
        ("9223372036854775808", 64, None),
        ("", 32, None),
        ("-", 32, None),
        (" 1", 32, None),
        ("1 ", 32, None),
        ("1_0", 32, None),
        ("1.0", 32, None),
        ("0x1", 32, None),
        (None, 32, None),
    ],
)
def test_numbers_are_read_as_java_reads_them(text: str | None, bits: int, number: int | None) -> None:
    assert java_number(text, bits) == number


@needs_golden
def test_a_recorded_heartbeat_gives_groups_and_subscriptions() -> None:
    rows = [row for row in golden_lines("broker", "frames", "frames.jsonl") if row["name"] == "HEART_BEAT"]
    for row in rows:
        recorded = json.loads(base64.b64decode(row["decoded"]["body"]))
        found = decode_heartbeat(decode_frame(bytes.fromhex(row["frameHex"])).body)
        assert found.clientID == recorded["clientID"]
        assert found.producerGroups == tuple(one["groupName"] for one in recorded["producerDataSet"])
        (consumer,), (told,) = found.consumerDataSet, recorded["consumerDataSet"]
        assert {name: getattr(consumer, name) for name in told if name != "subscriptionDataSet"} == {
            name: value for name, value in told.items() if name != "subscriptionDataSet"
        }
        (subscription,), (data,) = consumer.subscriptionDataSet, told["subscriptionDataSet"]
        assert subscription.codeSet == frozenset(map(string_hash, subscription.tagsSet))
        sets = {"tagsSet", "codeSet"}
        assert {name: getattr(subscription, name) for name in data} == {
            name: frozenset(value) if name in sets else value for name, value in data.items()
        }
    assert len(rows) == 2


def test_what_a_heartbeat_leaves_out_is_what_the_broker_takes() -> None:
    found = decode_heartbeat(
        b'{\'clientID\':\'c\',consumerDataSet:[{"groupName":"g","messageModel":"nowhere","subscriptionDataSet":[{}]}]}'
    )
    assert (found.clientID, found.producerGroups) == ("c", ())
    (consumer,) = found.consumerDataSet
    assert (consumer.groupName, consumer.messageModel, consumer.consumeType, consumer.unitMode) == ("g", None, None, False)
    (subscription,) = consumer.subscriptionDataSet
    assert (subscription.tagsSet, subscription.codeSet) == (frozenset(), frozenset())
    assert (subscription.subVersion, subscription.expressionType) == (None, "TAG")


@pytest.mark.parametrize(
    ("consumer", "expected"),
    [  # read off HeartbeatData.decode of 4.9.3
        ({"groupName": 5}, {"groupName": "5"}),
        ({"GroupName": "g"}, {"groupName": "g"}),
        ({"group_name": "g"}, {"groupName": "g"}),
        ({"messageModel": 1}, {"messageModel": "CLUSTERING"}),
        ({"consumeType": "consume_passively"}, {"consumeType": "CONSUME_PASSIVELY"}),
        ({"consumeFromWhere": "x"}, {"consumeFromWhere": None}),
        ({"unitMode": "true"}, {"unitMode": True}),
        ({"unitMode": "Y"}, {"unitMode": True}),
        ({"unitMode": 1}, {"unitMode": True}),
        ({"unitMode": 2}, {"unitMode": False}),
        ({"unitMode": ""}, {"unitMode": False}),
        ({"subscriptionDataSet": None}, {"subscriptionDataSet": ()}),
    ],
)
def test_fields_of_a_consumer_are_read_as_the_broker_reads_them(consumer: dict[str, Any], expected: dict[str, Any]) -> None:
    (found,) = decode_heartbeat(json.dumps({"consumerDataSet": [consumer]}).encode()).consumerDataSet
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("subscription", "expected"),
    [  # read off HeartbeatData.decode of 4.9.3
        ({"codeSet": ["1", 2, 2.5, "-3"]}, {"codeSet": {1, 2, -3}}),
        ({"tagsSet": [1, "a", True]}, {"tagsSet": {"1", "a", "true"}}),
        ({"subVersion": 1.7}, {"subVersion": 1}),
        ({"subVersion": "5"}, {"subVersion": 5}),
        ({"expressionType": None}, {"expressionType": None}),
        ({"expressionType": 1}, {"expressionType": "1"}),
        ({"classFilterMode": "true"}, {"classFilterMode": True}),
    ],
)
def test_fields_of_a_subscription_are_read_as_the_broker_reads_them(subscription: dict[str, Any], expected: dict[str, Any]) -> None:
    (consumer,) = decode_heartbeat(json.dumps({"consumerDataSet": [{"subscriptionDataSet": [subscription]}]}).encode()).consumerDataSet
    (found,) = consumer.subscriptionDataSet
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (None, "expected a heartbeat, a JSON object, found nothing"),
        (b"", "expected a heartbeat, a JSON object, found nothing"),
        (b"[]", "a JSON object in the heartbeat"),
        (b'{"clientID":', "body, byte 12: expected"),
        (b'{"consumerDataSet":{}}', "a list in consumerDataSet"),
        (b'{"consumerDataSet":[1]}', "a JSON object in consumerDataSet"),
        (b'{"consumerDataSet":[{"groupName":[]}]}', "a text in consumerDataSet[0].groupName"),
        (b'{"consumerDataSet":[{"messageModel":9}]}', "BROADCASTING, CLUSTERING in consumerDataSet[0].messageModel"),
        (b'{"consumerDataSet":[{"unitMode":"x"}]}', "true or false in consumerDataSet[0].unitMode"),
        (
            b'{"consumerDataSet":[{"subscriptionDataSet":[{"codeSet":[2147483648]}]}]}',
            "32 bits in consumerDataSet[0].subscriptionDataSet[0].codeSet",
        ),
        (
            b'{"consumerDataSet":[{"subscriptionDataSet":[{"subVersion":"x"}]}]}',
            "64 bits in consumerDataSet[0].subscriptionDataSet[0].subVersion",
        ),
        (b"[" * 100_000, "levels"),
    ],
)
def test_a_heartbeat_that_cannot_be_read_says_where(body: bytes | None, told: str) -> None:
    with pytest.raises(FrameError) as caught:
        decode_heartbeat(body)
    assert told in str(caught.value)


JSON_VALUES: Any = st.recursive(
    st.none() | st.booleans() | INTS | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["clientID", "consumerDataSet", "producerDataSet", "subscriptionDataSet", "tagsSet", "codeSet", "unitMode"]),
            inner,
        )
    ),
    max_leaves=12,
)


@given(JSON_VALUES | st.binary(max_size=50))
def test_any_body_gives_a_heartbeat_or_a_frame_error(value: Any) -> None:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    try:
        decode_heartbeat(body)
    except FrameError as error:
        told = str(error)
        assert told.startswith("body, byte")
