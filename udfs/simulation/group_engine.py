"""The compiled engine of a simulated group: it owns the arrays, and changes them when clients start or stop and queues change clients.

Broker source (4.9.3): the operations of RebalancePushImpl and DefaultMQPushConsumerImpl on process queues; the rules are elsewhere.
Rule: arrays grow only here, between two calls of the loop, by doubling.
A second engine with the same methods, in plain Python, is `tests/models/slow_group.py`: a test compares the results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from udfs.consumer.consume_orderly import CONSUME_AFTER_LOCKED, CONSUME_AFTER_NOT_LOCKED
from udfs.consumer.push_consumer import PERSIST_OFFSETS
from udfs.simulation import world as at
from udfs.simulation.arrivals import end_offset
from udfs.simulation.event_heap import CONSUME, LOCK_ONE, key_of, push
from udfs.simulation.event_heap import PERSIST_OFFSETS as PERSIST_EVENT
from udfs.simulation.event_loop import ASK, DONE, TELL, run
from udfs.simulation.group_plan import GroupPlan
from udfs.simulation.lag_sample import LAG_COLUMNS, sample_lag
from udfs.simulation.new_world import free_rows, new_world
from udfs.simulation.passed import begin_at
from udfs.simulation.pulling import expect, note_position, pull
from udfs.simulation.world import MS, NONE, World

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """Rows of `consumed` and `dead` that the loop has written; `world` defines their columns."""

    consumed: Rows
    dead: Rows


# answers a slot's request to the broker: (slot, True for a lock or False for the offset to begin at, time)
Ask = Callable[[int, bool, int], None]


class GroupEngine:
    """The engine with the compiled loop; times are microseconds."""

    def __init__(self, plan: GroupPlan) -> None:
        self.plan = plan
        self.world: World = new_world(plan)
        self._threads = 0
        self._in_tables: set[int] = set()  # slots that are still in a client's table

    def add_client(self, now: int) -> int:
        """Start a client and return its number. It commits every five seconds, the first time after ten."""
        row = np.zeros((1, at.CLIENT_COLUMNS), np.int64)
        row[0, at.ALIVE] = 1
        row[0, at.THREADS] = self.plan.consumer.consume_thread_min
        row[0, [at.FIFO_HEAD, at.FIFO_TAIL, at.FIRST_SLOT]] = NONE
        local = np.full((1, *self.world.local.shape[1:]), NONE, np.int64)
        local[0, :, at.STORED] = self.plan.committed
        local = local[: self.plan.broadcasts]
        self.world = self.world._replace(clients=np.concatenate((self.world.clients, row)), local=np.concatenate((self.world.local, local)))
        self._threads += self.plan.consumer.consume_thread_min
        self._make_heap_room()
        client = len(self.world.clients) - 1
        push(self.world.heap, self.world.counters, now + PERSIST_OFFSETS[0] * MS, key_of(PERSIST_EVENT, client))
        return client

    def remove_client(self, client: int) -> None:
        """Remove a client with all its queues and messages."""
        world = self.world
        world.clients[client, at.ALIVE] = 0
        world.clients[client, [at.FIFO_HEAD, at.FIFO_TAIL]] = NONE
        for slot in self._slots_of(client):
            world.slots[slot, at.DROPPED] = 1
            world.slots[slot, at.QUEUED] = 0
            self._in_tables.discard(slot)

    def stall(self, client: int, until: int) -> None:
        """Let a client stand still until a time."""
        self.world.clients[client, at.STALLED_UNTIL] = max(until, int(self.world.clients[client, at.STALLED_UNTIL]))

    def take(self, client: int, queue: int, offset: int, told: int | None, now: int) -> int:
        """Give a queue to a client, which pulls it at once, and return the slot.

        `told`, the broker's answer about the group's offset (None for none), goes into the client's offset table.
        """
        slot = self._free_slot()
        world = self.world = begin_at(self.world, queue, offset)
        row = world.slots[slot]
        row[:] = 0
        row[[at.QUEUE, at.CLIENT, at.NEXT_OFFSET, at.IN_USE]] = queue, client, offset, 1
        row[[at.ANSWERED_AT, at.BEGAN]] = NONE
        row[at.LAST_PULL] = now
        row[at.REACHED] = NONE if told is None else told
        row[at.NEXT_SLOT] = world.clients[client, at.FIRST_SLOT]
        world.clients[client, at.FIRST_SLOT] = slot
        note_position(world, row, offset)
        self._in_tables.add(slot)
        pull(world, slot, now)
        return slot

    def give_up(self, slot: int) -> None:
        """Drop the queue of a slot and commit its offset."""
        row = self.world.slots[slot]
        if not row[at.DROPPED]:
            self._persist(row)
        self.drop(slot)

    def drop(self, slot: int) -> None:
        """Drop the queue of a slot without committing its offset."""
        self.world.slots[slot, at.DROPPED] = 1

    def commit(self, queue: int, offset: int) -> None:
        """Set the group's committed offset of a queue."""
        self.world.queues[queue, at.COMMITTED] = offset

    def persist(self, client: int) -> None:
        """Commit all offsets in a client's table."""
        for slot in self._slots_of(client):
            row = self.world.slots[slot]
            if not row[at.DROPPED]:
                self._persist(row)

    def _persist(self, row: Rows) -> None:
        if row[at.REACHED] == NONE:
            return
        if self.plan.broadcasts:
            self.world.local[row[at.CLIENT], row[at.QUEUE], at.STORED] = row[at.REACHED]
        else:
            self.commit(row[at.QUEUE], row[at.REACHED])

    def release(self, slot: int) -> None:
        """Remove the slot of a queue that was given up from the client's table."""
        self._in_tables.discard(slot)

    def has_temp_message(self, slot: int) -> bool:
        """Return whether the client holds messages of the queue that its listener has not taken."""
        row = self.world.slots[slot]
        return bool(row[at.TAIL] - row[at.HEAD] > row[at.TAKEN] * row[at.WORKING])

    def batch_ends(self, slot: int) -> int:
        """Return when the listener's current batch of the queue ends, 0 if there is none."""
        return int(self.world.slots[slot, at.ENDS]) if self.world.slots[slot, at.WORKING] else 0

    def set_lock(self, slot: int, locked: bool, at_time: int) -> None:
        """Set whether the broker has locked the queue for the client, and the time of its answer."""
        self.world.slots[slot, [at.LOCKED, at.LOCKED_AT]] = locked, at_time

    def lock_one(self, slot: int, locked: bool, now: int) -> None:
        """Continue a consumer that waits for its queue's lock, with the broker's answer."""
        if locked:
            self.set_lock(slot, True, now)
        expect(self.world, slot, CONSUME, now + (CONSUME_AFTER_LOCKED if locked else CONSUME_AFTER_NOT_LOCKED) * MS)

    def fix_offset(self, slot: int, offset: int, told: int | None, now: int) -> None:
        """Pull a locked queue from the group's committed offset; `told` is as for `take`."""
        row = self.world.slots[slot]
        row[[at.FIXED, at.NEXT_OFFSET]] = 1, offset
        row[at.REACHED] = row[at.REACHED] if told is None else told
        self.world = begin_at(self.world, int(row[at.QUEUE]), offset)
        note_position(self.world, row, offset)
        pull(self.world, slot, now)

    def last_pull(self, slot: int) -> int:
        """Return when the client last tried to pull the queue of a slot."""
        return int(self.world.slots[slot, at.LAST_PULL])

    def committed(self, queue: int) -> int:
        """Return the group's committed offset of a queue, -1 for none."""
        return int(self.world.queues[queue, at.COMMITTED])

    def stored(self, client: int, queue: int) -> int:
        """Return the offset of a queue in the file of a broadcast client, -1 for none."""
        return int(self.world.local[client, queue, at.STORED])

    def end_offset(self, queue: int, now: int) -> int:
        """Return the offset one past the last message of a queue that is visible at `now`."""
        return int(end_offset(self.world, queue, now - self.plan.broker.dispatch))

    def lag(self, now: int) -> Rows:
        """Return the group's lag of each queue, retry queues last; `lag_sample` defines the columns."""
        rows = np.empty((len(self.world.queues), LAG_COLUMNS), np.int64)
        sample_lag(self.world, now, rows)
        return rows

    def is_idle(self) -> bool:
        """Return whether all messages of the plan have come, were consumed and are committed; in a broadcasting group by each client."""
        world, topic_queues = self.world, len(self.plan.queues)
        ends = world.queues[:topic_queues, at.BACKLOG_END] + world.queues[:topic_queues, at.COMING]
        owned = world.slots[(world.slots[:, at.IN_USE] == 1) & (world.slots[:, at.DROPPED] == 0), at.WORKING]
        if world.counters[at.WAITING] or owned.any():
            return False
        if self.plan.broadcasts:
            reached = world.local[world.clients[:, at.ALIVE] == 1, :, at.LOCAL_POSITION]
            return bool(len(reached) and (reached >= ends).all())
        ends = np.concatenate((ends, world.queues[topic_queues:, at.END]))
        done = np.minimum(world.queues[:, at.POSITION], np.maximum(world.queues[:, at.COMMITTED], 0))
        return bool((done >= ends).all())

    def run(self, until: int, tell: Callable[[WrittenRows], None], ask: Ask) -> None:
        """Process the events before a time.

        Args:
            until: the time.
            tell: called with the rows of consumed messages and dead letters, block by block.
            ask: called for a slot's request to the broker.
        """
        while (stopped := run(self.world, until)) != DONE:
            if stopped == TELL:
                self.tell_rest(tell)
            elif stopped == ASK:
                counters = self.world.counters
                slot, counters[at.ASKING] = int(counters[at.ASKING]), NONE
                ask(slot, counters[at.QUESTION] == LOCK_ONE, int(counters[at.NOW]))
            else:
                self._grow()
        self.world.counters[at.NOW] = until

    def tell_rest(self, tell: Callable[[WrittenRows], None]) -> None:
        """Call `tell` with the rows that were written since its last call."""
        counters = self.world.counters
        consumed, dead = int(counters[at.CONSUMED_ROWS]), int(counters[at.DEAD_ROWS])
        if consumed or dead:
            tell(WrittenRows(self.world.consumed[:consumed].copy(), self.world.dead[:dead].copy()))
        counters[[at.CONSUMED_ROWS, at.DEAD_ROWS]] = 0

    # room ---------------------------------------------------------------------------------------------------------------------------

    def _slots_of(self, client: int) -> list[int]:
        found, slot = [], int(self.world.clients[client, at.FIRST_SLOT])
        while slot != NONE:
            found.append(slot)
            slot = int(self.world.slots[slot, at.NEXT_SLOT])
        return found

    def _free_slot(self) -> int:
        """Return a slot that was never used, or whose queue was given up and that no event names."""
        slots = self.world.slots
        idle = (
            ~np.isin(np.arange(len(slots)), list(self._in_tables))
            & (slots[:, at.EVENTS] == 0)
            & (slots[:, at.QUEUED] == 0)
            & (slots[:, at.WORKING] == 0)
        )
        free = np.flatnonzero((slots[:, at.IN_USE] == 0) | ((slots[:, at.DROPPED] == 1) & idle))
        if len(free) == 0:
            more = max(8, len(slots))
            ring = np.zeros((more * int(self.world.cfg[at.RING]), at.RING_COLUMNS), np.int64)
            self.world = self.world._replace(
                slots=np.concatenate((slots, np.zeros((more, at.SLOT_COLUMNS), np.int64))),
                ring=np.concatenate((self.world.ring, ring)),
            )
            self._make_heap_room()
            return len(slots)
        slot = int(free[0])
        if slots[slot, at.IN_USE]:
            self._unlink(slot)
        return slot

    def _unlink(self, slot: int) -> None:
        slots, clients = self.world.slots, self.world.clients
        client, behind = int(slots[slot, at.CLIENT]), int(slots[slot, at.NEXT_SLOT])
        before = int(clients[client, at.FIRST_SLOT])
        if before == slot:
            clients[client, at.FIRST_SLOT] = behind
            return
        while int(slots[before, at.NEXT_SLOT]) != slot:
            before = int(slots[before, at.NEXT_SLOT])
        slots[before, at.NEXT_SLOT] = behind

    def _make_heap_room(self) -> None:
        """Grow the heap so that half is free: one event adds at most one for each thread of a client and each slot of the retry topic."""
        world = self.world
        least = 2 * (int(world.counters[at.HEAP]) + self._threads + 2 * len(world.slots) + len(world.clients) + len(world.levels) + 64)
        if len(world.heap) < least:
            heap = np.zeros((2 * least, 2), np.int64)
            heap[: len(world.heap)] = world.heap
            self.world = world._replace(heap=heap)

    def _grow(self) -> None:
        self._make_heap_room()
        world, batch = self.world, int(self.world.cfg[at.CONSUME_BATCH])
        if world.counters[at.WAITING] + batch > len(world.pending):
            count = len(world.pending)
            pending = np.concatenate((world.pending, free_rows(count, count + batch)))
            # the list of free rows ends with a row that names the first row after the old end, so the new rows continue the list
            self.world = world = world._replace(pending=pending)
        retries = world.queues[len(self.plan.queues) :]
        if (retries[:, at.END] - retries[:, at.TRIMMED] + world.counters[at.WAITING] > world.retries.shape[1]).any():
            self._trim_retries()

    def _trim_retries(self) -> None:
        """Remove the messages of the retry topic that no client can pull again; double the room if that frees less than half."""
        world, first = self.world, len(self.plan.queues)
        for one in range(world.retries.shape[0]):
            queue = world.queues[first + one]
            kept = max(min([max(int(queue[at.COMMITTED]), 0), *self._held(first + one)]), int(queue[at.TRIMMED]))
            left = int(queue[at.END]) - kept
            world.retries[one, :left] = world.retries[one, kept - int(queue[at.TRIMMED]) : int(queue[at.END] - queue[at.TRIMMED])].copy()
            queue[at.TRIMMED] = kept
        retries = world.queues[first:]
        needed = int((retries[:, at.END] - retries[:, at.TRIMMED]).max() + world.counters[at.WAITING])
        if 2 * needed > world.retries.shape[1]:
            grown = np.zeros((len(retries), 4 * needed, at.RETRY_COLUMNS), np.int64)
            grown[:, : world.retries.shape[1]] = world.retries
            self.world = world._replace(retries=grown)

    def _held(self, queue: int) -> list[int]:
        """Return, for each client of a queue, the first offset that it may still commit or pass to its listener."""
        world, ring = self.world, int(self.world.cfg[at.RING])
        found = []
        for slot in np.flatnonzero((world.slots[:, at.IN_USE] == 1) & (world.slots[:, at.QUEUE] == queue)):
            row = world.slots[slot]
            if not row[at.DROPPED]:
                found.append(int(row[at.NEXT_OFFSET] if row[at.REACHED] == NONE else row[at.REACHED]))
            if row[at.HEAD] < row[at.TAIL] and (not row[at.DROPPED] or row[at.QUEUED] or row[at.WORKING]):
                found.append(int(world.ring[slot * ring + (row[at.HEAD] & (ring - 1)), at.OFFSET]))
        return found
