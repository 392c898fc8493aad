"""The broker's filter data of subscriptions with an expression: registered by heartbeats, loaded from consumerFilter.json.

Broker source (4.9.3): ConsumerFilterManager (build, register, unRegister, decode, clean), its FilterDataMapByTopic, ConsumerFilterData.
Rules: a newer version of a subscription replaces the registered one, an older version is ignored. bornTime is when the expression was
first registered.
Surprises: a new expression that does not compile removes the old one. The same version revives a subscription that died. After a load all
consumers count as dead; a live one counts as dead since 30 s before the load. If the bits of one consumer are from another bloom filter,
nothing is loaded. An expression that does not compile when it is loaded stays registered, and every message matches it.

The filter data does not hold the compiled expression: `compiled` returns it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from store_format.config.config_rows import BloomFilterData, ConsumerFilterData, ConsumerFilters
from store_format.remoting.heartbeat import HeartbeatSubscription
from udfs.filters.bloom_filter import BloomFilter
from udfs.filters.sql92 import Compiled, compile_expression

SQL92: Final = "SQL92"
TAG: Final = "TAG"
_DEAD_BEFORE_LOAD_MS: Final = 30_000


def is_tag_type(expression_type: str | None) -> bool:
    """Return whether a type is TAG: "TAG", "" or None, in capitals only (ExpressionType.isTagType)."""
    return expression_type in (None, "", TAG)


def compiled(data: ConsumerFilterData, *, text_operators: bool = False) -> Compiled | None:
    """Return the compiled expression of filter data; None if it does not compile or its type is unknown.

    `text_operators` is the value of TEXT_OPERATORS in the broker's version, here and elsewhere.
    """
    if data.expression is None or data.expressionType != SQL92:
        return None
    found = compile_expression(data.expression, text_operators=text_operators)
    return found if isinstance(found, Compiled) else None


def _same(bits: BloomFilterData | None, others: BloomFilterData) -> bool:
    return bits is not None and (bits.bitPos, bits.bitNum) == (others.bitPos, others.bitNum)


def is_dead(data: ConsumerFilterData) -> bool:
    """Return whether the subscription of filter data is dead: ConsumerFilterData.isDead."""
    return data.deadTime >= data.bornTime


def build(
    topic: str,
    consumer_group: str,
    expression: str | None,
    expression_type: str | None,
    client_version: int,
    now: int,
    *,
    text_operators: bool = False,
) -> ConsumerFilterData | None:
    """Return filter data without bits: ConsumerFilterManager.build. None for TAG, unknown types and expressions that do not compile.

    `expression` and `expression_type` are as the client sent them; `client_version` is the subscription's subVersion; `now` in ms.
    """
    data = ConsumerFilterData(
        topic=topic,
        consumerGroup=consumer_group,
        expression=expression,
        expressionType=expression_type,
        bornTime=now,
        clientVersion=client_version,
    )
    return None if compiled(data, text_operators=text_operators) is None else data


@dataclass(slots=True)
class ConsumerFilterManager:
    """Filter data by topic and group, with bits of one bloom filter; a topic stays when its last group is removed by a heartbeat."""

    bloom_filter: BloomFilter
    filter_data_by_topic: dict[str, dict[str, ConsumerFilterData]] = field(default_factory=dict)
    text_operators: bool = False

    def get(self, topic: str, consumer_group: str) -> ConsumerFilterData | None:
        """Return the filter data of a group's subscription to a topic, dead or not; None if there is none."""
        return self.filter_data_by_topic.get(topic, {}).get(consumer_group)

    def of_topic(self, topic: str) -> Mapping[str, ConsumerFilterData]:
        """Return the filter data of a topic's subscriptions, by group."""
        return self.filter_data_by_topic.get(topic, {})

    def register_all(self, consumer_group: str, subscriptions: Iterable[HeartbeatSubscription], now: int) -> None:
        """Register the subscriptions of a group's heartbeat; the group's subscriptions to other topics die."""
        topics = set()
        for one in subscriptions:
            topic = one.topic or ""
            topics.add(topic)
            self.register(topic, consumer_group, one.subString, one.expressionType, one.subVersion or 0, now)
        for topic, groups in self.filter_data_by_topic.items():
            if topic not in topics and consumer_group in groups:
                self._die(topic, consumer_group, now)

    def register(
        self, topic: str, consumer_group: str, expression: str | None, expression_type: str | None, client_version: int, now: int
    ) -> bool:
        """Register one subscription and return whether the broker accepted it; the arguments are those of `build`."""
        if is_tag_type(expression_type) or not expression:
            return False
        groups = self.filter_data_by_topic.setdefault(topic, {})
        bits = self.bloom_filter.generate(consumer_group, topic)
        old = groups.get(consumer_group)
        if old is not None and client_version <= old.clientVersion:
            if client_version < old.clientVersion or not is_dead(old):
                return False
            groups[consumer_group] = replace(old, deadTime=0)
            return True
        if old is not None and (old.expression, old.expressionType) == (expression, expression_type) and _same(old.bloomFilterData, bits):
            groups[consumer_group] = replace(old, clientVersion=client_version, deadTime=0 if is_dead(old) else old.deadTime)
            return True
        text_operators = self.text_operators
        new = build(topic, consumer_group, expression, expression_type, client_version, now, text_operators=text_operators)
        if new is None:
            groups.pop(consumer_group, None)
            return False
        groups[consumer_group] = replace(new, bloomFilterData=bits)
        return True

    def unregister(self, consumer_group: str, now: int) -> None:
        """Mark all subscriptions of a group as dead, when its last client has gone."""
        for topic, groups in self.filter_data_by_topic.items():
            if consumer_group in groups:
                self._die(topic, consumer_group, now)

    def _die(self, topic: str, consumer_group: str, now: int) -> None:
        data = self.filter_data_by_topic[topic][consumer_group]
        if not is_dead(data):
            self.filter_data_by_topic[topic][consumer_group] = replace(data, deadTime=now)

    def load(self, filters: ConsumerFilters, now: int) -> None:
        """Replace the filter data by that of consumerFilter.json, unless the bits of one consumer are from another bloom filter."""
        loaded: dict[str, dict[str, ConsumerFilterData]] = {}
        for by_topic in filters.filterDataByTopic:
            groups = loaded.setdefault(by_topic.topic, {})
            for data in by_topic.groupFilterData:
                if not self.bloom_filter.is_valid(data.bloomFilterData):
                    return
                dead = max(now - _DEAD_BEFORE_LOAD_MS, data.bornTime) if data.deadTime == 0 else data.deadTime
                groups[data.consumerGroup] = replace(data, deadTime=dead)
        self.filter_data_by_topic = loaded

    def clean(self, now: int, time_span: int) -> None:
        """Remove filter data that is dead for `time_span` ms (filterDataCleanTimeSpan), as the broker does before it writes the file."""
        for topic, groups in list(self.filter_data_by_topic.items()):
            kept = {group: data for group, data in groups.items() if not is_dead(data) or now - data.deadTime < time_span}
            self.filter_data_by_topic[topic] = kept
            if not kept:
                del self.filter_data_by_topic[topic]
