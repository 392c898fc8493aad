"""Where a client begins to pull a queue that has become its own.

Broker source (4.9.3): client.impl.consumer.RebalancePushImpl.computePullFromWhereWithException.
Rule: where the group has committed, there; else by the consumer's ConsumeFromWhere.
Surprises: a retry topic is begun at 0 by those that begin with the last offset, and at its end by those that begin at a time. The broker
may say itself that a group that never committed begins at 0, which counts as committed: a group at the last offset then begins at the
first. A broker that does not answer is asked again at the next rebalance.
"""

from __future__ import annotations

from enum import Enum

from udfs.consumer.offset_store import NOT_FOUND
from udfs.consumer.push_consumer import ConsumeFromWhere
from udfs.filters.message_filter import RETRY_GROUP_TOPIC_PREFIX


class OffsetQuestion(Enum):
    """What the broker is still to be asked; its answer is where the client begins."""

    MAX_OFFSET = "GET_MAX_OFFSET"
    SEARCH_BY_TIMESTAMP = "SEARCH_OFFSET_BY_TIMESTAMP"


def compute_pull_from_where(where: ConsumeFromWhere, topic: str, last_offset: int) -> int | OffsetQuestion | None:
    """The offset, or what tells it; None where the client does not take the queue yet.

    Args:
        where: of the consumer.
        topic: of the queue.
        last_offset: what `read_from_store` of the offset store gave.
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
