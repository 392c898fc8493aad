"""How a client processes a pull's answer before its consumer gets the messages: it compares the tags once more, as texts.

Broker source (4.9.3): client.impl.consumer.PullAPIWrapper (processPullResult, updatePullFromWhichNode, recalculatePullFromWhichNode);
MQClientAPIImpl.processPullResponse, FilterAPI.buildSubscriptionData.
Rules: the broker compares hash codes, the client the tags themselves. The next pull of a queue goes to the suggestWhichBrokerId of the
answer.
Surprises: if all tags of a subscription are blank, the broker matches no message and the client every message. A message without a tag is
dropped if the subscription has tags. Every code but four is an error for the client, which pulls again a second later.
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
    """The client's status of an answer."""

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
    """Return the client's status for an answer's code, None for an error."""
    return _STATUS_OF.get(code)


def tags_set(sub_string: str | None) -> frozenset[str]:
    """Return the tags that a client compares; an empty set if it accepts every message. `tests/models/slow_group.py` uses it.

    Raises:
        SubscriptionParseError: the subscription has separators only.
    """
    return frozenset(split_tags(sub_string) or ())


def filter_again(messages: Iterable[MessageExt], tags: frozenset[str]) -> list[MessageExt]:
    """Return the messages whose tag is in `tags`, all if `tags` is empty. The model `tests/models/slow_group.py` uses it."""
    return [message for message in messages if message.tag in tags] if tags else list(messages)


def seen_properties(properties: Mapping[str, str], min_offset: int, max_offset: int) -> dict[str, str]:
    """Return a message's properties with the answer's minOffset and maxOffset, as the consumer gets them.

    Tests compare it with the recorded messages of a client.
    """
    return {**properties, PROPERTY_MIN_OFFSET: str(min_offset), PROPERTY_MAX_OFFSET: str(max_offset)}


@dataclass(slots=True)
class PullFromWhichNode:
    """The broker, master or slave, that the next pull of each queue goes to. Tests compare it with a client's recorded pulls."""

    suggested: dict[MessageQueue, int] = field(default_factory=dict)

    def update(self, queue: MessageQueue, suggest_which_broker_id: int) -> None:
        """Store the suggestWhichBrokerId of an answer, whatever its code."""
        self.suggested[queue] = suggest_which_broker_id

    def recalculate(self, queue: MessageQueue) -> int:
        """Return the brokerId for the next pull of a queue."""
        return self.suggested.get(queue, MASTER_ID)
