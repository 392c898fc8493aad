"""The broker's locks: which client of a group may consume a queue in order.

Broker source (4.9.3): RebalanceLockManager.tryLockBatch, unlockBatch; isLockAllExpired (5.5.0).
Rule: for each group, a queue is locked by one client until that client unlocks it or has not renewed the lock for a minute.
Surprise: a client that unlocks a queue of another client is answered SUCCESS, but the lock stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from udfs.broker.message_queue import MessageQueue

REBALANCE_LOCK_MAX_LIVE_TIME: Final = 60_000  # ms


@dataclass(slots=True)
class _LockEntry:
    client_id: str | None
    last_update_timestamp: int

    def is_expired(self, now: int) -> bool:
        return now - self.last_update_timestamp > REBALANCE_LOCK_MAX_LIVE_TIME


@dataclass(slots=True)
class RebalanceLockManager:
    """The locks; times are ms of the broker's clock."""

    mq_lock_table: dict[tuple[str | None, MessageQueue], _LockEntry] = field(default_factory=dict)

    def try_lock_batch(self, group: str | None, queues: Iterable[MessageQueue], client_id: str | None, now: int) -> list[MessageQueue]:
        """Lock queues for a client of a group; return the queues that the client now holds."""
        held = []
        for queue in dict.fromkeys(queues):
            entry = self.mq_lock_table.get((group, queue))
            if entry is None or entry.is_expired(now) or entry.client_id == client_id:
                self.mq_lock_table[group, queue] = _LockEntry(client_id, now)
                held.append(queue)
        return held

    def is_lock_all_expired(self, group: str, now: int) -> bool:
        """Return whether no client of a group holds a lock."""
        return all(entry.is_expired(now) for (one, _), entry in self.mq_lock_table.items() if one == group)

    def unlock_batch(self, group: str | None, queues: Iterable[MessageQueue], client_id: str | None) -> None:
        """Remove the locks that the client holds on queues."""
        for queue in queues:
            entry = self.mq_lock_table.get((group, queue))
            if entry is not None and entry.client_id == client_id:
                del self.mq_lock_table[group, queue]
