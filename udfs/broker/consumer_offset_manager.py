"""The offsets that groups have committed.

Broker source (4.9.3): ConsumerOffsetManager and LmqConsumerOffsetManager (commitOffset, queryOffset);
ConsumerManageProcessor.queryConsumerOffset.
Rule: every committed offset is stored, even one that is lower than before, negative, past the end, or of an unknown topic.
Surprises: topic and group are joined to one text, so a missing one becomes the text "null". With enableLmq, a group of light message queues
has one offset for all queues of a topic. A query of a group that never committed is
answered with 0 if the queue's minOffset is 0 and entry 0 does not count as on disk, otherwise with QUERY_NOT_FOUND.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from store_format.config.config_rows import TOPIC_GROUP_SEPARATOR
from store_format.store.lookup import NULL_POINTER, ThrownError
from store_format.store.multi_dispatch import LMQ_QUEUE_ID, is_light_queue

NO_OFFSET: Final = -1


@dataclass(slots=True)
class ConsumerOffsetManager:
    """The offset table: `topic@group` -> queueId -> offset.

    With `enable_lmq`, enableLmq at the broker's start, a group of light message queues has its offset under queueId 0.
    """

    offset_table: dict[str, dict[int, int]] = field(default_factory=dict)
    enable_lmq: bool = False

    def commit_offset(self, group: str | None, topic: str | None, queue_id: int | None, offset: int | None) -> None:
        """Store the offset that a group commits for a queue.

        Raises:
            ThrownError: the queue id or the offset is missing.
        """
        if queue_id is None or offset is None:
            raise ThrownError(NULL_POINTER)
        self.offset_table.setdefault(key_of(group, topic), {})[self.queue_of(group, queue_id)] = offset

    def query_offset(self, group: str | None, topic: str | None, queue_id: int | None) -> int:
        """Return the offset that a group committed for a queue, NO_OFFSET if it committed none.

        Raises:
            ThrownError: the queue id is missing.
        """
        if queue_id is None:
            raise ThrownError(NULL_POINTER)
        return self.offset_table.get(key_of(group, topic), {}).get(self.queue_of(group, queue_id), NO_OFFSET)

    def queue_of(self, group: str | None, queue_id: int) -> int:
        """Return the queue under which a group's offset for a queue is kept."""
        return LMQ_QUEUE_ID if is_light_queue(group or "", enable_lmq=self.enable_lmq) else queue_id


def key_of(group: str | None, topic: str | None) -> str:
    """Return the key of a group's offsets for a topic: `topic@group`; a missing text is "null", as in Java."""
    return TOPIC_GROUP_SEPARATOR.join("null" if text is None else text for text in (topic, group))


def first_offset(committed: int, min_offset: int, is_in_disk: Callable[[], bool]) -> int | None:
    """Return the offset that QUERY_CONSUMER_OFFSET answers with, None for QUERY_NOT_FOUND.

    `committed` is the result of `query_offset`. `is_in_disk` returns whether entry 0 counts as on disk; it is called only if the group
    committed no offset.
    """
    if committed >= 0:
        return committed
    return 0 if min_offset <= 0 and not is_in_disk() else None
