"""The name of a queue (MessageQueue), and the order in which clients list queues.

Broker source (4.9.3): common.message.MessageQueue (toString, compareTo).
Rule: queues are ordered by topic, broker name and queue id.
Surprise: Java orders texts by UTF-16 units, so that a name with a character beyond the Basic Multilingual Plane comes before U+FFFF.
"""

from __future__ import annotations

from typing import NamedTuple


class MessageQueue(NamedTuple):
    """The name of a queue: topic, broker name and queue id."""

    topic: str | None
    brokerName: str | None
    queueId: int

    def __str__(self) -> str:
        """Return MessageQueue.toString; the consistent hash of a queue is that of this text."""
        topic, broker_name = ("null" if name is None else name for name in (self.topic, self.brokerName))
        return f"MessageQueue [topic={topic}, brokerName={broker_name}, queueId={self.queueId}]"


def text_order(text: str) -> bytes:
    """Return a key that sorts texts as String.compareTo does."""
    return text.encode("utf-16-be", "surrogatepass")


def queue_order(queue: MessageQueue) -> tuple[bytes, bytes, int]:
    """Return a key that sorts queues as MessageQueue.compareTo does; topic and broker name must not be None."""
    return text_order(queue.topic or ""), text_order(queue.brokerName or ""), queue.queueId
