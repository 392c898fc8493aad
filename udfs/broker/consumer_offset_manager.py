"""The offsets that groups have committed.

Broker source (4.9.3): ConsumerOffsetManager.commitOffset and queryOffset; ConsumerManageProcessor.queryConsumerOffset.
Rule: whatever is committed is stored: lower than before, negative, past the end, of a topic that is not there.
Surprises: topic and group are joined to one text, so that a missing one is the text "null". A group that never committed is told to begin
at 0 where its queue begins at 0 and entry 0 is not considered on disk, and else that nothing was found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from store_format.config.config_rows import TOPIC_GROUP_SEPARATOR
from store_format.store.lookup import NULL_POINTER, ThrownError

NO_OFFSET: Final = -1


@dataclass(slots=True)
class ConsumerOffsetManager:
    """The offset table: `topic@group` -> queueId -> offset."""

    offset_table: dict[str, dict[int, int]] = field(default_factory=dict)

    def commit_offset(self, group: str | None, topic: str | None, queue_id: int | None, offset: int | None) -> None:
        """Store an offset.

        Raises:
            ThrownError: no queue or no offset.
        """
        if queue_id is None or offset is None:
            raise ThrownError(NULL_POINTER)
        self.offset_table.setdefault(key_of(group, topic), {})[queue_id] = offset

    def query_offset(self, group: str | None, topic: str | None, queue_id: int | None) -> int:
        """What was committed, NO_OFFSET where nothing was.

        Raises:
            ThrownError: no queue.
        """
        if queue_id is None:
            raise ThrownError(NULL_POINTER)
        return self.offset_table.get(key_of(group, topic), {}).get(queue_id, NO_OFFSET)


def key_of(group: str | None, topic: str | None) -> str:
    """The key of a group's offsets on a topic, as Java joins texts."""
    return f"{_text(topic)}{TOPIC_GROUP_SEPARATOR}{_text(group)}"


def _text(text: str | None) -> str:
    return "null" if text is None else text


def first_offset(committed: int, min_offset: int, is_in_disk: Callable[[], bool]) -> int | None:
    """QUERY_CONSUMER_OFFSET: where a group begins, None where the broker answers QUERY_NOT_FOUND.

    Args:
        committed: of `query_offset`.
        min_offset: of the queue.
        is_in_disk: whether entry 0 counts as on disk; not asked where something was committed.
    """
    if committed >= 0:
        return committed
    return 0 if min_offset <= 0 and not is_in_disk() else None
