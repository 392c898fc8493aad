"""The filter that a pull hands to the store: which entries match a subscription.

Broker source (4.9.3): ExpressionMessageFilter, ExpressionForRetryMessageFilter (filterSupportRetry), MessageFilter; SubscriptionData;
FilterAPI.build.
Rules: an entry is tested twice, first by its consume queue unit (the tag's hash code, or the bit map of its ext unit), then by the
message's properties. If an expression has no filter data, every message matches.
Surprises: the bit map is tested only for messages stored after the subscription's bornTime. If its length differs, or the filter data has
no valid bits, every entry passes that test. The type "" is TAG when entries are matched, but not when a subscription is built, which then
matches no tag. With filterSupportRetry a message of a retry topic is tested by the group's expression for the message's original topic,
dead or not. A message without the property for its original topic makes the broker throw. In later versions, both hold only if the
subscription is not TAG: udfs/filters/retry_rules.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from store_format.big_endian import Bytes
from store_format.compiled import compiled as numba_compiled
from store_format.config.config_rows import ConsumerFilterData
from store_format.record.record_columns import Slices
from udfs.filters import tags
from udfs.filters.bloom_filter import BitsArray, BloomFilter, BloomFilterError
from udfs.filters.consumer_filter_manager import TAG, ConsumerFilterManager, compiled, is_tag_type
from udfs.filters.retry_rules import DEFAULT_RETRY_RULES, RetryRules
from udfs.filters.sql92 import matches

RETRY_GROUP_TOPIC_PREFIX: Final = "%RETRY%"
PROPERTY_RETRY_TOPIC: Final = "RETRY_TOPIC"
_BITS_A_BYTE: Final = 8


class EntryUnit(Protocol):
    """The fields of an entry's unit in the consume queue extension that filters read."""

    @property
    def msg_store_time(self) -> int:
        """Store timestamp of the message, ms."""

    @property
    def bit_map(self) -> bytes | None:
        """The bits of the consumers whose expressions the message matches."""


class SubscriptionError(ValueError):
    """A subscription without an expression, which the broker refuses with SUBSCRIPTION_PARSE_FAILED."""


class RetryTopicMissingError(Exception):
    """A message of a retry topic without the property for its original topic: the broker throws, and answers SYSTEM_ERROR."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSubscription:
    """A subscription to a topic (SubscriptionData), of a heartbeat or built for one pull.

    `code_set` has the hash codes of the tags; those of a heartbeat may differ from the tags' own. `sub_version` is a time of the client's
    clock in ms. With `class_filter_mode` the client filters by a Java class.
    """

    topic: str
    sub_string: str
    expression_type: str | None = TAG
    code_set: frozenset[int] = frozenset()
    sub_version: int = 0
    class_filter_mode: bool = False

    @property
    def wanted_codes(self) -> frozenset[int] | None:
        """The hash codes of the tags that a TAG subscription matches; None for "*", even if a heartbeat sent codes."""
        return None if self.sub_string == tags.SUB_ALL else self.code_set

    @classmethod
    def build(cls, topic: str, sub_string: str | None, expression_type: str | None) -> TopicSubscription:
        """Return the subscription of a pull request: FilterAPI.build.

        Raises:
            SubscriptionParseError: a TAG subscription has separators only.
            SubscriptionError: a subscription of another type has no expression.
        """
        if expression_type in (None, TAG):
            codes = tags.parse_subscription(sub_string)
            if codes is None or sub_string is None:
                return cls(topic=topic, sub_string=tags.SUB_ALL)
            return cls(topic=topic, sub_string=sub_string, code_set=codes)
        if not sub_string:
            raise SubscriptionError(f"subscription to {topic}: expected an expression of type {expression_type!r}, found none")
        return cls(topic=topic, sub_string=sub_string, expression_type=expression_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition on a message's properties; pulls of a topic with the same condition share its verdicts.

    An `expression` of None stands on a retry topic for the group's expression for the message's original topic.
    """

    expression: str | None


@dataclass(frozen=True, slots=True)
class ExpressionMessageFilter:
    """The filter of one pull; `subscription` is None if the pull is not filtered.

    `filter_data` is that of the subscription's expression; None for TAG, and if the expression does not compile. `text_operators` is the
    value of TEXT_OPERATORS in the broker's version.
    """

    subscription: TopicSubscription | None
    filter_data: ConsumerFilterData | None
    bloom_filter: BloomFilter
    text_operators: bool = field(default=False, kw_only=True)

    @property
    def _passes_all(self) -> bool:
        return self.subscription is None or self.subscription.class_filter_mode

    def is_matched_by_consume_queue(self, tags_code: int | None, ext_unit: EntryUnit | None) -> bool:
        """Return whether an entry may match, by its tagsCode and its ext unit.

        Both are None if the ext unit cannot be read. `ext_unit` is also None if the entry has no ext unit.
        """
        if self.subscription is None or self.subscription.class_filter_mode:
            return True
        if is_tag_type(self.subscription.expression_type):
            return tags.tag_matches(self.subscription.wanted_codes, tags_code)
        positions = self._judging_bits()
        if not positions or ext_unit is None or self.filter_data is None:
            return True
        if ext_unit.msg_store_time <= self.filter_data.bornTime:  # isMsgInLive
            return True
        if not ext_unit.bit_map or len(ext_unit.bit_map) * _BITS_A_BYTE != self.bloom_filter.m:
            return True
        return self.bloom_filter.is_hit(positions, BitsArray.of(ext_unit.bit_map))

    def _judging_bits(self) -> tuple[int, ...]:
        """Return the consumer's bit positions; an empty tuple if bit maps are not tested."""
        data = self.filter_data
        if data is None or data.bloomFilterData is None or not self.bloom_filter.is_valid(data.bloomFilterData):
            return ()
        if compiled(data, text_operators=self.text_operators) is None:
            return ()
        positions = data.bloomFilterData.bitPos or ()
        try:
            self.bloom_filter.hash_to(positions, BitsArray(self.bloom_filter.m))
        except BloomFilterError:  # a file may hold any number; the broker throws, and treats the entry as a match
            return ()
        return positions

    def are_matched_by_bit_maps(self, has_unit: NDArray[np.bool_], store_times: NDArray[np.int64], maps: BitMaps) -> NDArray[np.bool_]:
        """Return `is_matched_by_consume_queue` for each entry; `has_unit` is whether its unit can be read. Not for TAG subscriptions."""
        out = np.ones(len(has_unit), np.bool_)
        positions = () if self._passes_all else self._judging_bits()
        if positions and self.filter_data is not None:
            born, bits = self.filter_data.bornTime, np.array(positions, np.int64)
            where = maps.buffer, maps.slices.starts, maps.slices.lengths
            _judge(has_unit, store_times, *where, np.int64(born), bits, self.bloom_filter.m // _BITS_A_BYTE, out)
        return out

    def commit_log_condition(self) -> Condition | None:
        """Return the condition that `is_matched_by_commit_log` tests on the properties; None if it does not read them."""
        if self._passes_all or self.subscription is None or is_tag_type(self.subscription.expression_type):
            return None
        if self.filter_data is None or compiled(self.filter_data, text_operators=self.text_operators) is None:
            return None
        return Condition(expression=self.filter_data.expression)

    def is_matched_by_commit_log(self, properties: Mapping[str, str] | None) -> bool:
        """Return whether a message matches by its properties (None if it has none)."""
        if self.subscription is None or self._passes_all or is_tag_type(self.subscription.expression_type):
            return True
        return is_true(self.filter_data, properties, text_operators=self.text_operators)


@dataclass(frozen=True, slots=True)
class BitMaps:
    """The bit maps of many ext units: ranges of a buffer. The range of a unit without a bit map is empty."""

    buffer: Bytes
    slices: Slices


@numba_compiled
def _judge(has_unit, store_times, buffer, starts, lengths, born_time, positions, size, out):  # type: ignore[no-untyped-def]
    for i in range(len(out)):
        if not has_unit[i] or store_times[i] <= born_time or lengths[i] != size:
            continue
        for position in positions:
            if not buffer[starts[i] + (position >> 3)] >> (position & 7) & 1:
                out[i] = False
                break


def is_true(data: ConsumerFilterData | None, properties: Mapping[str, str] | None, *, text_operators: bool = False) -> bool:
    """Return whether a message's properties match filter data; every message matches if no expression compiles."""
    if data is None or compiled(data, text_operators=text_operators) is None:
        return True
    return matches(data.expression, properties, text_operators=text_operators) is True


@dataclass(frozen=True, slots=True)
class ExpressionForRetryMessageFilter(ExpressionMessageFilter):
    """The filter of one pull if filterSupportRetry is set; `manager` has the filter data for a message's original topic, `rules`
    are those of the broker's version."""

    manager: ConsumerFilterManager
    rules: RetryRules = DEFAULT_RETRY_RULES

    def _decides_as_for_other_topics(self) -> bool:
        if self.subscription is None or not self.subscription.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            return True
        return self.rules.tag_type_matches_first and is_tag_type(self.subscription.expression_type)

    def commit_log_condition(self) -> Condition | None:
        """Return the condition that `is_matched_by_commit_log` tests on the properties; None if it does not read them."""
        if self.subscription is None or self._decides_as_for_other_topics():
            return ExpressionMessageFilter.commit_log_condition(self)
        return None if self.subscription.class_filter_mode else Condition(expression=None)

    def is_matched_by_commit_log(self, properties: Mapping[str, str] | None) -> bool:
        """Return whether a message matches; on a retry topic by the group's expression for the message's original topic.

        Raises:
            RetryTopicMissingError: the message has no property for its original topic.
        """
        subscription = self.subscription
        if subscription is None or self._decides_as_for_other_topics():
            return ExpressionMessageFilter.is_matched_by_commit_log(self, properties)
        if subscription.class_filter_mode:
            return True
        real_topic = None if properties is None else properties.get(PROPERTY_RETRY_TOPIC)
        if real_topic is None:
            raise RetryTopicMissingError(f"message of {subscription.topic}: expected a property {PROPERTY_RETRY_TOPIC}, found none")
        group = self.rules.group_of(subscription.topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX))
        return is_true(self.manager.get(real_topic, group), properties, text_operators=self.text_operators)


def message_filter(
    subscription: TopicSubscription | None,
    data: ConsumerFilterData | None,
    manager: ConsumerFilterManager,
    *,
    support_retry: bool,
    rules: RetryRules = DEFAULT_RETRY_RULES,
) -> ExpressionMessageFilter:
    """Return the filter that PullMessageProcessor hands to the store; `support_retry` is filterSupportRetry, `rules` are the version's."""
    if support_retry:
        return ExpressionForRetryMessageFilter(
            subscription, data, manager.bloom_filter, manager, rules, text_operators=manager.text_operators
        )
    return ExpressionMessageFilter(subscription, data, manager.bloom_filter, text_operators=manager.text_operators)
