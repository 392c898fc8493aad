"""Views over tables of a few rows, worked out by hand: cases that no golden store has, such as dead letter queues, paces, odd messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.schema import tables as t
from pipeline.schema.lag_tables import LAG_HISTORY
from tests.runs.views_by_hand import ENGINES, Show, shown_by

HOUR = 3_600_000
AS_OF = 1_000 * HOUR
ENDS = {"orders": 1000, "pay": 50, "%RETRY%g": 30, "%DLQ%g": 9, "%DLQ%gone": 4}
OFFSETS = {("g", "orders"): 900, ("g", "pay"): 60, ("g", "%RETRY%g"): 28, ("reader", "%DLQ%g"): 7, ("fresh", "orders"): 1000}
# group -> observations (hours ago, consumerOffset, brokerOffset) of orders, whose end is 1000 now
HISTORY: dict[str, list[tuple[int, int | None, int]]] = {
    "moved": [(4, 0, 800), (2, 700, 900), (0, 900, 1000)],  # to 680, which is the begin from the second on: 220 are consumed in 4 hours
    "gains": [(4, 500, 800), (2, None, 900), (0, 900, 1000)],  # 100 an hour against 50: 100 behind take 2 hours
    "stays": [(4, 700, 800), (0, 900, 1000)],
    "fell": [(4, 950, 950), (0, 900, 1000)],
    "once": [(0, 900, 1000)],
    "never": [(4, None, 800), (0, None, 1000)],
    "done": [(4, 500, 800), (0, 1000, 1000)],
    # the pace of the last ten, not of all
    "slower": [(100, 0, 0), *((9 - number, 891 + number, 1000) for number in range(10))],
}


@pytest.fixture(params=ENGINES)
def show(request: pytest.FixtureRequest, tmp_path: Path) -> Show:
    return shown_by(request, tmp_path, request.param)


def state(offsets: dict[tuple[str, str], int], ends: dict[str, int]) -> dict[t.Table, list[tuple[Any, ...]]]:
    return {
        t.BROKER: [("b", "", {}, 0, 0, 0, 0, 0, 0, AS_OF, "clustered", "SLAVE", False, None)],
        t.QUEUE: [("b", topic, 0, 0, end) for topic, end in ends.items()],
        t.CONSUMER_OFFSET: [("b", group, topic, 0, offset) for (group, topic), offset in offsets.items()],
    }


def test_retry_and_dead_letter_topics_are_counted_apart(show: Show) -> None:
    found = {row["consumerGroup"]: row for row in show(state(OFFSETS, ENDS), "consume_lag", "group_lag")}
    names = ("groupDiff", "groupRetryDiff", "groupDlqDiff", "dlqMessages", "topics", "queues", "queuesUnknown", "queuesNegative")
    assert {group: tuple(row[name] for name in names) for group, row in found.items()} == {
        "g": (100 - 10, 2, None, 9, 3, 3, 0, 1),
        "reader": (None, None, 2, 0, 1, 1, 0, 0),
        "fresh": (0, None, None, 0, 1, 1, 0, 0),
    }


def test_groups_catch_up_at_the_pace_of_the_last_observations_or_it_is_said_why_not(show: Show) -> None:
    offsets = {(group, "orders"): 1000 if group == "done" else 900 for group in HISTORY if group != "never"}
    tables = state(offsets, {"orders": 1000, "other": 5})
    tables[t.CONSUMER_OFFSET].append(("b", "never", "orders", 1, 3))  # of another queue, so that queue 0 has no offset
    tables[LAG_HISTORY] = [
        ("b", group, "orders", 0, AS_OF - ago * HOUR, offset, end, 680 if group == "moved" and ago < 4 else 0, None, None, AS_OF, None, 1)
        for group, observations in HISTORY.items()
        for ago, offset, end in observations
    ]
    rows = [row for row in show(tables, "consume_lag", "group_pace", "catch_up") if row["queueId"] == 0]
    names = ("consumerOffsetPerHour", "brokerOffsetPerHour", "catchUpMillis", "reason")
    assert {row["consumerGroup"]: tuple(row[name] for name in names) for row in rows} == {
        "gains": (100.0, 50.0, 2 * HOUR, None),
        "moved": (55.0, 50.0, 20 * HOUR, None),
        "stays": (50.0, 50.0, None, "DOES_NOT_CATCH_UP"),
        "fell": (-12.5, 12.5, None, "OFFSET_WENT_BACK"),
        "once": (None, None, None, "NO_HISTORY"),
        "never": (None, None, None, "NO_OFFSET"),
        "done": (125.0, 50.0, 0, "NOTHING_WAITS"),
        "slower": (1.0, 0.0, 100 * HOUR, None),
    }


# sysFlag, body, properties -> columns
MESSAGES: list[tuple[int, bytes, dict[str, str], dict[str, Any]]] = [
    (0, "grüße".encode(), {}, {"bodyText": "grüße", "bodyReason": None, "bodySize": 7, "keyList": None, "transaction": None}),
    (1, b"x\x9c", {}, {"bodyText": None, "bodyReason": "COMPRESSED"}),
    (0, b"\xff\xfe", {}, {"bodyText": None, "bodyReason": "NOT_UTF8"}),
    (0, b"", {"KEYS": " a  b "}, {"bodyText": "", "bodyReason": None, "keys": " a  b ", "keyList": ["a", "b"]}),
    (4, b"", {"REAL_TOPIC": "orders", "UNIQ_KEY": "7F"}, {"transaction": "PREPARED", "realTopic": "orders", "uniqKey": "7F"}),
    (8, b"", {"DELAY": "3"}, {"transaction": "COMMIT", "delayTimeLevel": 3, "realTopic": None}),
    (12, b"", {"DELAY": "soon"}, {"transaction": "ROLLBACK", "delayTimeLevel": None}),
    (0, b"", {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "0A"}, {"originTopic": "orders", "originMsgId": "0A"}),
]


@pytest.mark.parametrize(("last", "rate"), [(2, None), (999, None), (1000, 1.0), (2000, 0.5)])
def test_a_rate_needs_a_second(show: Show, last: int, rate: float | None) -> None:
    """Two messages within a moment are no 500 a second."""
    entries = [("b", "orders", 0, number, 0, 100, 0, number * last) for number in range(2)]
    names = ("brokerName", "topic", "queueId", "queueOffset", "physicOffset", "size", "tagsCode", "storeTimestamp")
    places = [names.index(name) if name in names else None for name in t.CONSUME_QUEUE.names]
    rows = [tuple(None if place is None else entry[place] for place in places) for entry in entries]
    found = show({t.QUEUE: [("b", "orders", 0, 0, 2)], t.CONSUME_QUEUE: rows}, "hot_queue", "topic_size")
    queues = show({t.QUEUE: [("b", "orders", 0, 0, 2)], t.CONSUME_QUEUE: rows}, "hot_queue")
    assert [row["messagesPerSecond"] for row in (*found, *queues)] == [rate, rate]
    assert found[0]["bytesPerSecond"] == (None if rate is None else 200 * rate)


@pytest.mark.parametrize(("first", "last"), [(-(2**63), 2**63 - 1), (-5, 2**63 - 1), (-(2**63), 0), (2**63 - 1, 2**63 - 1)])
def test_times_of_damaged_records_end_no_view(show: Show, first: int, last: int) -> None:
    tables = state({("g", "orders"): 0}, {"orders": 2, "%DLQ%g": 2})
    tables[t.BROKER] = [(*row[:9], last, *row[10:]) for row in tables[t.BROKER]]
    entry: dict[str, Any] = {"brokerName": "b", "topic": "orders", "queueId": 0, "size": 100, "tagsCode": 0}
    entries = [entry | {"queueOffset": place, "physicOffset": place, "storeTimestamp": time} for place, time in enumerate((first, last))]
    tables[t.CONSUME_QUEUE] = [tuple(row.get(name) for name in t.CONSUME_QUEUE.names) for row in entries]
    dead = [row | {"topic": "%DLQ%g", "storeSize": 100, "reconsumeTimes": 0} for row in entries]
    tables[t.COMMIT_LOG] = [tuple(row.get(name) for name in t.COMMIT_LOG.names) for row in dead]
    told = {"brokerName": "b", "consumerGroup": "g", "topic": "orders", "expressionType": "TAG", "expression": "*"}
    tables[t.CONSUMER_FILTER] = [tuple(told.get(name) for name in t.CONSUMER_FILTER.names)]

    between = last - first if last - first < 2**63 else None
    assert [row["oldestMillis"] for row in show(tables, "dead_letters")] == [between]
    matched = [*("group_filter", "consume_lag", "consume_lag_matched")]
    assert [(row["lagMatched"], row["lagMatchedMillis"]) for row in show(tables, *matched)] == [(2, between)]
    sizes = {row["topic"]: row["messages"] for row in show(tables, "hot_queue", "topic_size")}
    assert sizes == {"orders": 2, "%DLQ%g": 0}


def test_a_check_point_of_pop_may_name_any_offset(show: Show) -> None:
    body = {"c": "g", "t": "orders", "bn": "b", "q": 0, "so": 2**63 - 1, "pt": 1, "it": 1, "n": 2, "bm": 0, "d": [0, 1]}
    point = {"brokerName": "b", "topic": "rmq_sys_REVIVE_LOG_b", "queueId": 0, "queueOffset": 0, "tags": "ck", "storeTimestamp": 1}
    point |= {"body": json.dumps(body, separators=(",", ":")).encode(), "properties": {}}
    tables = {t.COMMIT_LOG: [tuple(point.get(name) for name in t.COMMIT_LOG.names)]}
    assert {row["queueOffset"] for row in show(tables, "pop_message")} == {2**63 - 1, None}


@pytest.mark.parametrize("stamp", [AS_OF, 2**63 - 1])
def test_messages_are_decoded_as_far_as_they_can_be(show: Show, stamp: int) -> None:
    values = {
        "brokerName": "b",
        "topic": "t",
        "bornHost": "10.0.0.1",
        "bornPort": 4000,
        "storeHost": "10.0.0.2",
        "storePort": 10911,
        "storeTimestamp": stamp,
    }
    rows = [
        values | {"queueOffset": number, "sysFlag": flag, "body": body, "properties": properties, "keys": properties.get("KEYS")}
        for number, (flag, body, properties, _) in enumerate(MESSAGES)
    ]
    log = {t.COMMIT_LOG: [tuple(row.get(name) for name in t.COMMIT_LOG.names) for row in rows]}
    found = {row["queueOffset"]: row for row in show(log, "message")}
    for number, (_, _, _, wanted) in enumerate(MESSAGES):
        assert {name: found[number][name] for name in wanted} == wanted
    assert {(row["bornHost"], row["storeHost"]) for row in found.values()} == {("10.0.0.1:4000", "10.0.0.2:10911")}
    assert {row["storeTime"] is None for row in found.values()} == {stamp != AS_OF}
