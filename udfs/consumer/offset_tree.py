"""Messages by queue offset, in order: the TreeMap of a process queue.

Broker source (4.9.3): ProcessQueue.msgTreeMap and consumingMsgOrderlyTreeMap, java.util.TreeMap.
Rule: messages are added at the end and removed anywhere, mostly at the beginning, so a list of ascending offsets is enough. A removed
offset stays in the list until it is at the list's beginning or end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

_KEPT: Final = 1024  # unused list elements before the first message that are not worth deleting


@dataclass(slots=True, eq=False)
class MessageExt:
    """A message that a client has pulled. As in the client, two messages are equal only if they are one object.

    `reconsume_times` is how often the message was sent back before; `consume_start_timestamp` when the listener last got it, ms.
    """

    queue_offset: int
    body_size: int
    tag: str | None = None
    reconsume_times: int = 0
    consume_start_timestamp: int | None = None


class OffsetTree:
    """Messages by queue offset; false if it is empty."""

    __slots__ = ("_first", "_messages", "_offsets")

    def __init__(self) -> None:
        self._messages: dict[int, MessageExt] = {}
        self._offsets: list[int] = []  # ascending from _first on; has the offsets of all messages, and of some removed ones
        self._first = 0

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[int]:
        """Yield the offsets, ascending."""
        return (offset for offset in self._offsets[self._first :] if offset in self._messages)

    def values(self) -> Iterable[MessageExt]:
        """Return the messages, in no order."""
        return self._messages.values()

    def put(self, message: MessageExt) -> bool:
        """Add a message, or replace the one with its offset; return whether it was added."""
        offset = message.queue_offset
        is_new = offset not in self._messages
        self._messages[offset] = message
        if is_new:
            self._list(offset)
        return is_new

    def _list(self, offset: int) -> None:
        offsets = self._offsets
        if len(offsets) == self._first or offset > offsets[-1]:
            offsets.append(offset)
            return
        at = bisect_left(offsets, offset, self._first)
        if offsets[at] == offset:
            return
        if at == self._first > 0:
            self._first -= 1
            offsets[self._first] = offset
        else:
            offsets.insert(at, offset)

    def remove(self, offset: int) -> MessageExt | None:
        """Remove and return the message with an offset, None if there is none."""
        return self._messages.pop(offset, None)

    def first_key(self) -> int | None:
        """Return the least offset, None without messages."""
        offsets, messages = self._offsets, self._messages
        if not messages:
            self.clear()
            return None
        while offsets[self._first] not in messages:
            self._first += 1
        if self._first > _KEPT and self._first * 2 > len(offsets):
            del offsets[: self._first]
            self._first = 0
        return offsets[self._first]

    def last_key(self) -> int | None:
        """Return the greatest offset, None without messages."""
        offsets, messages = self._offsets, self._messages
        if not messages:
            self.clear()
            return None
        while offsets[-1] not in messages:
            offsets.pop()
        return offsets[-1]

    def first(self) -> MessageExt | None:
        """Return the message with the least offset, None without messages."""
        offset = self.first_key()
        return None if offset is None else self._messages[offset]

    def poll_first(self) -> MessageExt | None:
        """Remove and return the message with the least offset, None without messages."""
        offset = self.first_key()
        return None if offset is None else self._messages.pop(offset)

    def clear(self) -> None:
        """Remove all messages."""
        self._messages.clear()
        self._offsets.clear()
        self._first = 0
