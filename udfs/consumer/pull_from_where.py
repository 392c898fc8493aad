"""The offset at which a client begins to pull a queue that it takes.

Broker source (4.9.3): client.impl.consumer.RebalancePushImpl.computePullFromWhereWithException.
Rule: the group's committed offset; if there is none, ConsumeFromWhere decides.
Surprises: in a retry topic a consumer with CONSUME_FROM_LAST_OFFSET begins at 0, and one with CONSUME_FROM_TIMESTAMP at the end. The broker
may answer 0 for a group that never committed. The client takes that as committed, so a consumer with CONSUME_FROM_LAST_OFFSET then begins
at the first message. If the broker does not answer, the client repeats the query at the next rebalance.
"""

from __future__ import annotations

from enum import Enum

from udfs.consumer.offset_store import NOT_FOUND
from udfs.consumer.push_consumer import ConsumeFromWhere
from udfs.filters.message_filter import RETRY_GROUP_TOPIC_PREFIX


class OffsetQuestion(Enum):
    """A query whose answer from the broker is the offset at which the client begins."""

    MAX_OFFSET = "GET_MAX_OFFSET"
    SEARCH_BY_TIMESTAMP = "SEARCH_OFFSET_BY_TIMESTAMP"


def compute_pull_from_where(where: ConsumeFromWhere, topic: str, last_offset: int) -> int | OffsetQuestion | None:
    """Return the offset at which the client begins, or the query for it; None if the client cannot take the queue yet.

    `last_offset` is the result of the offset store's `read_from_store`.
    """
    if last_offset >= 0:
        return last_offset
    if last_offset != NOT_FOUND:
        return None
    if where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
        return 0
    is_retry = topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
    if where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
        return OffsetQuestion.MAX_OFFSET if is_retry else OffsetQuestion.SEARCH_BY_TIMESTAMP
    return 0 if is_retry else OffsetQuestion.MAX_OFFSET
