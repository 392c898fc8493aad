"""Bloom filter, filter data and message filter, compared with records of the real broker and with the facts of its source."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_format.config.config_rows import BloomFilterData, ConsumerFilterData, ConsumerFilters, FilterDataMapByTopic
from store_format.record.record_columns import Slices
from store_format.remoting.heartbeat import HeartbeatSubscription
from tests.truth.golden import golden_lines, needs_golden
from udfs.filters import consumer_filter_manager as cfm
from udfs.filters import message_filter as mf
from udfs.filters.bloom_filter import BitsArray, BloomFilter, BloomFilterError
from udfs.filters.tags import SubscriptionParseError, tags_code

BLOOM = BloomFilter.create_by_fn(20, 32)
BORN = 1_000_000


def bloom_lines(kind: str) -> list[dict[str, Any]]:
    rows = [row for row in golden_lines("broker", "bloom.jsonl") if row["kind"] == kind]
    assert rows, kind
    return rows


@needs_golden
def test_bits_are_those_of_the_broker() -> None:
    rows = bloom_lines("bloom")
    for row in rows:
        bloom = BloomFilter.create_by_fn(row["f"], row["n"])
        assert (bloom.k, bloom.m) == (row["k"], row["m"])
        positions = [bloom.calc_bit_positions(one["s"]) for one in row["positions"]]
        assert [list(one) for one in positions] == [one["bitPos"] for one in row["positions"]]
        bits = BitsArray(bloom.m)
        for one in positions[::3]:
            bloom.hash_to(one, bits)
        assert bytes(bits).hex() == row["addedEvery3rdHex"]
        assert [bloom.is_hit(one, bits) for one in positions] == row["isHit"]
        assert [bloom.is_hit(one, BitsArray.of(bytes(bits))) for one in positions] == row["isHit"]
    assert len(rows) > 5


@needs_golden
def test_bloom_filters_that_the_broker_refuses_are_refused() -> None:
    for row in bloom_lines("bloomError"):
        with pytest.raises(BloomFilterError, match=r"expected .* found"):
            BloomFilter.create_by_fn(row["f"], row["n"])


@needs_golden
def test_bits_lie_in_bytes_as_the_broker_lays_them() -> None:
    (row,) = bloom_lines("bitsArray")
    bits = BitsArray(row["bitLength"])
    for position in row["set"]:
        bits.set_bit(position)
    assert bytes(bits).hex() == row["hex"]
    assert [position for position in range(row["bitLength"]) if bits.get_bit(position)] == row["set"]


@needs_golden
def test_subscriptions_are_registered_as_recorded() -> None:
    manager, now = cfm.ConsumerFilterManager(BloomFilter.create_by_fn(20, 64)), BORN
    for row in bloom_lines("filterManagerRegister"):
        now += 10
        taken = manager.register(row["topic"], row["group"], row["expression"], row["type"], row["version"], now)
        data, stored = manager.get(row["topic"], row["group"]), None
        if data is not None and data.bloomFilterData is not None:
            stored = {
                "expression": data.expression,
                "clientVersion": data.clientVersion,
                "bitPos": list(data.bloomFilterData.bitPos or ()),
                "bitNum": data.bloomFilterData.bitNum,
                "dead": cfm.is_dead(data),
            }
        assert (taken, stored) == (row["returned"], row["stored"]), row


@needs_golden
def test_unknown_types_have_no_filter() -> None:
    rows = [row for row in golden_lines("broker", "sql92.jsonl") if row["kind"] == "filterFactory"]
    for row in rows:
        assert (cfm.build("T", "G", "a = 1", row["type"], 1, BORN) is not None) == row["registered"]
    assert {row["registered"] for row in rows} == {True, False}


@needs_golden
def test_subscriptions_of_pulls_are_built_as_recorded() -> None:
    rows = [row for row in golden_lines("broker", "codec.jsonl") if row["kind"] == "filterApiBuild"]
    for row in rows:
        if "error" in row["result"]:
            with pytest.raises(mf.SubscriptionError):
                mf.TopicSubscription.build("T", row["subString"], row["type"])
        else:
            built = mf.TopicSubscription.build("T", row["subString"], row["type"])
            result = row["result"]
            assert (built.sub_string, built.expression_type) == (result["subString"], result["expressionType"])
            assert built.code_set == frozenset(result["codeSet"])
        assert cfm.is_tag_type(row["type"]) == row["isTagType"]
    assert rows


def test_separators_only_are_refused_for_tag_types_alone() -> None:
    with pytest.raises(SubscriptionParseError):
        mf.TopicSubscription.build("T", "||", None)
    assert mf.TopicSubscription.build("T", "||", "").code_set == frozenset()


def subscription(topic: str, text: str, kind: str, version: int) -> HeartbeatSubscription:
    return HeartbeatSubscription(
        topic=topic, subString=text, tagsSet=frozenset(), codeSet=frozenset(), subVersion=version, expressionType=kind
    )


def test_a_heartbeat_registers_its_subscriptions_and_ends_the_others() -> None:
    manager = cfm.ConsumerFilterManager(BLOOM)
    manager.register_all("G", [subscription("A", "a = 1", "SQL92", 1), subscription("B", "b = 1", "SQL92", 1)], BORN)
    manager.register_all("other", [subscription("B", "b = 2", "SQL92", 1)], BORN)
    manager.register_all("G", [subscription("A", "a = 2", "SQL92", 2), subscription("C", "TagA", "TAG", 2)], BORN + 5)
    a, b, other = manager.get("A", "G"), manager.get("B", "G"), manager.get("B", "other")
    assert a is not None
    assert (a.expression, a.bornTime, a.deadTime) == ("a = 2", BORN + 5, 0)
    assert b is not None
    assert (b.deadTime, cfm.is_dead(b)) == (BORN + 5, True)
    assert other is not None
    assert not cfm.is_dead(other)
    assert manager.of_topic("C") == {}


def test_a_dead_subscription_lives_again_with_the_same_version_and_is_forgotten_after_its_time() -> None:
    manager = cfm.ConsumerFilterManager(BLOOM)
    manager.register("T", "G", "a = 1", "SQL92", 5, BORN)
    assert not manager.register("T", "G", "a = 9", "SQL92", 5, BORN + 1)
    manager.unregister("G", BORN + 2)
    assert not manager.register("T", "G", "a = 1", "SQL92", 4, BORN + 3)
    assert manager.register("T", "G", "a = 9", "SQL92", 5, BORN + 3)
    data = manager.get("T", "G")
    assert data is not None
    assert (data.expression, data.deadTime, data.bornTime) == ("a = 1", 0, BORN)
    manager.unregister("G", BORN + 10)
    manager.clean(BORN + 109, 100)
    assert manager.get("T", "G") is not None
    manager.clean(BORN + 110, 100)
    assert manager.filter_data_by_topic == {}


def filter_data(expression: str | None = "a = 1", kind: str = "SQL92", **changed: Any) -> ConsumerFilterData:
    bits = BLOOM.generate("G", "T")
    data = ConsumerFilterData(topic="T", consumerGroup="G", expression=expression, expressionType=kind, bornTime=BORN, bloomFilterData=bits)
    return replace(data, **changed)


def test_a_load_kills_all_consumers_and_needs_bits_of_this_filter() -> None:
    manager = cfm.ConsumerFilterManager(BLOOM)
    alive, dead, broken = filter_data(), filter_data(consumerGroup="D", deadTime=BORN + 1), filter_data("a >", consumerGroup="B")
    file = ConsumerFilters((FilterDataMapByTopic("T", (alive, dead, broken)),))
    for now, dead_time in ((BORN + 100_000, BORN + 70_000), (BORN + 10, BORN)):
        manager.load(file, now)
        assert {group: data.deadTime for group, data in manager.of_topic("T").items()} == {"G": dead_time, "D": BORN + 1, "B": dead_time}
    stranger = replace(alive, bloomFilterData=BloomFilterData(bitPos=(1, 2, 3), bitNum=216))
    manager.load(ConsumerFilters((FilterDataMapByTopic("U", (alive,)), FilterDataMapByTopic("T", (stranger,)))), BORN)
    assert list(manager.filter_data_by_topic) == ["T"]
    assert len(manager.of_topic("T")) == 3


class Unit(NamedTuple):
    msg_store_time: int
    bit_map: bytes | None


SQL = mf.TopicSubscription(topic="T", sub_string="a = 1", expression_type="SQL92")
ALL_BITS, NO_BITS = b"\xff" * (BLOOM.m // 8), bytes(BLOOM.m // 8)


def own_bits() -> bytes:
    bits = BitsArray(BLOOM.m)
    BLOOM.hash_to(BLOOM.calc_bit_positions("G#T"), bits)
    return bytes(bits)


JUDGED = [
    (filter_data(), Unit(BORN + 1, NO_BITS), False),
    (filter_data(), Unit(BORN + 1, ALL_BITS), True),
    (filter_data(), Unit(BORN + 1, own_bits()), True),
    (filter_data(), Unit(BORN, NO_BITS), True),  # as old as the subscription is too old
    (filter_data(), None, True),
    (filter_data(), Unit(BORN + 1, None), True),
    (filter_data(), Unit(BORN + 1, NO_BITS + b"\0"), True),
    (filter_data(deadTime=BORN + 5), Unit(BORN + 9, NO_BITS), False),  # dead consumers are judged too
    (filter_data(bloomFilterData=None), Unit(BORN + 1, NO_BITS), True),
    (filter_data(bloomFilterData=BloomFilterData(bitPos=(1, 2), bitNum=BLOOM.m)), Unit(BORN + 1, NO_BITS), True),
    (filter_data(bloomFilterData=BloomFilterData(bitPos=(1, 2, 3), bitNum=216)), Unit(BORN + 1, NO_BITS), True),
    (filter_data(bloomFilterData=BloomFilterData(bitPos=(1, 2, BLOOM.m), bitNum=BLOOM.m)), Unit(BORN + 1, NO_BITS), True),
    (filter_data(bloomFilterData=BloomFilterData(bitPos=(-1, 2, 3), bitNum=BLOOM.m)), Unit(BORN + 1, NO_BITS), True),
    (filter_data("a >"), Unit(BORN + 1, NO_BITS), True),
    (filter_data(None), Unit(BORN + 1, NO_BITS), True),
    (filter_data(kind="XX"), Unit(BORN + 1, NO_BITS), True),
    (None, Unit(BORN + 1, NO_BITS), True),
]


@pytest.mark.parametrize(("data", "unit", "matched"), JUDGED)
def test_the_bit_map_of_an_entry_judges_it_where_it_can(data: ConsumerFilterData | None, unit: Unit | None, matched: bool) -> None:
    wanted = mf.ExpressionMessageFilter(SQL, data, BLOOM)
    assert wanted.is_matched_by_consume_queue(5, unit) == matched
    for subscription in (None, replace(SQL, class_filter_mode=True)):
        assert mf.ExpressionMessageFilter(subscription, data, BLOOM).is_matched_by_consume_queue(5, unit)


UNITS = st.none() | st.builds(Unit, st.integers(BORN - 2, BORN + 2), st.sampled_from([None, b"", b"\xff", NO_BITS, ALL_BITS, own_bits()]))


@given(st.lists(UNITS), st.sampled_from([data for data, _, _ in JUDGED]), st.booleans())
def test_many_entries_are_judged_as_one_is(units: list[Unit | None], data: ConsumerFilterData | None, class_filter: bool) -> None:
    wanted = mf.ExpressionMessageFilter(replace(SQL, class_filter_mode=class_filter), data, BLOOM)
    maps = [(unit.bit_map if unit else None) or b"" for unit in units]
    lengths = np.array([len(one) for one in maps], np.int64)
    found = wanted.are_matched_by_bit_maps(
        np.array([unit is not None for unit in units], np.bool_),
        np.array([unit.msg_store_time if unit else 0 for unit in units], np.int64),
        mf.BitMaps(np.frombuffer(b"".join(maps), np.uint8), Slices((np.cumsum(lengths) - lengths).astype(np.int64), lengths)),
    )
    assert found.tolist() == [wanted.is_matched_by_consume_queue(0, unit) for unit in units]


@pytest.mark.parametrize(
    ("expression", "kind", "code", "matched"),
    [
        ("TagA||TagB", "TAG", tags_code("TagB"), True),
        ("TagA||TagB", None, tags_code("TagC"), False),
        ("TagA", "TAG", None, True),
        ("TagA", "TAG", (7 << 32) + (tags_code("TagA") & 0xFFFFFFFF), True),
        ("*", "TAG", 5, True),
        ("", "TAG", 5, True),
        ("TagA", "", tags_code("TagA"), False),
        ("*", "", 5, True),
        ("TagA", "tag", 5, True),
    ],
)
def test_tags_are_judged_by_their_codes(expression: str, kind: str | None, code: int | None, matched: bool) -> None:
    wanted = mf.ExpressionMessageFilter(mf.TopicSubscription.build("T", expression, kind), None, BLOOM)
    assert wanted.is_matched_by_consume_queue(code, None) == matched
    assert wanted.is_matched_by_commit_log({"a": "1"})


@pytest.mark.parametrize(
    ("subscription", "data", "matched"),
    [
        (SQL, filter_data(), [True, False, False, False]),
        (SQL, filter_data("a IS NULL"), [False, False, False, True]),
        (SQL, None, [True] * 4),
        (SQL, filter_data("a >"), [True] * 4),
        (SQL, filter_data(None), [True] * 4),
        (None, filter_data(), [True] * 4),
        (replace(SQL, class_filter_mode=True), filter_data(), [True] * 4),
        (replace(SQL, expression_type="TAG"), filter_data(), [True] * 4),
    ],
)
def test_a_message_matches_where_its_expression_is_true(
    subscription: mf.TopicSubscription | None, data: ConsumerFilterData | None, matched: list[bool]
) -> None:
    values = ["1", "2", "x", None]
    wanted = mf.ExpressionMessageFilter(subscription, data, BLOOM)
    assert [wanted.is_matched_by_commit_log(None if one is None else {"a": one}) for one in values] == matched


def test_a_retry_message_is_judged_by_the_expression_for_the_topic_it_came_from() -> None:
    manager = cfm.ConsumerFilterManager(BLOOM)
    manager.register("Real", "G", "a = 1", "SQL92", 1, BORN)
    retry = mf.TopicSubscription.build("%RETRY%G", "*", "TAG")
    wanted = mf.ExpressionForRetryMessageFilter(retry, None, BLOOM, manager)
    assert wanted.is_matched_by_commit_log({"RETRY_TOPIC": "Real", "a": "1"})
    assert not wanted.is_matched_by_commit_log({"RETRY_TOPIC": "Real", "a": "2"})
    assert wanted.is_matched_by_commit_log({"RETRY_TOPIC": "Other", "a": "2"})
    for properties in ({"a": "1"}, None):
        with pytest.raises(mf.RetryTopicMissingError, match=r"%RETRY%G.*RETRY_TOPIC"):
            wanted.is_matched_by_commit_log(properties)
    manager.unregister("G", BORN + 1)
    assert not wanted.is_matched_by_commit_log({"RETRY_TOPIC": "Real", "a": "2"}), "dead filter data still judges"
    for passing in (None, replace(retry, class_filter_mode=True)):
        assert mf.ExpressionForRetryMessageFilter(passing, None, BLOOM, manager).is_matched_by_commit_log(None)


def test_other_topics_are_judged_as_without_support_for_retries() -> None:
    manager = cfm.ConsumerFilterManager(BLOOM)
    wanted = mf.ExpressionForRetryMessageFilter(SQL, filter_data(), BLOOM, manager)
    assert wanted.is_matched_by_commit_log({"a": "1"})
    assert not wanted.is_matched_by_commit_log(None)
    assert mf.ExpressionForRetryMessageFilter(replace(SQL, expression_type=""), None, BLOOM, manager).is_matched_by_commit_log(None)
