"""What a client holds of a queue: the messages that it pulled and has not acknowledged, and whether it may pull and consume them.

Broker source (4.9.3): client.impl.consumer.ProcessQueue.
Rules: messages go in as they are pulled. Concurrent consumers remove those that are done, and the offset to commit is that of the first one
left. Orderly ones take the first messages apart, then commit them, or put them back.
Surprises: where none is left the offset to commit is one behind the message that came in last, also if greater ones came before it. A
queue that was empty before commits nothing. Messages that are taken apart still count, and taking nothing is what makes the next pull
start a consumer; clearing does not. Sizes are subtracted by the message that is given, not by the one that is held.
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
    """A client's hold on a queue; times are ms of the client's clock, and start when it is made.

    Attributes:
        msg_tree_map: messages that nobody has taken apart.
        consuming: those that an orderly consumer has taken apart.
        msg_count: messages of both.
        msg_size: bytes of their bodies.
        dropped: the queue belongs to this client no more.
        locked: the broker has locked the queue for this client.
        is_consumed: whether an orderly consumer is at work (`consuming` in the source).
        msg_acc_cnt: messages behind the last pull that the broker had at the time.
        try_unlock_times: how often the queue could not be given up because it was being consumed.
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
        """An empty one."""
        return cls(last_pull_timestamp=now, last_consume_timestamp=now, last_lock_timestamp=now)

    def is_lock_expired(self, now: int) -> bool:
        """Whether the lock was not renewed for too long."""
        return now - self.last_lock_timestamp > REBALANCE_LOCK_MAX_LIVE_TIME

    def is_pull_expired(self, now: int) -> bool:
        """Whether nobody has tried to pull for too long."""
        return now - self.last_pull_timestamp > PULL_MAX_IDLE_TIME

    def put_message(self, messages: Sequence[MessageExt], max_offset: int | None) -> bool:
        """Take in what was pulled; says whether an orderly consumer is to be started.

        Args:
            messages: in the order of the answer.
            max_offset: end of the queue as the answer tells it, None where it does not.
        """
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
        """From the first to the last offset held apart from those being consumed in order."""
        return (self.msg_tree_map.last_key() or 0) - (self.msg_tree_map.first_key() or 0)

    def remove_message(self, messages: Iterable[MessageExt], now: int) -> int:
        """Let go of what is done; the offset to commit, NO_OFFSET where the queue was empty before."""
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
        """Take the first messages apart, for an orderly consumer.

        Raises:
            ThrownError: fewer than none are asked for.
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
        """Let go of all that was taken apart; the offset to commit.

        Raises:
            ThrownError: nothing was.
        """
        last = self.consuming.last_key()
        if last is None:
            raise ThrownError(NO_SUCH_ELEMENT)
        self.msg_count -= len(self.consuming)
        self.msg_size -= sum(message.body_size for message in self.consuming.values())
        self.consuming.clear()
        return last + 1

    def rollback(self) -> None:
        """Put back all that was taken apart."""
        for message in self.consuming.values():
            self.msg_tree_map.put(message)
        self.consuming.clear()

    def make_message_to_consume_again(self, messages: Iterable[MessageExt]) -> None:
        """Put these messages back, taken apart or not."""
        for message in messages:
            self.consuming.remove(message.queue_offset)
            self.msg_tree_map.put(message)

    def has_temp_message(self) -> bool:
        """Whether there are messages that nobody has taken apart."""
        return bool(self.msg_tree_map)

    def clear(self) -> None:
        """Let go of everything."""
        self.msg_tree_map.clear()
        self.consuming.clear()
        self.msg_count = self.msg_size = self.queue_offset_max = 0
