"""A client's table of consumed offsets, and its store: the broker (clustering) or a file (broadcasting).

Broker source (4.9.3): client.consumer.store (RemoteBrokerOffsetStore, LocalFileOffsetStore, ReadOffsetType);
MixAll.compareAndIncreaseOnly; MQClientAPIImpl.queryConsumerOffset.
Rules: the table is written to the store every five seconds, and the offset of a queue when the client gives the queue up. An offset that
is read from the store goes into the table.
Surprises: any answer of the broker without an offset, even an error, counts as no committed offset; a missing answer does not. A client
without queues writes no offset, even if its table has some. Writing to the broker removes from the table the offsets of queues that
the client no longer has. The table of a broadcast client keeps all offsets, but each write replaces the file by the client's current queues
only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from udfs.broker.message_queue import MessageQueue

NOT_FOUND: Final = -1  # no offset was committed
FAILED: Final = -2  # the broker did not answer


@dataclass(slots=True)
class _OffsetTable:
    """The table that both stores have."""

    offset_table: dict[MessageQueue, int] = field(default_factory=dict)

    def update_offset(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        """Set the offset of a queue in the table; with `increase_only` only if it is greater than the present one."""
        if not increase_only or offset > self.offset_table.get(queue, offset - 1):
            self.offset_table[queue] = offset

    def read_from_memory(self, queue: MessageQueue) -> int:
        """Return the offset of a queue in the table, NOT_FOUND if there is none."""
        return self.offset_table.get(queue, NOT_FOUND)


@dataclass(slots=True)
class RemoteBrokerOffsetStore(_OffsetTable):
    """The offset store of a client in a clustering group: the brokers keep the offsets."""

    def read_from_store(self, queue: MessageQueue, answer: int) -> int:
        """Put the broker's answer to QUERY_CONSUMER_OFFSET into the table, and return it.

        `answer` is NOT_FOUND if the code is not SUCCESS, FAILED if the broker did not answer.
        """
        if answer not in (NOT_FOUND, FAILED):
            self.update_offset(queue, answer, increase_only=False)
        return answer

    def persist_all(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the offsets to commit, each with its own UPDATE_CONSUMER_OFFSET; remove all queues but `queues` from the table."""
        if not queues:
            return {}
        self.offset_table = {queue: offset for queue, offset in self.offset_table.items() if queue in queues}
        return dict(self.offset_table)

    def persist(self, queue: MessageQueue) -> int | None:
        """Return the offset to commit for one queue, None if the table has none."""
        return self.offset_table.get(queue)

    def remove_offset(self, queue: MessageQueue) -> None:
        """Remove the offset of a queue from the table."""
        self.offset_table.pop(queue, None)


@dataclass(slots=True)
class LocalFileOffsetStore(_OffsetTable):
    """The offset store of a broadcast client: a file, offsets.json, keeps the offsets of its group."""

    file: dict[MessageQueue, int] = field(default_factory=dict)

    def load(self) -> None:
        """Put the file's offsets into the table, when the client starts."""
        self.offset_table.update(self.file)

    def read_from_store(self, queue: MessageQueue) -> int:
        """Return the offset of a queue in the file, and put it into the table; NOT_FOUND if there is none."""
        offset = self.file.get(queue, NOT_FOUND)
        if queue in self.file:
            self.update_offset(queue, offset, increase_only=False)
        return offset

    def persist_all(self, queues: Iterable[MessageQueue]) -> Mapping[MessageQueue, int]:
        """Rewrite the file with the offsets of these queues only, unless there are none; return the file's offsets."""
        if kept := set(queues):
            self.file = {queue: offset for queue, offset in self.offset_table.items() if queue in kept}
        return self.file
