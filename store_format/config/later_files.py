"""Loads the tables of a broker 5.x under config/ that 4.9 lacks: consumerOrderInfo.json, timermetrics, transactionMetrics, timercheck.

Broker source (5.5.0): ConsumerOrderInfoManager, TimerMetrics, TransactionMetrics, TimerCheckpoint.
Rule: consumerOrderInfo.json has the messages that an orderly POP holds; the metrics count messages that are pending, by their real topic.
Surprise: an order info has its first offset, then the distance of each further offset from it. timercheck is no JSON, and has 4096 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from store_format.config.config_fields import LONG_BITS, ConfigText, integer, members
from store_format.config.config_rows import split_topic_at_group
from store_format.config.fastjson import parse_json
from store_format.config.fastjson_scanner import Node

TIMER_CHECKPOINT: Final = np.dtype(
    [
        ("lastReadTimeMs", ">i8"),
        ("lastTimerLogFlushPos", ">i8"),
        ("lastTimerQueueOffset", ">i8"),
        ("masterTimerQueueOffset", ">i8"),
        ("stateVersion", ">i8"),
        ("timestamp", ">i8"),
        ("counter", ">i8"),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderInfo:
    """What an orderly POP of one queue holds; times in ms.

    Attributes:
        topic: the queue's topic, None if the key cannot be split into topic and group.
        group: the consumer group, None in the same case.
        queue_id: the queue's number.
        pop_time: when the messages were given out.
        invisible_time: how long the messages stay invisible; None if the file does not say.
        offsets: queue offsets of the messages.
        last_consume_timestamp: when one of the messages was last given out or acknowledged.
        commit_bits: bit n is set if the message at place n of `offsets` was acknowledged.
        text: the object in the file.
    """

    topic: str | None
    group: str | None
    queue_id: int
    pop_time: int
    invisible_time: int | None
    offsets: tuple[int, ...]
    last_consume_timestamp: int
    commit_bits: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """The number of messages of a topic that are pending, and when it last changed, ms."""

    topic: str
    count: int
    timestamp: int


def decode_order_infos(text: bytes, path: str) -> tuple[OrderInfo, ...]:
    """The order infos in the text of consumerOrderInfo.json.

    Raises:
        ConfigFileError: no broker writes this text.
    """
    source = ConfigText(text, path)
    found = []
    for key, _, queues in _members_of(source, "table"):
        topic, group = split_topic_at_group(key) or (None, None)
        if not isinstance(queues.value, tuple):
            raise source.broken(queues, "an object")
        for queue_id, info in queues.value:
            values = {name: value for name, _, value in members(info, source)}
            found.append(
                OrderInfo(
                    topic=topic,
                    group=group,
                    queue_id=integer(queue_id, source, LONG_BITS),
                    pop_time=_number(values, "popTime", source) or 0,
                    invisible_time=_number(values, "i", source),
                    offsets=_offsets(values.get("o"), source),
                    last_consume_timestamp=_number(values, "l", source) or 0,
                    commit_bits=_number(values, "cm", source) or 0,
                    text=source.raw(info),
                )
            )
    return tuple(found)


def decode_timer_metrics(text: bytes, path: str) -> tuple[Pending, ...]:
    """The timer messages that are pending, by topic, in the text of timermetrics."""
    return _pending(ConfigText(text, path), "timingCount")


def decode_transaction_metrics(text: bytes, path: str) -> tuple[Pending, ...]:
    """The half messages that are pending, by topic, in the text of transactionMetrics."""
    return _pending(ConfigText(text, path), "transactionCount")


def decode_timer_checkpoint(raw: bytes) -> dict[str, int]:
    """The numbers of a timercheck file by name; a shorter file is read as if zeros followed."""
    row = np.frombuffer(raw[: TIMER_CHECKPOINT.itemsize].ljust(TIMER_CHECKPOINT.itemsize, b"\0"), TIMER_CHECKPOINT)[0]
    return {name: int(row[name]) for name in TIMER_CHECKPOINT.names or ()}


def _members_of(source: ConfigText, name: str) -> list[tuple[str, Node, Node]]:
    """The members of the object under `name` in the file's object; an empty list if there is no such object."""
    root = parse_json(source.text, source.path)
    tables = [value for member, _, value in members(root, source) if member == name] if root.value is not None else []
    return [one for table in tables if table.value is not None for one in members(table, source)]


def _pending(source: ConfigText, name: str) -> tuple[Pending, ...]:
    found = []
    for topic, _, value in _members_of(source, name):
        values: dict[str, Any] = {member: node for member, _, node in members(value, source)}
        count, timestamp = (_number(values, member, source) or 0 for member in ("count", "timeStamp"))
        found.append(Pending(topic=topic, count=count, timestamp=timestamp))
    return tuple(found)


def _number(values: dict[str, Node], name: str, source: ConfigText) -> int | None:
    node = values.get(name)
    return None if node is None or node.value is None else integer(node, source, LONG_BITS)


def _offsets(node: Node | None, source: ConfigText) -> tuple[int, ...]:
    if node is None or node.value is None:
        return ()
    if not isinstance(node.value, list):
        raise source.broken(node, "a list of integers")
    found = [integer(item, source, LONG_BITS) for item in node.value]
    return tuple(found[:1]) + tuple(found[0] + distance for distance in found[1:])
