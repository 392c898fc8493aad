"""Queues that clients take and give up, and their locks: facts of the source, and what must hold for any group."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.makers.process_queues import message
from udfs.broker.message_queue import MessageQueue
from udfs.broker.rebalance_lock import RebalanceLockManager
from udfs.consumer.allocate import AllocateMessageQueueAveragely, AllocateMessageQueueByConfig
from udfs.consumer.process_queue import ProcessQueue
from udfs.consumer.rebalance import (
    GivenUp,
    drop,
    give_up,
    locked_all,
    locked_one,
    share_of,
    to_take,
    truncate,
)

QUEUES = [MessageQueue("T", broker, queue_id) for broker in ("a", "b") for queue_id in range(3)]
AVERAGELY = AllocateMessageQueueAveragely()


def table_of(*queues: MessageQueue, now: int = 0) -> dict[MessageQueue, ProcessQueue]:
    return {queue: ProcessQueue.new(now) for queue in queues}


def test_a_share_is_worked_out_of_sorted_lists() -> None:
    assert share_of(AVERAGELY, "c1", reversed(QUEUES), ["c2", "c1"]) == frozenset(QUEUES[:3])
    assert share_of(AVERAGELY, "c3", QUEUES, ["c2", "c1"]) == frozenset()
    assert share_of(AVERAGELY, "c1", [], ["c1"]) is None
    assert share_of(AllocateMessageQueueByConfig(), "c1", QUEUES, ["c1"]) == frozenset()


def test_queues_are_dropped_that_are_not_in_the_share_or_that_nobody_pulls() -> None:
    table = table_of(*QUEUES[:3], MessageQueue("U", "a", 0))
    table[QUEUES[1]].last_pull_timestamp = 500
    assert drop(table, "T", {QUEUES[0], QUEUES[1]}, 120_001) == [QUEUES[0], QUEUES[2]]
    assert [held.dropped for held in table.values()] == [True, False, True, False]


@pytest.mark.parametrize(
    ("needs_lock", "in_a_batch", "held", "becomes"),
    [
        (False, True, True, GivenUp(leaves=True)),
        (True, True, True, GivenUp(leaves=False)),
        (True, False, True, GivenUp(leaves=True, unlock_after=20_000)),
        (True, False, False, GivenUp(leaves=True, unlock_after=0)),
    ],
)
def test_an_orderly_consumer_keeps_a_queue_while_it_is_in_a_batch(needs_lock: bool, in_a_batch: bool, held: bool, becomes: GivenUp) -> None:
    queue = ProcessQueue.new(0)
    queue.put_message([message(1)] if held else [], None)
    assert give_up(queue, needs_lock=needs_lock, in_a_batch=in_a_batch) == becomes
    assert queue.try_unlock_times == (0 if becomes.leaves else 1)


def test_new_queues_are_taken_in_order() -> None:
    assert to_take(table_of(QUEUES[1]), reversed(QUEUES[:4])) == [QUEUES[0], QUEUES[2], QUEUES[3]]


def test_queues_of_a_topic_that_is_not_subscribed_to_are_forgotten() -> None:
    other = MessageQueue("U", "a", 0)
    table = table_of(QUEUES[0], other)
    held = table[other]
    assert truncate(table, {"T"}) == [other]
    assert held.dropped
    assert list(table) == [QUEUES[0]]


def test_a_lock_that_is_refused_is_lost_only_where_all_are_asked_for() -> None:
    table = table_of(*QUEUES[:2])
    locked_one(table, [QUEUES[0], QUEUES[5]], 100)
    locked_all(table, QUEUES[:3], [QUEUES[1]], 200)
    assert [(held.locked, held.last_lock_timestamp) for held in table.values()] == [(False, 100), (True, 200)]
    locked_one(table, [], 300)
    assert table[QUEUES[1]].locked


STEPS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40_000), st.booleans()), max_size=40)


@given(STEPS)
@example([(0, 0, False), (1, 40_000, False), (1, 20_000, False), (1, 1, False)])
def test_no_two_clients_trust_a_lock_on_one_queue_at_a_time(steps: list[tuple[int, int, bool]]) -> None:
    """A client's lock expires before the broker's, so that the next one gets it only when the last one has stopped."""
    broker, now, queue = RebalanceLockManager(), 0, QUEUES[0]
    clients = [table_of(queue) for _ in range(3)]
    owner: int | None = None
    since = 0
    for client, waits, unlocks in steps:
        now += waits
        if unlocks:
            broker.unlock_batch("g", [queue], str(client))
            clients[client][queue].locked = False
            owner = None if owner == client else owner
        else:
            held = broker.try_lock_batch("g", [queue], str(client), now)
            locked_all(clients[client], [queue], held, now)
            assert bool(held) == (owner in {None, client} or now - since > 60_000)
            owner, since = (client, now) if held else (owner, since)
            assert clients[client][queue].locked == bool(held)
        trusting = [one for one in clients if one[queue].locked and not one[queue].is_lock_expired(now)]
        assert len(trusting) <= 1
