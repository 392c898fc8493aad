"""The filter that the store gets for a pull, and its verdict on each entry.

Broker source (4.9.3): PullMessageProcessor.processRequest, the part that makes the MessageFilter; FilterAPI.build;
ConsumerFilterManager.build and get; DefaultMessageStore.getMessage for the order of the verdicts.
Rules: a subscription in the pull request is compiled for that pull and has no bloom filter bits. A registered subscription has the bits
of its group.
Surprise: with filterSupportRetry, a message of a retry topic is filtered by the expression that the group registered for the message's
original topic, whatever the pull's own filter is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from store_format.big_endian import Bytes
from store_format.queue import entry_properties as ep
from store_format.queue.packed_ext_units import UNDERFLOW, UNIT, UnitColumns
from store_format.record.record_columns import Slices
from udfs.filters import tags
from udfs.filters.consumer_filter_manager import ConsumerFilterManager, build, compiled, is_tag_type
from udfs.filters.message_filter import (
    PROPERTY_RETRY_TOPIC,
    RETRY_GROUP_TOPIC_PREFIX,
    BitMaps,
    Condition,
    ExpressionMessageFilter,
    SubscriptionError,
    TopicSubscription,
    message_filter,
)
from udfs.filters.retry_rules import DEFAULT_RETRY_RULES, RetryRules
from udfs.filters.sql92 import Compiled, compile_expression
from udfs.filters.sql92_columns import Texts, columns_of_records
from udfs.filters.sql92_values import TRUE
from udfs.pull import get_message as gm

SUBSCRIPTION_PARSE_FAILED: Final = "SUBSCRIPTION_PARSE_FAILED"
FILTER_DATA_NOT_EXIST: Final = "FILTER_DATA_NOT_EXIST"
Verdicts = NDArray[np.uint8]

_THROWN: Final = {
    ep.INDEX_OUT_OF_BOUNDS: -gm.INDEX_OUT_OF_BOUNDS,
    ep.BUFFER_UNDERFLOW: -gm.BUFFER_UNDERFLOW,
    ep.ILLEGAL_POSITION: -gm.ILLEGAL_POSITION,
}


class PullFilterError(ValueError):
    """A filter that the broker refuses before it reads the store; `code` is the name of the response code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class PullFilter:
    """The filter of a pull request.

    Attributes:
        expression_type: "TAG", "SQL92", or another text that the client sent.
        expression: the expression as the client sent it.
        registered_by: the group whose registered filter data is used; None if the subscription is in the pull request.
    """

    expression_type: str
    expression: str | None
    registered_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterRules:
    """The state that the filters of all pulls share.

    Attributes:
        manager: the filter data that groups registered.
        support_retry: setting filterSupportRetry.
        retry: the rules of filterSupportRetry in the broker's version.
    """

    manager: ConsumerFilterManager
    support_retry: bool
    retry: RetryRules = DEFAULT_RETRY_RULES

    def message_filter(self, topic: str, wanted: PullFilter) -> ExpressionMessageFilter:
        """Return the filter that the store gets for a pull of a topic.

        Raises:
            PullFilterError: the broker refuses the filter.
        """
        kind = wanted.expression_type
        try:
            subscription = TopicSubscription.build(topic, wanted.expression, kind)
        except (SubscriptionError, tags.SubscriptionParseError) as error:
            raise PullFilterError(SUBSCRIPTION_PARSE_FAILED) from error
        data = None
        if not is_tag_type(kind):
            if wanted.registered_by is None:
                data = build(topic, "", wanted.expression, kind, 0, 0, text_operators=self.manager.text_operators)
            elif (data := self.manager.get(topic, wanted.registered_by)) is None:
                raise PullFilterError(FILTER_DATA_NOT_EXIST)
        return message_filter(subscription, data, self.manager, support_retry=self.support_retry, rules=self.retry)

    def verdicts(self, topic: str, condition: Condition, lengths: NDArray[np.int32], properties: Bytes) -> Verdicts:
        """Return the verdict of a condition on each entry: MATCHES, NOT_BY_COMMIT_LOG, or the negated status if the broker throws.

        Args:
            topic: the topic of the pull.
            condition: the condition of the pull's filter.
            lengths: length of each entry's properties in bytes; an entry without properties has a code of
                store_format.queue.entry_properties.
            properties: the properties of all entries, one after the other.
        """
        sizes = np.maximum(lengths, 0).astype(np.int64)
        slices = Slices(np.cumsum(sizes) - sizes, sizes)
        if condition.expression is None:
            out = self._retry_verdicts(self.retry.group_of(topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX)), properties, slices)
        else:
            out = self._verdicts(condition.expression, properties, slices)
        for length, verdict in _THROWN.items():
            out[lengths == length] = verdict
        return out

    def _retry_verdicts(self, group: str, properties: Bytes, slices: Slices) -> Verdicts:
        out = np.full(len(slices.starts), -gm.NULL_POINTER, np.uint8)
        topics = columns_of_records(properties, slices, [PROPERTY_RETRY_TOPIC])[PROPERTY_RETRY_TOPIC]
        for real_topic, rows in _rows_by_text(topics).items():
            data = self.manager.get(real_topic, group)
            is_compiled = data is not None and compiled(data, text_operators=self.manager.text_operators) is not None
            expression = data.expression if data is not None and is_compiled else None
            out[rows] = gm.MATCHES if expression is None else self._verdicts(expression, properties, slices[rows])
        return out

    def _verdicts(self, expression: str, properties: Bytes, slices: Slices) -> Verdicts:
        found = compile_expression(expression, text_operators=self.manager.text_operators)
        count = len(slices.starts)
        if not isinstance(found, Compiled):
            return np.full(count, gm.MATCHES, np.uint8)
        codes = found.matches_many(columns_of_records(properties, slices, found.properties), count)
        return np.where(codes == TRUE, gm.MATCHES, gm.NOT_BY_COMMIT_LOG).astype(np.uint8)


def _rows_by_text(texts: Texts) -> Mapping[str, NDArray[np.int64]]:
    rows: dict[str, list[int]] = {}
    for row in range(len(texts)):
        text = texts[row]
        if text is not None:
            rows.setdefault(text, []).append(row)
    return {text: np.array(found, np.int64) for text, found in rows.items()}


def tag_codes(wanted: ExpressionMessageFilter) -> NDArray[np.int32] | None:
    """Return the hash codes of the tags that a filter matches, ascending; None if the filter does not look at tags."""
    subscription = wanted.subscription
    if subscription is None or subscription.class_filter_mode or not is_tag_type(subscription.expression_type):
        return None
    codes = subscription.wanted_codes
    return None if codes is None else tags.code_array(codes)


def with_units(tags_codes: NDArray[np.int64], units: UnitColumns) -> NDArray[np.int64]:
    """Return the tagsCode of each entry, from its ext unit if it has one."""
    # TAG compares the low 32 bits only. The 64 bits of a unit's tagsCode could look like an address, so they are cut.
    own = units.tags_codes.astype(np.int32).astype(np.int64)
    return np.where(units.states == UNIT, own, tags_codes)


def entry_verdicts(wanted: ExpressionMessageFilter | None, units: UnitColumns | None, by_commit_log: Verdicts | None) -> Verdicts:
    """Return the verdict on each entry for the scan; an empty array if all entries match.

    Args:
        wanted: the pull's filter; None if the pull has no filter, or only tags.
        units: ext units of the entries; None if no entry has one.
        by_commit_log: verdicts of `FilterRules.verdicts` for the filter's condition; None if the filter has no condition.
    """
    if units is None:
        return np.empty(0, np.uint8) if by_commit_log is None else by_commit_log
    out = np.full(len(units.states), gm.MATCHES, np.uint8) if by_commit_log is None else by_commit_log.copy()
    is_tag = wanted is None or wanted.subscription is None or is_tag_type(wanted.subscription.expression_type)
    if wanted is not None and not is_tag:
        maps = BitMaps(units.buffer, units.bit_maps)
        out[~wanted.are_matched_by_bit_maps(units.states == UNIT, units.msg_store_times, maps)] = gm.NOT_BY_CONSUME_QUEUE
    out[units.states == UNDERFLOW] = gm.UNIT_UNDERFLOWS
    return out if out.any() else np.empty(0, np.uint8)
