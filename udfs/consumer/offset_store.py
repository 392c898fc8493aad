"""The offsets that a client has reached and not told yet: the broker, where the group shares the messages, a file where each gets them all.

Broker source (4.9.3): client.consumer.store (RemoteBrokerOffsetStore, LocalFileOffsetStore, ReadOffsetType);
MixAll.compareAndIncreaseOnly; MQClientAPIImpl.queryConsumerOffset.
Rules: the table is told every five seconds, and queue by queue as the client gives queues up. An offset that is read from the broker or the
file goes into the table.
Surprises: whatever the broker answers but an offset, an error too, counts as nothing committed; only no answer does not. A client without
queues tells nothing, not even what is left in its table. Telling the broker also forgets the queues that are not the client's any more.
The table of a broadcast client never forgets, but the file does: it is written as a whole, with the client's queues of that moment only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from udfs.broker.message_queue import MessageQueue

NOT_FOUND: Final = -1  # nothing was committed
FAILED: Final = -2  # the broker did not answer


@dataclass(slots=True)
class _OffsetTable:
    """What both stores do."""

    offset_table: dict[MessageQueue, int] = field(default_factory=dict)

    def update_offset(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        """Note an offset; with increase_only none that is lower than what is noted."""
        if not increase_only or offset > self.offset_table.get(queue, offset - 1):
            self.offset_table[queue] = offset

    def read_from_memory(self, queue: MessageQueue) -> int:
        """The offset in the table, NOT_FOUND where there is none."""
        return self.offset_table.get(queue, NOT_FOUND)


@dataclass(slots=True)
class RemoteBrokerOffsetStore(_OffsetTable):
    """The table of a client in a group that shares the messages."""

    def read_from_store(self, queue: MessageQueue, answer: int) -> int:
        """Take in the broker's answer to QUERY_CONSUMER_OFFSET, and give it.

        Args:
            queue: of the question.
            answer: the offset, NOT_FOUND where the code is not SUCCESS, FAILED where there is no answer.
        """
        if answer not in (NOT_FOUND, FAILED):
            self.update_offset(queue, answer, increase_only=False)
        return answer

    def persist_all(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, int]:
        """What to commit to the brokers, one UPDATE_CONSUMER_OFFSET each, now that the client has these queues."""
        if not queues:
            return {}
        self.offset_table = {queue: offset for queue, offset in self.offset_table.items() if queue in queues}
        return dict(self.offset_table)

    def persist(self, queue: MessageQueue) -> int | None:
        """What to commit for one queue, None for nothing."""
        return self.offset_table.get(queue)

    def remove_offset(self, queue: MessageQueue) -> None:
        """Forget a queue."""
        self.offset_table.pop(queue, None)


@dataclass(slots=True)
class LocalFileOffsetStore(_OffsetTable):
    """The table of a broadcast client, and the file of its group.

    Attributes:
        file: what offsets.json holds.
    """

    file: dict[MessageQueue, int] = field(default_factory=dict)

    def load(self) -> None:
        """Take in the file, at the start."""
        self.offset_table.update(self.file)

    def read_from_store(self, queue: MessageQueue) -> int:
        """The offset in the file, which goes into the table; NOT_FOUND where there is none."""
        offset = self.file.get(queue, NOT_FOUND)
        if queue in self.file:
            self.update_offset(queue, offset, increase_only=False)
        return offset

    def persist_all(self, queues: Iterable[MessageQueue]) -> Mapping[MessageQueue, int]:
        """Write the file anew, with these queues only; gives what it then holds."""
        if kept := set(queues):
            self.file = {queue: offset for queue, offset in self.offset_table.items() if queue in kept}
        return self.file
