"""The compiled engine of a simulated group: it owns the arrays, and changes them as clients come and go and queues change hands.

Broker source (4.9.3): what RebalancePushImpl and DefaultMQPushConsumerImpl do to process queues; no rule stands here.
Rule: all growing is done here, between two stretches of the loop, by doubling.
`group_run` asks an SimulationEngine for its changes. A second engine, in plain Python, stands in the tests: both must tell the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

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
from udfs.simulation.pulling import expect, note_position, pull
from udfs.simulation.world import MS, NONE, World

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Told:
    """Rows of `consumed` and `dead`, as `world` has their columns."""

    consumed: Rows
    dead: Rows


# asked about a slot: whether to lock its queue (else: where to begin), and when
Ask = Callable[[int, bool, int], None]


class SimulationEngine(Protocol):
    """What `group_run` asks of that which simulates."""

    def add_client(self, now: int) -> int:
        """A client that starts; its number."""

    def remove_client(self, client: int) -> None:
        """A client that is gone, with all that it held."""

    def stall(self, client: int, until: int) -> None:
        """Stand still."""

    def take(self, client: int, queue: int, offset: int, told: int | None, now: int) -> int:
        """Give a queue to a client; `told` is what the broker told of the group's offset. A number for its hold on it."""

    def give_up(self, slot: int) -> None:
        """Drop a queue and commit its offset."""

    def drop(self, slot: int) -> None:
        """Drop a queue, and keep its offset as it is."""

    def commit(self, queue: int, offset: int) -> None:
        """Set the group's offset."""

    def persist(self, client: int) -> None:
        """Commit all offsets of a client."""

    def last_pull(self, slot: int) -> int:
        """When the client last tried to pull the queue."""

    def committed(self, queue: int) -> int:
        """The group's offset, -1 for none."""

    def stored(self, client: int, queue: int) -> int:
        """The offset in the file of a broadcast client, -1 for none."""

    def end_offset(self, queue: int, now: int) -> int:
        """Offset behind the last message of a queue."""

    def release(self, slot: int) -> None:
        """A queue that was given up has left the client's table."""

    def has_temp_message(self, slot: int) -> bool:
        """Whether the client holds messages of the queue that its listener does not have."""

    def batch_ends(self, slot: int) -> int:
        """When the batch that the listener is at ends, 0 where it is at none."""

    def set_lock(self, slot: int, locked: bool, at_time: int) -> None:
        """Note what the broker said of the lock, and when."""

    def lock_one(self, slot: int, locked: bool, now: int) -> None:
        """Go on after the broker was asked to lock the queue of a consumer that waits for that."""

    def fix_offset(self, slot: int, offset: int, told: int | None, now: int) -> None:
        """Pull from where the group has committed, now that the queue is locked; `told` is as for `take`."""

    def run(self, until: int, tell: Callable[[Told], None], ask: Ask) -> None:
        """Let happen what comes before a time."""


class GroupEngine:
    """The engine on the compiled loop."""

    def __init__(self, plan: GroupPlan) -> None:
        self.plan = plan
        self.world: World = new_world(plan)
        self._threads = 0
        self._in_tables: set[int] = set()  # slots that may still be asked about

    def add_client(self, now: int) -> int:
        """A client that starts; its number. It commits every five seconds, the first time after ten."""
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
        """A client that is gone, with all that it held."""
        world = self.world
        world.clients[client, at.ALIVE] = 0
        world.clients[client, [at.FIFO_HEAD, at.FIFO_TAIL]] = NONE
        for slot in self._slots_of(client):
            world.slots[slot, at.DROPPED] = 1
            world.slots[slot, at.QUEUED] = 0
            self._in_tables.discard(slot)

    def stall(self, client: int, until: int) -> None:
        """Stand still until a time."""
        self.world.clients[client, at.STALLED_UNTIL] = max(until, int(self.world.clients[client, at.STALLED_UNTIL]))

    def take(self, client: int, queue: int, offset: int, told: int | None, now: int) -> int:
        """Give a queue to a client, which pulls it at once; what the broker told of the group's offset is in its offset table."""
        slot = self._free_slot()
        world = self.world
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
        """Drop a queue and commit its offset."""
        row = self.world.slots[slot]
        if not row[at.DROPPED]:
            self._persist(row)
        self.drop(slot)

    def drop(self, slot: int) -> None:
        """Drop a queue, and keep its offset as it is."""
        self.world.slots[slot, at.DROPPED] = 1

    def commit(self, queue: int, offset: int) -> None:
        """Set the group's offset."""
        self.world.queues[queue, at.COMMITTED] = offset

    def persist(self, client: int) -> None:
        """Commit all offsets of a client."""
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
        """A queue that was given up has left the client's table."""
        self._in_tables.discard(slot)

    def has_temp_message(self, slot: int) -> bool:
        """Whether the client holds messages of the queue that its listener does not have."""
        row = self.world.slots[slot]
        return bool(row[at.TAIL] - row[at.HEAD] > row[at.TAKEN] * row[at.WORKING])

    def batch_ends(self, slot: int) -> int:
        """When the batch that the listener is at ends, 0 where it is at none."""
        return int(self.world.slots[slot, at.ENDS]) if self.world.slots[slot, at.WORKING] else 0

    def set_lock(self, slot: int, locked: bool, at_time: int) -> None:
        """Note what the broker said of the lock, and when."""
        self.world.slots[slot, [at.LOCKED, at.LOCKED_AT]] = locked, at_time

    def lock_one(self, slot: int, locked: bool, now: int) -> None:
        """Go on after the broker was asked to lock the queue of a consumer that waits for that."""
        if locked:
            self.set_lock(slot, True, now)
        expect(self.world, slot, CONSUME, now + (CONSUME_AFTER_LOCKED if locked else CONSUME_AFTER_NOT_LOCKED) * MS)

    def fix_offset(self, slot: int, offset: int, told: int | None, now: int) -> None:
        """Pull from where the group has committed, now that the queue is locked; `told` is as for `take`."""
        row = self.world.slots[slot]
        row[[at.FIXED, at.NEXT_OFFSET]] = 1, offset
        row[at.REACHED] = row[at.REACHED] if told is None else told
        note_position(self.world, row, offset)
        pull(self.world, slot, now)

    def last_pull(self, slot: int) -> int:
        """When the client last tried to pull the queue."""
        return int(self.world.slots[slot, at.LAST_PULL])

    def committed(self, queue: int) -> int:
        """The group's offset on a queue, -1 for none."""
        return int(self.world.queues[queue, at.COMMITTED])

    def stored(self, client: int, queue: int) -> int:
        """The offset in the file of a broadcast client, -1 for none."""
        return int(self.world.local[client, queue, at.STORED])

    def end_offset(self, queue: int, now: int) -> int:
        """Offset behind the last message of a queue that is visible by now."""
        return int(end_offset(self.world, queue, now - self.plan.broker.dispatch))

    def lag(self, now: int) -> Rows:
        """How far the group is on each queue, retry queues last: columns as `lag_sample` has them."""
        rows = np.empty((len(self.world.queues), LAG_COLUMNS), np.int64)
        sample_lag(self.world, now, rows)
        return rows

    def is_idle(self) -> bool:
        """Whether all that ever comes has come, was consumed and is committed; by each client of a group that broadcasts."""
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

    def run(self, until: int, tell: Callable[[Told], None], ask: Ask) -> None:
        """Let happen what comes before a time; `tell` is given what was consumed, batch by batch."""
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

    def tell_rest(self, tell: Callable[[Told], None]) -> None:
        """Give what was consumed and not told yet."""
        counters = self.world.counters
        consumed, dead = int(counters[at.CONSUMED_ROWS]), int(counters[at.DEAD_ROWS])
        if consumed or dead:
            tell(Told(self.world.consumed[:consumed].copy(), self.world.dead[:dead].copy()))
        counters[[at.CONSUMED_ROWS, at.DEAD_ROWS]] = 0

    # room ---------------------------------------------------------------------------------------------------------------------------

    def _slots_of(self, client: int) -> list[int]:
        found, slot = [], int(self.world.clients[client, at.FIRST_SLOT])
        while slot != NONE:
            found.append(slot)
            slot = int(self.world.slots[slot, at.NEXT_SLOT])
        return found

    def _free_slot(self) -> int:
        """A slot that nobody uses, or whose queue was given up and of which no event is left."""
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
        """One event puts in no more than the threads of a client and the slots that wait for the retry topic: half is always free."""
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
            # the free rows of before end with one that names the first row behind them
            self.world = world = world._replace(pending=pending)
        retries = world.queues[len(self.plan.queues) :]
        if (retries[:, at.END] - retries[:, at.TRIMMED] + world.counters[at.WAITING] > world.retries.shape[1]).any():
            self._trim_retries()

    def _trim_retries(self) -> None:
        """Forget the messages of the retry topic that nobody can pull again, and double the room where that does not free half of it."""
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
        """The first offset that each client may still commit, or its listener look at, of a queue."""
        world, ring = self.world, int(self.world.cfg[at.RING])
        found = []
        for slot in np.flatnonzero((world.slots[:, at.IN_USE] == 1) & (world.slots[:, at.QUEUE] == queue)):
            row = world.slots[slot]
            if not row[at.DROPPED]:
                found.append(int(row[at.NEXT_OFFSET] if row[at.REACHED] == NONE else row[at.REACHED]))
            if row[at.HEAD] < row[at.TAIL] and (not row[at.DROPPED] or row[at.QUEUED] or row[at.WORKING]):
                found.append(int(world.ring[slot * ring + (row[at.HEAD] & (ring - 1)), at.OFFSET]))
        return found
