"""Messages that the store refuses, and the records of others: facts of DefaultMessageStore, CommitLog, MessageExtEncoder."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest

from store_format.broker_version import BrokerVersion
from store_format.java.hash_maps import concurrent_hash_map_order, hash_map_order
from store_format.log.put_message import (
    PUT_MESSAGE,
    BatchedMessage,
    InnerMessage,
    MessageBatch,
    PutMessageError,
    PutMessageStatus,
    PutSettings,
    prepare,
    prepare_batch,
    properties_to_string,
)
from store_format.record.message import Host, Message, encode

V4 = Host(address=bytes([10, 0, 0, 1]), port=10911)
V6 = Host(address=bytes(15) + b"\1", port=10911)
PLAIN = InnerMessage(topic="T", queue_id=1, body=b"body", born_host=V4, store_host=V4, born_timestamp=5)
FIXED = 91  # a record with IPv4 hosts and nothing in it
SMALL = PutSettings(max_message_size=200)
ILLEGAL = PutMessageStatus.MESSAGE_ILLEGAL
TOO_LONG = PutMessageStatus.PROPERTIES_SIZE_EXCEEDED
BIG = PutSettings(max_message_size=1 << 20)

REFUSED: list[tuple[str, InnerMessage, PutSettings, PutMessageStatus | None]] = [
    ("a topic of 127 units", replace(PLAIN, topic="t" * 127), BIG, None),
    ("a topic of 128 units", replace(PLAIN, topic="t" * 128), BIG, ILLEGAL),
    ("properties of 32767 units", replace(PLAIN, properties_string="p" * 32767), BIG, None),
    ("properties of 32768 units", replace(PLAIN, properties_string="p" * 32768), BIG, ILLEGAL),
    ("properties of 32768 bytes in fewer units", replace(PLAIN, properties_string="é" * 16384), BIG, TOO_LONG),
    ("properties of 32767 bytes in fewer units", replace(PLAIN, properties_string="é" * 16383 + "e"), BIG, None),
    ("a record of maxMessageSize", replace(PLAIN, body=bytes(200 - FIXED - 1)), SMALL, None),
    ("a record of a byte more", replace(PLAIN, body=bytes(200 - FIXED)), SMALL, ILLEGAL),
    ("hosts of IPv6 that make it longer", replace(PLAIN, body=bytes(200 - FIXED - 1), born_host=V6), SMALL, ILLEGAL),
    ("a broker that is a slave", PLAIN, PutSettings(is_slave=True), PutMessageStatus.SERVICE_NOT_AVAILABLE),
    ("a long topic and a small limit", replace(PLAIN, topic="t" * 128), PutSettings(max_message_size=1), ILLEGAL),
]


@pytest.mark.parametrize(("message", "settings", "status"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_messages_are_turned_down_as_the_broker_does(message: InnerMessage, settings: PutSettings, status: PutMessageStatus | None) -> None:
    prepared = prepare(message, 7, settings)
    assert prepared is status if status else isinstance(prepared, Message)


@pytest.mark.parametrize(
    ("version", "plain", "with_offsets"),
    [
        # as the real brokers answered, with maxMessageSize at its default
        (BrokerVersion.V4_9_3, ILLEGAL, ILLEGAL),
        (BrokerVersion.V4_9_8, None, None),
        (BrokerVersion.V5_5_0, None, ILLEGAL),
    ],
)
def test_a_record_may_be_longer_than_its_body_from_4_9_8_on(
    version: BrokerVersion, plain: PutMessageStatus | None, with_offsets: PutMessageStatus | None
) -> None:
    settings, message = replace(SMALL, rule=PUT_MESSAGE.of(version).value), replace(PLAIN, body=bytes(200))
    for found, status in ((prepare(message, 7, settings), plain), (prepare(message, 7, settings, numbered), with_offsets)):
        assert found is status if status else isinstance(found, Message)
    assert prepare(replace(PLAIN, body=bytes(201)), 7, settings) is ILLEGAL


@pytest.mark.parametrize(
    ("version", "throws"),
    # as the real brokers answered: MESSAGE_ILLEGAL, MESSAGE_ILLEGAL, NumberFormatException
    [(BrokerVersion.V4_9_3, False), (BrokerVersion.V4_9_8, False), (BrokerVersion.V5_5_0, True)],
)
def test_a_bad_delay_level_comes_before_long_properties_in_5_5_0(version: BrokerVersion, *, throws: bool) -> None:
    settings = replace(SMALL, rule=PUT_MESSAGE.of(version).value)
    message = replace(PLAIN, properties={"DELAY": "x"}, properties_string="DELAY\x01x\x02k\x01" + "v" * 40_000)
    with pytest.raises(PutMessageError, match="DELAY") if throws else nullcontext():
        assert prepare(message, 7, settings) is ILLEGAL


@pytest.mark.parametrize(
    ("topic", "is_taken"),
    # as the real broker 5.5.0 answered; the older ones refuse each of them
    [("%RETRY%" + "g" * 248, True), ("%RETRY%" + "g" * 249, False), ("%DLQ%" + "g" * 123, False), ("t" * 128, False)],
)
def test_the_topic_of_a_retry_may_be_long_in_5_5_0(topic: str, *, is_taken: bool) -> None:
    message = replace(PLAIN, topic=topic)
    new, old = (replace(BIG, rule=PUT_MESSAGE.of(version).value) for version in (BrokerVersion.V5_5_0, BrokerVersion.V4_9_8))
    assert prepare(message, 7, old) is ILLEGAL
    found = prepare(message, 7, new)
    assert isinstance(found, Message) if is_taken else found is ILLEGAL


# as the real brokers answered: offset, offset, MESSAGE_ILLEGAL
@pytest.mark.parametrize(("version", "is_taken"), [*zip(BrokerVersion, (True, True, False), strict=True)])
def test_5_5_0_refuses_the_property_of_inner_batches(version: BrokerVersion, *, is_taken: bool) -> None:
    found = prepare(replace(PLAIN, properties={"INNER_NUM": "0"}), 7, replace(BIG, rule=PUT_MESSAGE.of(version).value))
    assert isinstance(found, Message) if is_taken else found is ILLEGAL


def test_the_record_of_a_long_topic_has_two_bytes_for_its_length() -> None:
    settings, topic = replace(BIG, rule=PUT_MESSAGE.of(BrokerVersion.V5_5_0).value), "%RETRY%" + "g" * 248
    found = prepare(replace(PLAIN, topic=topic), 7, settings)
    assert isinstance(found, Message)
    raw = encode(found)
    assert raw[4:8].hex() == "daa320ab"  # the magic code of version 2
    assert len(raw) == FIXED + 1 + len(PLAIN.body) + 255
    assert raw.endswith(b"\0\xff" + topic.encode() + b"\0\0")
    small = replace(settings, max_message_size=4, rule=replace(settings.rule, more_than_body=len(raw) - 4))
    assert isinstance(prepare(replace(PLAIN, topic=topic), 7, small), Message)
    assert prepare(replace(PLAIN, topic=topic), 7, replace(small, rule=replace(small.rule, more_than_body=len(raw) - 5))) is ILLEGAL


def numbered(message: InnerMessage) -> InnerMessage:
    return replace(message, properties_string="INNER_MULTI_QUEUE_OFFSET\x010")


@pytest.mark.parametrize(
    ("version", "status"),
    [(BrokerVersion.V4_9_3, "UNKNOWN_ERROR"), (BrokerVersion.V4_9_8, "UNKNOWN_ERROR"), (BrokerVersion.V5_5_0, "MESSAGE_ILLEGAL")],
)
def test_a_message_that_only_its_offsets_make_too_long_is_refused_otherwise_by_4_9(version: BrokerVersion, status: str) -> None:
    rule = replace(PUT_MESSAGE.of(version).value, more_than_body=0)
    message = replace(PLAIN, body=bytes(200 - FIXED - 1))
    assert isinstance(prepare(message, 7, replace(SMALL, rule=rule)), Message)
    assert prepare(message, 7, replace(SMALL, rule=rule), numbered) is PutMessageStatus[status]


@pytest.mark.parametrize(
    ("message", "what"),
    [
        (replace(PLAIN, topic="é" * 64), "a topic: expected up to 127 bytes, found 128"),
        (replace(PLAIN, properties={"DELAY": "3s"}), "property DELAY: expected an int, found '3s'"),
        (replace(PLAIN, properties={"DELAY": str(2**31)}), "expected an int"),
        (replace(PLAIN, sys_flag=0x10), "expected bit 16 with an IPv6 address only"),
    ],
)
def test_what_the_broker_throws_at_or_cannot_read_again_is_an_error(message: InnerMessage, what: str) -> None:
    with pytest.raises(PutMessageError, match=what):
        prepare(message, 7, BIG)


@pytest.mark.parametrize(
    ("level", "sys_flag", "topic", "queue_id", "stored_level"),
    [
        ("3", 0, "SCHEDULE_TOPIC_XXXX", 2, "3"),
        ("18", 0x8, "SCHEDULE_TOPIC_XXXX", 17, "18"),
        ("99", 0, "SCHEDULE_TOPIC_XXXX", 17, "18"),
        ("0", 0, "T", 1, "0"),
        ("-1", 0, "T", 1, "-1"),
        ("3", 0x4, "T", 1, "3"),
        ("3", 0xC, "T", 1, "3"),
    ],
)
def test_delayed_messages_go_to_the_queue_of_their_level(level: str, sys_flag: int, topic: str, queue_id: int, stored_level: str) -> None:
    message = replace(PLAIN, properties={"DELAY": level}, properties_string=f"DELAY\x01{level}", sys_flag=sys_flag)
    stored = prepare(message, 7, BIG)
    assert isinstance(stored, Message)
    assert (stored.topic.decode(), stored.queue_id, stored.properties_map()["DELAY"]) == (topic, queue_id, stored_level)
    real = {name: value for name, value in stored.properties_map().items() if name.startswith("REAL")}
    assert real == ({} if topic == "T" else {"REAL_TOPIC": "T", "REAL_QID": "1"})


def test_a_message_that_is_not_delayed_keeps_the_text_of_its_properties() -> None:
    stored = prepare(replace(PLAIN, properties={"a": "1"}, properties_string="b\x012\x02"), 7, BIG)
    assert isinstance(stored, Message)
    assert stored.properties == b"b\x012\x02"
    stored = prepare(replace(PLAIN, properties={"a": "1"}), 7, BIG)
    assert isinstance(stored, Message)
    assert stored.properties == b""


@pytest.mark.parametrize(("born", "store", "flags"), [(V4, V4, 0), (V6, V4, 0x10), (V4, V6, 0x20), (V6, V6, 0x30)])
def test_addresses_of_ipv6_set_their_bit(born: Host, store: Host, flags: int) -> None:
    stored = prepare(replace(PLAIN, born_host=born, store_host=store, sys_flag=0x1), 7, BIG)
    assert isinstance(stored, Message)
    assert stored.sys_flag == flags | 0x1


BATCH = MessageBatch(topic="T", queue_id=0, messages=[], born_host=V4, store_host=V4, born_timestamp=1)


@pytest.mark.parametrize(
    ("given", "added", "stored"),
    [
        (b"a\x011", {"CLUSTER": "c"}, b"a\x011\x02CLUSTER\x01c"),
        (b"a\x011\x02", {"CLUSTER": "c"}, b"a\x011\x02CLUSTER\x01c"),
        (b"", {"CLUSTER": "c"}, b"CLUSTER\x01c"),
        (b"a\x011", {}, b"a\x011"),
        (b"a\x011\x02", {}, b"a\x011\x02"),
    ],
)
def test_the_properties_of_a_batch_stand_behind_those_of_each_message(given: bytes, added: dict[str, str], stored: bytes) -> None:
    batch = replace(BATCH, messages=[BatchedMessage(body=b"x", properties=given, flag=3)], properties=added)
    found = prepare_batch(batch, 7, BIG)
    assert isinstance(found, list)
    assert (found[0].properties, found[0].flag, found[0].store_timestamp) == (stored, 3, 7)


@pytest.mark.parametrize(
    "batch",
    [
        replace(BATCH, topic="t" * 128),
        replace(BATCH, sys_flag=0x8),
        replace(BATCH, properties={"DELAY": "1"}),
        replace(BATCH, messages=[BatchedMessage(body=bytes(179))]),  # 22 bytes more as a client sends it
    ],
)
def test_batches_are_turned_down_as_the_broker_does(batch: MessageBatch) -> None:
    assert prepare_batch(batch, 7, SMALL) is ILLEGAL


def test_a_batch_whose_records_are_too_long_makes_the_broker_throw() -> None:
    one = BatchedMessage(body=b"")
    assert isinstance(prepare_batch(replace(BATCH, messages=[one] * 2), 7, SMALL), list)
    with pytest.raises(PutMessageError, match="expected up to 200 bytes of records, found 276"):
        prepare_batch(replace(BATCH, messages=[one] * 3), 7, SMALL)


# as stored by the broker in the golden store basic, and as listed in the broker's own topics.json
STORED_ORDER = ["REAL_TOPIC", "color", "price", "KEYS", "UNIQ_KEY", "WAIT", "DELAY", "TAGS", "REAL_QID"]
TOPICS = ["metrics", "%RETRY%g-lite2", "%RETRY%g-tag", "quiet", "oracleCluster", "%RETRY%g-main", "%RETRY%g-high", "SCHEDULE_TOPIC_XXXX"]


def test_keys_come_in_the_order_of_java_s_maps() -> None:
    # WAIT and DELAY share a bucket, and the older one comes first
    assert hash_map_order(sorted(STORED_ORDER, reverse=True)) == STORED_ORDER
    assert properties_to_string({"TAGS": "t", "KEYS": "k"}) == "KEYS\x01k\x02TAGS\x01t"
    assert concurrent_hash_map_order(sorted(TOPICS), 1024) == TOPICS
