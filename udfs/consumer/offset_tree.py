"""Messages by queue offset, in order: the TreeMap of a process queue.

Broker source (4.9.3): ProcessQueue.msgTreeMap and consumingMsgOrderlyTreeMap, java.util.TreeMap.
Rule: messages come at the end and go from anywhere, mostly from the beginning, so that a list of ascending offsets serves; one that is gone
keeps its place in the list until the list begins or ends with it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

_KEPT: Final = 1024  # places before the first message that are not worth clearing away


@dataclass(slots=True, eq=False)
class MessageExt:
    """A message that a client has pulled; like the client's, it equals itself only.

    Attributes:
        queue_offset: its place in its queue.
        body_size: bytes of its body.
        tag: its tag, None without one.
        reconsume_times: how often it was tried before.
        consume_start_timestamp: when it was last given to the listener, ms; None where it was not.
    """

    queue_offset: int
    body_size: int
    tag: str | None = None
    reconsume_times: int = 0
    consume_start_timestamp: int | None = None


class OffsetTree:
    """Messages by queue offset; false where there are none."""

    __slots__ = ("_first", "_messages", "_offsets")

    def __init__(self) -> None:
        self._messages: dict[int, MessageExt] = {}
        self._offsets: list[int] = []  # ascending from _first on; holds those of all messages, and of some that are gone
        self._first = 0

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[int]:
        """The offsets, ascending."""
        return (offset for offset in self._offsets[self._first :] if offset in self._messages)

    def values(self) -> Iterable[MessageExt]:
        """The messages, in no order."""
        return self._messages.values()

    def put(self, message: MessageExt) -> bool:
        """Take in a message, in the place of that of its offset; says whether there was none."""
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
        """Let a message go; None where there is none of that offset."""
        return self._messages.pop(offset, None)

    def first_key(self) -> int | None:
        """The least offset, None without messages."""
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
        """The greatest offset, None without messages."""
        offsets, messages = self._offsets, self._messages
        if not messages:
            self.clear()
            return None
        while offsets[-1] not in messages:
            offsets.pop()
        return offsets[-1]

    def first(self) -> MessageExt | None:
        """The message of the least offset, None where there is none."""
        offset = self.first_key()
        return None if offset is None else self._messages[offset]

    def poll_first(self) -> MessageExt | None:
        """Let the first message go, None where there is none."""
        offset = self.first_key()
        return None if offset is None else self._messages.pop(offset)

    def clear(self) -> None:
        """Let all messages go."""
        self._messages.clear()
        self._offsets.clear()
        self._first = 0
