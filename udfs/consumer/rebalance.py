"""Which queues a client takes and gives up when it rebalances, and what it makes of the broker's locks.

Broker source (4.9.3): client.impl.consumer.RebalanceImpl (rebalanceByTopic, updateProcessQueueTableInRebalance, lock, lockAll, unlockAll,
truncateMessageQueueNotMyTopic), RebalancePushImpl (removeUnnecessaryMessageQueue, unlockDelay).
Rules: topic by topic a client sorts queues and clients, works out its share, gives up what is not in it and takes what is new. Orderly
consumers take a queue only with the broker's lock on it.
Surprises: a queue that nobody tried to pull for two minutes is given up, and taken anew in the same breath. An orderly consumer that is in
the midst of a batch keeps its queue, dropped, until a later rebalance; one that still holds messages keeps the lock for 20 seconds more.
A lock that is refused when all queues are locked is lost; one that is refused to a single queue is not. A strategy that throws leaves all
as it is. Where a client stops to subscribe to a topic it forgets the queues without committing or unlocking them.
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
CONSUME_LOCK_WAIT: Final = 1000  # ms that giving up waits for a batch to end

ProcessQueueTable = MutableMapping[MessageQueue, ProcessQueue]


def share_of(
    strategy: AllocateMessageQueueStrategy, client_id: str, queues: Iterable[MessageQueue], clients: Iterable[str]
) -> frozenset[MessageQueue] | None:
    """The queues of a topic that are a client's, None where the strategy throws; broadcast clients have all of them."""
    try:
        share = strategy.allocate(client_id, sorted(queues, key=queue_order), sorted(clients, key=text_order))
    except ThrownError:
        return None
    return frozenset(share or ())


def drop(table: ProcessQueueTable, topic: str, share: Collection[MessageQueue], now: int) -> list[MessageQueue]:
    """Mark the queues of a topic as dropped that are not the client's any more, or that nobody pulls; gives them, for `give_up`."""
    dropped = []
    for queue, held in table.items():
        if queue.topic == topic and (queue not in share or held.is_pull_expired(now)):
            held.dropped = True
            dropped.append(queue)
    return dropped


@dataclass(frozen=True, slots=True)
class GivenUp:
    """What becomes of a queue whose offset has been committed and forgotten.

    Attributes:
        leaves: whether it leaves the table; else it is given up again at the next rebalance.
        unlock_after: ms to the broker being told, None where it is not.
    """

    leaves: bool
    unlock_after: int | None = None


def give_up(held: ProcessQueue, *, needs_lock: bool, in_a_batch: bool) -> GivenUp:
    """Give a dropped queue up, once its offset has been committed (`persist`) and forgotten (`remove_offset`).

    Args:
        held: what the client holds of it.
        needs_lock: whether an orderly consumer of a group that shares the messages has it.
        in_a_batch: whether its listener is at work, and will be for longer than CONSUME_LOCK_WAIT.
    """
    if not needs_lock:
        return GivenUp(leaves=True)
    if in_a_batch:
        held.try_unlock_times += 1
        return GivenUp(leaves=False)
    return GivenUp(leaves=True, unlock_after=UNLOCK_DELAY_TIME_MILLS if held.has_temp_message() else 0)


def to_take(table: Mapping[MessageQueue, ProcessQueue], share: Iterable[MessageQueue]) -> list[MessageQueue]:
    """The queues that a client is to take, in order.

    Each is locked first by orderly consumers, and left until the next rebalance where the lock is refused. Then its offset is forgotten,
    where to begin is asked for, and only if that is told does it enter the table, with a pull of its own.
    """
    return sorted((queue for queue in share if queue not in table), key=queue_order)


def truncate(table: ProcessQueueTable, topics: Collection[str | None]) -> list[MessageQueue]:
    """Forget the queues of topics that are not subscribed to; gives them."""
    gone = [queue for queue in table if queue.topic not in topics]
    for queue in gone:
        table.pop(queue).dropped = True
    return gone


def locked_all(table: ProcessQueueTable, asked: Iterable[MessageQueue], held: Collection[MessageQueue], now: int) -> None:
    """Take in a broker's answer to the locking of all its queues; without an answer all stays as it is.

    Args:
        table: the client's queues.
        asked: those of the request.
        held: those that the broker says the client holds.
        now: ms.
    """
    locked_one(table, held, now)
    for queue in asked:
        if queue not in held and queue in table:
            table[queue].locked = False


def locked_one(table: ProcessQueueTable, held: Iterable[MessageQueue], now: int) -> None:
    """Take in a broker's answer to the locking of one queue; `held` is as for `locked_all`."""
    for queue in held:
        if queue in table:
            table[queue].locked = True
            table[queue].last_lock_timestamp = now
