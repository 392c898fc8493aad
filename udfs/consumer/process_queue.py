"""A client's state of a queue: the messages that it pulled and has not acknowledged, and whether it may pull and consume.

Broker source (4.9.3): client.impl.consumer.ProcessQueue.
Rules: pulled messages are added. Concurrent consumers remove consumed messages; the offset to commit is that of the first message left.
Orderly consumers take the first messages, then commit them or put them back.
Surprises: if no message is left, the offset to commit is one past the message that was added last, even if a greater one was added before.
If the queue was empty before, no offset is committed. Taken messages still count towards the limits. Only a take that finds no message
makes the next pull start a consumer; `clear` does not. The size to subtract is that of the message passed in, not of the stored one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from store_format.store.lookup import ILLEGAL_ARGUMENT, ThrownError
from udfs.consumer.offset_tree import MessageExt, OffsetTree

REBALANCE_LOCK_MAX_LIVE_TIME: Final = 30_000  # ms; the broker's own is longer
PULL_MAX_IDLE_TIME: Final = 120_000  # ms
NO_SUCH_ELEMENT: Final = "java.util.NoSuchElementException"
NO_OFFSET: Final = -1


@dataclass(slots=True, kw_only=True)
class ProcessQueue:
    """A client's state of a queue; times are ms of the client's clock and begin at its creation.

    Attributes:
        msg_tree_map: messages that no orderly consumer has taken.
        consuming: messages that an orderly consumer has taken.
        msg_count: number of messages in both.
        msg_size: bytes of the bodies in both.
        queue_offset_max: queue offset of the message that was added last.
        dropped: whether the client no longer has the queue.
        locked: whether the broker has locked the queue for this client.
        is_consumed: whether an orderly consumer is running (`consuming` in the source).
        msg_acc_cnt: messages in the broker's queue after the last pulled one, at the time of that pull.
        try_unlock_times: how often the client could not give the queue up because a batch was being consumed.
    """

    last_pull_timestamp: int
    last_consume_timestamp: int
    last_lock_timestamp: int
    msg_tree_map: OffsetTree = field(default_factory=OffsetTree)
    consuming: OffsetTree = field(default_factory=OffsetTree)
    msg_count: int = 0
    msg_size: int = 0
    queue_offset_max: int = 0
    dropped: bool = False
    locked: bool = False
    is_consumed: bool = False
    msg_acc_cnt: int = 0
    try_unlock_times: int = 0

    @classmethod
    def new(cls, now: int) -> ProcessQueue:
        """Return an empty process queue created at `now`, ms."""
        return cls(last_pull_timestamp=now, last_consume_timestamp=now, last_lock_timestamp=now)

    def is_lock_expired(self, now: int) -> bool:
        """Return whether the last renewal of the lock is more than REBALANCE_LOCK_MAX_LIVE_TIME before `now`."""
        return now - self.last_lock_timestamp > REBALANCE_LOCK_MAX_LIVE_TIME

    def is_pull_expired(self, now: int) -> bool:
        """Return whether the last attempt to pull is more than PULL_MAX_IDLE_TIME before `now`."""
        return now - self.last_pull_timestamp > PULL_MAX_IDLE_TIME

    def put_message(self, messages: Sequence[MessageExt], max_offset: int | None) -> bool:
        """Add the messages of an answer with this maxOffset (None without one); return whether an orderly consumer must be started."""
        for message in messages:
            if self.msg_tree_map.put(message):
                self.msg_count += 1
                self.msg_size += message.body_size
                self.queue_offset_max = message.queue_offset
        starts = bool(self.msg_tree_map) and not self.is_consumed
        self.is_consumed = self.is_consumed or starts
        if messages and max_offset is not None and max_offset > messages[-1].queue_offset:
            self.msg_acc_cnt = max_offset - messages[-1].queue_offset
        return starts

    def max_span(self) -> int:
        """Return the difference of the greatest and the least offset of the messages that no orderly consumer has taken."""
        return (self.msg_tree_map.last_key() or 0) - (self.msg_tree_map.first_key() or 0)

    def remove_message(self, messages: Iterable[MessageExt], now: int) -> int:
        """Remove consumed messages; return the offset to commit, NO_OFFSET if the queue was empty before."""
        self.last_consume_timestamp = now
        if not self.msg_tree_map:
            return NO_OFFSET
        for message in messages:
            if self.msg_tree_map.remove(message.queue_offset) is not None:
                self.msg_count -= 1
                self.msg_size -= message.body_size
        first = self.msg_tree_map.first_key()
        return self.queue_offset_max + 1 if first is None else first

    def take_messages(self, batch_size: int, now: int) -> list[MessageExt]:
        """Take and return the first messages, for an orderly consumer. The model `tests/models/slow_group.py` uses it.

        Raises:
            ThrownError: `batch_size` is negative.
        """
        if batch_size < 0:
            raise ThrownError(ILLEGAL_ARGUMENT)
        self.last_consume_timestamp = now
        taken: list[MessageExt] = []
        while len(taken) < batch_size and (message := self.msg_tree_map.poll_first()) is not None:
            self.consuming.put(message)
            taken.append(message)
        if not taken:
            self.is_consumed = False
        return taken

    def commit(self) -> int:
        """Remove all taken messages; return the offset to commit.

        Raises:
            ThrownError: no message is taken.
        """
        last = self.consuming.last_key()
        if last is None:
            raise ThrownError(NO_SUCH_ELEMENT)
        self.msg_count -= len(self.consuming)
        self.msg_size -= sum(message.body_size for message in self.consuming.values())
        self.consuming.clear()
        return last + 1

    def rollback(self) -> None:
        """Put back all taken messages."""
        for message in self.consuming.values():
            self.msg_tree_map.put(message)
        self.consuming.clear()

    def make_message_to_consume_again(self, messages: Iterable[MessageExt]) -> None:
        """Put messages back, whether they were taken or not."""
        for message in messages:
            self.consuming.remove(message.queue_offset)
            self.msg_tree_map.put(message)

    def has_temp_message(self) -> bool:
        """Return whether there are messages that no orderly consumer has taken."""
        return bool(self.msg_tree_map)

    def clear(self) -> None:
        """Remove all messages."""
        self.msg_tree_map.clear()
        self.consuming.clear()
        self.msg_count = self.msg_size = self.queue_offset_max = 0
