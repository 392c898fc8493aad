"""What a client does with an answer before its consumer sees it: tags are compared once more, as texts.

Broker source (4.9.3): client.impl.consumer.PullAPIWrapper (processPullResult, updatePullFromWhichNode, recalculatePullFromWhichNode);
MQClientAPIImpl.processPullResponse, FilterAPI.buildSubscriptionData.
Rules: the broker compares hash codes, the client the tags themselves. The next pull of a queue goes to the broker that the answer named.
Surprises: a subscription whose tags are all blank asks the broker for no message and the client for every one. A message without a tag is
lost to a subscription that names tags. Every code but four is an error to the client, which then asks again a second later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from udfs.broker.message_queue import MessageQueue
from udfs.consumer.offset_tree import MessageExt
from udfs.filters.tags import split_tags
from udfs.pull.codes import ResponseCode

MASTER_ID: Final = 0
PROPERTY_MIN_OFFSET: Final = "MIN_OFFSET"
PROPERTY_MAX_OFFSET: Final = "MAX_OFFSET"


class PullStatus(Enum):
    """What an answer comes to, for the client."""

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


_STATUS_OF: Final = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MSG,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MSG,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


def pull_status(code: ResponseCode) -> PullStatus | None:
    """What the code of an answer comes to, None for an error."""
    return _STATUS_OF.get(code)


def tags_set(sub_string: str | None) -> frozenset[str]:
    """The tags that a client compares, none where it takes every message.

    Raises:
        SubscriptionParseError: as `split_tags` does.
    """
    return frozenset(split_tags(sub_string) or ())


def filter_again(messages: Iterable[MessageExt], tags: frozenset[str]) -> list[MessageExt]:
    """The messages of an answer that the consumer gets; for an expression there are no `tags`."""
    return [message for message in messages if message.tag in tags] if tags else list(messages)


def seen_properties(properties: Mapping[str, str], min_offset: int, max_offset: int) -> dict[str, str]:
    """The properties of a message as the consumer sees them: with the bounds of the queue that the answer told."""
    return {**properties, PROPERTY_MIN_OFFSET: str(min_offset), PROPERTY_MAX_OFFSET: str(max_offset)}


@dataclass(slots=True)
class PullFromWhichNode:
    """Which broker of a master and its slaves the next pull of a queue goes to.

    Attributes:
        suggested: brokerId by queue, as the last answer named it.
    """

    suggested: dict[MessageQueue, int] = field(default_factory=dict)

    def update(self, queue: MessageQueue, suggest_which_broker_id: int) -> None:
        """Take in an answer, whatever its code."""
        self.suggested[queue] = suggest_which_broker_id

    def recalculate(self, queue: MessageQueue) -> int:
        """The brokerId for the next pull."""
        return self.suggested.get(queue, MASTER_ID)
