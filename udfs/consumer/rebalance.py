"""Which queues a client takes and gives up at a rebalance, and how it processes the broker's locks.

Broker source (4.9.3): client.impl.consumer.RebalanceImpl (rebalanceByTopic, updateProcessQueueTableInRebalance, lock, lockAll,
truncateMessageQueueNotMyTopic), RebalancePushImpl (removeUnnecessaryMessageQueue, unlockDelay).
Rules: for each topic a client sorts queues and clients, calculates its share, gives up queues outside the share and takes new ones. Orderly
consumers take a queue only after the broker has locked it for them.
Surprises: a queue with no attempt to pull for two minutes is given up, and taken again in the same rebalance. An orderly consumer inside a
batch keeps its dropped queue until a later rebalance. If it still holds messages, it keeps the lock for 20 seconds more. If the broker
refuses a queue in a request to lock all queues, the client loses the lock; if it refuses a request for a single queue, it does not. If a
strategy throws, nothing changes. When a client no longer subscribes to a topic, it removes the queues without committing or unlocking them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Final

from store_format.store.lookup import ThrownError
from udfs.broker.message_queue import MessageQueue, queue_order, text_order
from udfs.consumer.allocate import AllocateMessageQueueStrategy
from udfs.consumer.process_queue import ProcessQueue

UNLOCK_DELAY_TIME_MILLS: Final = 20_000
CONSUME_LOCK_WAIT: Final = 1000  # ms; how long giving a queue up waits for the end of a batch

ProcessQueueTable = MutableMapping[MessageQueue, ProcessQueue]


def share_of(
    strategy: AllocateMessageQueueStrategy, client_id: str, queues: Iterable[MessageQueue], clients: Iterable[str]
) -> frozenset[MessageQueue] | None:
    """Return a client's share of a topic's queues, None if the strategy throws. (Broadcast clients consume all queues.)"""
    try:
        share = strategy.allocate(client_id, sorted(queues, key=queue_order), sorted(clients, key=text_order))
    except ThrownError:
        return None
    return frozenset(share or ())


def drop(table: ProcessQueueTable, topic: str, share: Collection[MessageQueue], now: int) -> list[MessageQueue]:
    """Mark a topic's queues that are not in the share, or have an expired pull, as dropped; return them, for `give_up`."""
    dropped = []
    for queue, held in table.items():
        if queue.topic == topic and (queue not in share or held.is_pull_expired(now)):
            held.dropped = True
            dropped.append(queue)
    return dropped


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The result of giving a queue up.

    If the queue does not leave the table, the next rebalance gives it up again. `unlock_after` is in ms, None if the client does not unlock
    it.
    """

    leaves: bool
    unlock_after: int | None = None


def give_up(held: ProcessQueue, *, needs_lock: bool, in_a_batch: bool) -> GivenUp:
    """Give a dropped queue up and return the result; call it after `persist` and `remove_offset` of the offset store.

    `needs_lock` is whether the consumer is an orderly one of a clustering group; `in_a_batch` whether the listener is running, and will run
    for longer than CONSUME_LOCK_WAIT.
    """
    if not needs_lock:
        return GivenUp(leaves=True)
    if in_a_batch:
        held.try_unlock_times += 1
        return GivenUp(leaves=False)
    return GivenUp(leaves=True, unlock_after=UNLOCK_DELAY_TIME_MILLS if held.has_temp_message() else 0)


def to_take(table: Mapping[MessageQueue, ProcessQueue], share: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Return the queues of a client's share that it does not have yet, in order.

    For each queue an orderly consumer first requests the lock; if it is refused, the queue waits for the next rebalance. Then the client
    removes the queue's offset from the offset store and queries the offset at which to begin. Only if it gets one does the queue enter the
    table, with its first pull.
    """
    return sorted((queue for queue in share if queue not in table), key=queue_order)


def truncate(table: ProcessQueueTable, topics: Collection[str | None]) -> list[MessageQueue]:
    """Drop and remove the queues of topics outside `topics`, the subscribed ones; return the queues."""
    gone = [queue for queue in table if queue.topic not in topics]
    for queue in gone:
        table.pop(queue).dropped = True
    return gone


def locked_all(table: ProcessQueueTable, asked: Iterable[MessageQueue], held: Collection[MessageQueue], now: int) -> None:
    """Update the queues by a broker's answer to a request that locks all its queues; do not call it without an answer.

    `held` are the queues in the answer: the client holds their locks.
    """
    locked_one(table, held, now)
    for queue in asked:
        if queue not in held and queue in table:
            table[queue].locked = False


def locked_one(table: ProcessQueueTable, held: Iterable[MessageQueue], now: int) -> None:
    """Update a queue by a broker's answer to a request that locks one queue; `held` is as for `locked_all`."""
    for queue in held:
        if queue in table:
            table[queue].locked = True
            table[queue].last_lock_timestamp = now
