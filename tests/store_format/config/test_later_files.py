"""Config files that only a broker 5.x has: those of the golden broker, compared with the broker's report, and files made by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from store_format.config.config_files import decode_consumer_offsets, encode_consumer_offsets
from store_format.config.fastjson_writer import FASTJSON2
from store_format.config.later_files import (
    Pending,
    decode_order_infos,
    decode_timer_checkpoint,
    decode_timer_metrics,
    decode_transaction_metrics,
)
from store_format.errors import ConfigFileError
from tests.truth.golden5 import needs_golden5, unpacked


def live(name: str) -> bytes:
    return (unpacked("live") / "live" / "store" / "config" / name).read_bytes()


@pytest.fixture
def told() -> dict[str, Any]:
    """The report of the broker just before its shutdown."""
    found: dict[str, Any] = json.loads((unpacked("live") / "live" / "broker.json").read_text(encoding="utf-8"))
    return found


@needs_golden5
def test_pending_messages_are_those_that_the_broker_counts(told: dict[str, Any]) -> None:
    for found, counts in (
        (decode_timer_metrics(live("timermetrics"), "timermetrics"), told["timers"]["pendingByTopic"]),
        (decode_transaction_metrics(live("transactionMetrics"), "transactionMetrics"), told["transactions"]["pendingByTopic"]),
    ):
        assert {one.topic: {"count": one.count, "timeStamp": one.timestamp} for one in found} == counts


@needs_golden5
def test_offsets_of_pulls_are_those_that_the_broker_has(told: dict[str, Any]) -> None:
    offsets = decode_consumer_offsets(live("consumerOffset.json"), "consumerOffset.json")
    pulled = offsets.pulled_by_queue()
    # the broker reports the committed offset if it has no offset of a pull
    said = {(one["group"], one["topic"], one["queueId"]): one["pulled"] for one in told["offsets"]}
    assert pulled.items() <= said.items()
    assert {key for key in said if key not in pulled} == {key for key in said if key[0] not in {"cg-dead", "cg-orders", "cg-slow"}}


@needs_golden5
def test_the_timer_is_where_the_broker_said(told: dict[str, Any]) -> None:
    timer = decode_timer_checkpoint(live("timercheck"))
    assert timer["lastTimerQueueOffset"] == told["timers"]["commitQueueOffset"]
    # it went on between the question and the shutdown
    assert 0 <= timer["lastReadTimeMs"] - told["timers"]["commitReadTimeMs"] < 60_000
    assert (timer["masterTimerQueueOffset"], timer["lastTimerLogFlushPos"] > 0) == (65, True)


@needs_golden5
def test_an_orderly_pop_holds_the_messages_after_the_committed_offset() -> None:
    (info,) = decode_order_infos(live("consumerOrderInfo.json"), "consumerOrderInfo.json")
    offsets = decode_consumer_offsets(live("consumerOffset.json"), "consumerOffset.json").by_queue()
    assert (info.topic, info.group, info.queue_id) == ("shifts", "cg-order", 0)
    assert (info.invisible_time, info.pop_time <= info.last_consume_timestamp) == (60_000, True)
    first_open = next(at for at in range(64) if not info.commit_bits >> at & 1)
    assert info.offsets[first_open] == offsets["cg-order", "shifts", 0]


def test_offsets_of_an_order_info_are_distances_from_the_first() -> None:
    text = b'{"table":{"t@g":{3:{"popTime":7,"i":null,"o":[100,1,5],"l":8,"cm":2}},"odd":{0:{"o":[9]}}}}'
    first, second = decode_order_infos(text, "x")
    assert (first.offsets, first.queue_id, first.invisible_time, first.commit_bits) == ((100, 101, 105), 3, None, 2)
    assert (second.topic, second.group, second.offsets) == (None, None, (9,))
    assert json.loads(second.text) == {"o": [9]}


@pytest.mark.parametrize("text", [b"", b"{}", b'{"table":null}', b'{"table":{}}', b'{"timingCount":{}}'])
def test_a_table_that_is_not_there_has_no_rows(text: bytes) -> None:
    assert decode_order_infos(text, "x") == ()
    assert decode_timer_metrics(text, "x") == ()


@pytest.mark.parametrize(
    "text", [b"[]", b'{"table":5}', b'{"table":{"t@g":5}}', b'{"table":{"t@g":{0:{"o":5}}}}', b'{"table":{"t@g":{0:{"o":["x"]}}}}']
)
def test_what_no_broker_writes_is_an_error(text: bytes) -> None:
    with pytest.raises(ConfigFileError):
        decode_order_infos(text, "x")


def test_a_count_may_lack_its_time() -> None:
    assert decode_transaction_metrics(b'{"transactionCount":{"t":{"count":3}}}', "x") == (Pending(topic="t", count=3, timestamp=0),)


def test_a_short_timercheck_is_followed_by_zeros() -> None:
    assert decode_timer_checkpoint((7).to_bytes(8, "big") + (9).to_bytes(8, "big")) == {
        "lastReadTimeMs": 7,
        "lastTimerLogFlushPos": 9,
        "lastTimerQueueOffset": 0,
        "masterTimerQueueOffset": 0,
        "stateVersion": 0,
        "timestamp": 0,
        "counter": 0,
    }


def test_offsets_of_other_topics_are_left_out_of_both_tables() -> None:
    text = b'{"offsetTable":{"a@g":{0:1},"b@g":{0:2}},"pullOffsetTable":{"a@g":{0:5},"b@g":{0:6}}}'
    kept = decode_consumer_offsets(text, "x").of_topics(("b",))
    assert json.loads(encode_consumer_offsets(kept, FASTJSON2).replace(b"0:", b'"0":')) == {
        "offsetTable": {"b@g": {"0": 2}},
        "pullOffsetTable": {"b@g": {"0": 6}},
    }
    assert decode_consumer_offsets(b'{"offsetTable":{"a@g":{0:1}}}', "x").of_topics(("b",)).pullOffsetTable is None
