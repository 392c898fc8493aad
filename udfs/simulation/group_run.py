"""The run of one group: when clients start and stop, when the broker notices and notifies, and when clients rebalance.

Broker source (4.9.3): DefaultMQPushConsumerImpl.start and shutdown, RebalanceService, ConsumerManager (registerConsumer,
unregisterConsumer, doChannelCloseEvent), DefaultConsumerIdsChangeListener, ClientHousekeepingService, NettyRemotingServer's
IdleStateHandler; the rules of rebalancing are those of `udfs.consumer.rebalance`.
Rules: a client rebalances when it starts, when the broker notifies it that the group's clients have changed, and 20 s after the last
rebalance. A rebalance without a change has no effect, so only rebalances that may find a change are simulated.
Surprises: a client that starts takes its queues at once and pulls from the group's committed offset, while the previous client still
consumes messages after that offset: they are delivered twice. A client that begins below a queue's minOffset gets PULL_OFFSET_MOVED, gives
the queue up for ten seconds, and takes it again at its next rebalance. A client that shuts down commits its offsets, and loses the batches
in progress. The broker notices a dead process at once, a dead machine only when its connection was idle for two minutes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from udfs.broker.consumer_offset_manager import first_offset
from udfs.broker.message_queue import MessageQueue
from udfs.broker.rebalance_lock import RebalanceLockManager
from udfs.consumer.offset_store import NOT_FOUND
from udfs.consumer.offset_tree import MessageExt
from udfs.consumer.process_queue import ProcessQueue
from udfs.consumer.pull_from_where import OffsetQuestion, compute_pull_from_where
from udfs.consumer.pull_message import FIX_OFFSET_AFTER
from udfs.consumer.push_consumer import LOCK_QUEUES, REBALANCE, default_consume_timestamp
from udfs.consumer.rebalance import CONSUME_LOCK_WAIT, drop, give_up, locked_all, locked_one, share_of, to_take
from udfs.filters.message_filter import RETRY_GROUP_TOPIC_PREFIX
from udfs.simulation.group_engine import GroupEngine, WrittenRows
from udfs.simulation.group_plan import ClientPlan, GroupPlan
from udfs.simulation.world import MS

CHANNEL_IDLE: Final = 120_000_000  # microseconds until a broker closes an idle connection
_AFTER_STALL: Final = MS  # after a stall pulls continue before the client rebalances


class Rare(IntEnum):
    """The kinds of rare events, in their order at one moment."""

    JOIN = 0
    LEAVE = 1
    CRASH = 2
    GONE = 3  # the broker notices that a client has stopped
    STALL = 4
    RESUME = 5
    REBALANCE = 6
    LOCK = 7  # an orderly client locks all its queues
    UNLOCK = 8
    FIX_OFFSET = 9  # a client that began below a queue's minOffset may begin again
    SAMPLE = 10


_GOING_ON = (Rare.REBALANCE, Rare.LOCK, Rare.UNLOCK)  # these events recur while there are clients


@dataclass(frozen=True, slots=True)
class Rebalanced:
    """A rebalance of one topic by one client that took or gave up queues; or one queue given up after PULL_OFFSET_MOVED."""

    time: int
    client_id: str
    topic: str
    clients: int
    taken: tuple[MessageQueue, ...]
    dropped: tuple[MessageQueue, ...]


@dataclass(slots=True)
class _Client:
    plan: ClientPlan
    place: int  # index in the plan's clients
    number: int  # the engine's number of the client
    alive: bool = True
    stalled_until: int = 0
    rebalanced: int = -1  # when the client last rebalanced
    notified: int = -1  # when the broker's notification makes it rebalance
    saw: tuple[str, ...] = ()
    table: dict[MessageQueue, ProcessQueue] = field(default_factory=dict)
    slots: dict[MessageQueue, int] = field(default_factory=dict)


class GroupRun:
    """The run of one plan on an engine; `rebalances` are those that took or gave up queues, `stopped_at` is when the run ended."""

    def __init__(self, plan: GroupPlan, engine: GroupEngine) -> None:
        self.plan, self.engine = plan, engine
        retry = RETRY_GROUP_TOPIC_PREFIX + plan.group
        nums = plan.broker.retry_queue_nums
        self._queues = {queue: number for number, queue in enumerate(plan.queues)}
        for broker_number, broker in enumerate(plan.brokers):
            for one in range(nums):
                self._queues[MessageQueue(retry, broker, one)] = len(plan.queues) + broker_number * nums + one
        self._topics = {plan.topic: list(plan.queues)}
        if not plan.broadcasts:
            self._topics[retry] = list(self._queues)[len(plan.queues) :]
        self._events: list[tuple[int, Rare, int]] = []
        self._clients: dict[int, _Client] = {}
        self._registered: set[str] = set()
        self._locks = RebalanceLockManager()
        self._holders: dict[int, tuple[_Client, MessageQueue]] = {}
        self._unlocks: list[tuple[_Client, MessageQueue]] = []
        self._fixes: list[tuple[_Client, MessageQueue, ProcessQueue]] = []
        self.rebalances: list[Rebalanced] = []
        self.stopped_at = 0
        for number, client in enumerate(plan.clients):
            self._expect(client.joins, Rare.JOIN, number)
            for time, kind in ((client.leaves, Rare.LEAVE), (client.crashes, Rare.CRASH)):
                if time is not None:
                    self._expect(time, kind, number)
            for begins, _ in client.stalls:
                self._expect(begins, Rare.STALL, number)

    def run(self, *, sample: Callable[[int], bool], tell: Callable[[WrittenRows], None]) -> None:
        """Run the plan to its end.

        Args:
            sample: called with the time of each sample of lag; if it returns True, the run ends.
            tell: called with the rows of consumed messages, block by block, if the plan `tells`.
        """
        self._expect(0, Rare.SAMPLE, 0)
        while self._events:
            time, kind, number = heapq.heappop(self._events)
            if time > self.plan.until:
                break
            self.engine.run(time, tell, self._answer)
            self.stopped_at = time
            if kind is Rare.SAMPLE:
                rest = any(one not in _GOING_ON for _, one, _ in self._events)
                if sample(time) and not rest:
                    break
                if time < self.plan.until:
                    self._expect(min(time + self.plan.sample, self.plan.until), Rare.SAMPLE, 0)
            else:
                self._happen(time, kind, number)

    def clients(self) -> list[tuple[int, int]]:
        """Return (index in the plan, number in the engine) of each client that started."""
        return [(number, client.number) for number, client in sorted(self._clients.items())]

    def _expect(self, time: int, kind: Rare, number: int) -> None:
        heapq.heappush(self._events, (time, kind, number))

    def _happen(self, now: int, kind: Rare, number: int) -> None:
        if kind is Rare.JOIN:
            self._join(now, number)
        elif kind is Rare.GONE:
            self._forget(now, number)
        elif kind is Rare.UNLOCK:
            client, queue = self._unlocks[number]
            if client.alive:
                self._locks.unlock_batch(self.plan.group, [queue], client.plan.client_id)
        elif kind is Rare.FIX_OFFSET:
            self._fix_offset(now, number)
        else:
            client = self._clients[number]
            if not client.alive:
                return
            if kind is Rare.REBALANCE:
                self._rebalance(now, number)
            elif kind is Rare.LOCK:
                self._lock_all(now, number)
            elif kind is Rare.STALL:
                self._stall(now, number)
            elif kind is Rare.RESUME:
                self._register(now, client)
            else:
                self._end(now, number, leaves=kind is Rare.LEAVE)

    # who is there -------------------------------------------------------------------------------------------------------------------

    def _join(self, now: int, number: int) -> None:
        plan = self.plan.clients[number]
        client = self._clients[number] = _Client(plan, number, self.engine.add_client(now))
        self._register(now, client)
        self._expect(now, Rare.REBALANCE, number)
        if self.plan.orderly:
            self._expect(now + LOCK_QUEUES[0] * MS, Rare.LOCK, number)

    def _register(self, now: int, client: _Client) -> None:
        if client.plan.client_id not in self._registered:
            self._registered.add(client.plan.client_id)
            self._notify(now)

    def _end(self, now: int, number: int, *, leaves: bool) -> None:
        """Let a client shut down (`leaves`) or die."""
        client = self._clients[number]
        client.alive = False
        if leaves:
            self.engine.persist(client.number)
            self._locks.unlock_batch(self.plan.group, client.table, client.plan.client_id)
        self.engine.remove_client(client.number)
        self._expect(now + (CHANNEL_IDLE if client.plan.silent and not leaves else 0), Rare.GONE, number)

    def _forget(self, now: int, number: int) -> None:
        """Remove a client from the broker's group: it closed its connection, or the connection was idle too long."""
        client = self._clients[number]
        if client.alive and client.stalled_until <= now:
            return
        self._registered.discard(client.plan.client_id)
        self._notify(now)

    def _stall(self, now: int, number: int) -> None:
        client = self._clients[number]
        until = max(to for begins, to in client.plan.stalls if begins == now)
        client.stalled_until = max(client.stalled_until, until)
        self.engine.stall(client.number, client.stalled_until)
        if until - now > CHANNEL_IDLE:
            self._expect(now + CHANNEL_IDLE, Rare.GONE, number)
        self._expect(until, Rare.RESUME, number)
        self._expect(until + _AFTER_STALL, Rare.REBALANCE, number)

    def _notify(self, now: int) -> None:
        """Schedule a rebalance of each client after a change: at NOTIFY_CONSUMER_IDS_CHANGED, or at the client's next regular one."""
        for number, client in self._clients.items():
            if client.alive and client.rebalanced >= 0:
                when = now + self.plan.broker.network if self.plan.broker.notify else self._next_rebalance(client, now)
                if client.notified != when:
                    client.notified = when
                    self._expect(when, Rare.REBALANCE, number)

    def _next_rebalance(self, client: _Client, now: int) -> int:
        every = REBALANCE[1] * MS
        return client.rebalanced + (1 + (now - client.rebalanced) // every) * every

    # rebalancing --------------------------------------------------------------------------------------------------------------------

    def _rebalance(self, now: int, number: int) -> None:
        client = self._clients[number]
        if client.stalled_until > now:
            self._expect(client.stalled_until + _AFTER_STALL, Rare.REBALANCE, number)
            return
        client.rebalanced = now
        clients = tuple(sorted(self._registered))
        if client.saw == clients and client.stalled_until + _AFTER_STALL != now:
            return
        client.saw = clients
        for queue, held in client.table.items():
            held.last_pull_timestamp = self.engine.last_pull(client.slots[queue]) // MS
        for topic, queues in self._topics.items():
            strategy = client.plan.strategy or self.plan.strategy
            share = frozenset(queues) if self.plan.broadcasts else share_of(strategy, client.plan.client_id, queues, clients)
            if share is not None:
                self._take_share(now, client, topic, share)
        if any(held.dropped for held in client.table.values()):  # given up during a batch, and perhaps in the client's share again
            client.saw = ()
        if client.saw == ():  # the last rebalance was not complete: try again
            self._expect(now + REBALANCE[1] * MS, Rare.REBALANCE, number)

    def _take_share(self, now: int, client: _Client, topic: str, share: frozenset[MessageQueue]) -> None:
        dropped = [queue for queue in drop(client.table, topic, share, now // MS) if self._leaves(now, client, queue)]
        taken = [queue for queue in to_take(client.table, share) if self._take(now, client, queue)]
        if taken or dropped:
            event = Rebalanced(now, client.plan.client_id, topic, len(self._registered), tuple(taken), tuple(dropped))
            self.rebalances.append(event)

    def _leaves(self, now: int, client: _Client, queue: MessageQueue) -> bool:
        """Give a queue up; return False if an orderly listener is consuming it, so that it stays until a later rebalance."""
        held, slot = client.table[queue], client.slots[queue]
        self.engine.give_up(slot)
        held.clear()
        if self.engine.has_temp_message(slot):
            held.msg_tree_map.put(MessageExt(0, 0))
        ends = self.engine.batch_ends(slot)
        given = give_up(held, needs_lock=self.plan.orderly, in_a_batch=ends > now + CONSUME_LOCK_WAIT * MS)
        if given.unlock_after is not None:
            self._unlocks.append((client, queue))
            self._expect(max(now, ends) + given.unlock_after * MS, Rare.UNLOCK, len(self._unlocks) - 1)
        if given.leaves:
            self.engine.release(slot)
            del client.table[queue], client.slots[queue]
        else:
            client.saw = ()
        return given.leaves

    def _take(self, now: int, client: _Client, queue: MessageQueue) -> bool:
        """Take a queue; return False if another orderly client has its lock, or the broker gives no offset to begin at."""
        if self.plan.orderly and not self._locked(now, client, [queue]):
            client.saw = ()
            return False
        begin, told = self._begin(client, queue, now)
        if begin is None:
            return False
        client.table[queue] = ProcessQueue.new(now // MS)
        least = self._least(queue)
        slot = client.slots[queue] = self.engine.take(client.number, self._queues[queue], max(begin, least), told, now)
        self._holders[slot] = client, queue
        if begin < least and not self.plan.orderly and not self.plan.broadcasts:  # an orderly one queries it again when locked
            self._send_away(now, client, queue)
        return True

    def _send_away(self, now: int, client: _Client, queue: MessageQueue) -> None:
        """Process PULL_OFFSET_MOVED: the client drops the queue now, and later commits the offset where it begins again."""
        held = client.table[queue]
        held.dropped = True
        self.engine.drop(client.slots[queue])
        self._fixes.append((client, queue, held))
        self._expect(now + 2 * self.plan.broker.network + FIX_OFFSET_AFTER * MS, Rare.FIX_OFFSET, len(self._fixes) - 1)

    def _fix_offset(self, now: int, fix: int) -> None:
        client, queue, held = self._fixes[fix]
        if not client.alive:
            return
        if client.stalled_until > now:
            self._expect(client.stalled_until, Rare.FIX_OFFSET, fix)
            return
        self.engine.commit(self._queues[queue], self._least(queue))
        if client.table.get(queue) is held and self._leaves(now, client, queue):
            self.rebalances.append(Rebalanced(now, client.plan.client_id, queue.topic or "", len(self._registered), (), (queue,)))
            client.saw = ()
            self._expect(self._next_rebalance(client, now), Rare.REBALANCE, client.place)

    def _locked(self, now: int, client: _Client, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        return self._locks.try_lock_batch(self.plan.group, queues, client.plan.client_id, now // MS)

    def _lock_all(self, now: int, number: int) -> None:
        client = self._clients[number]
        if client.stalled_until > now:
            self._expect(client.stalled_until, Rare.LOCK, number)
            return
        asked = list(client.table)
        locked_all(client.table, asked, self._locked(now, client, asked), now // MS)
        for queue, held in client.table.items():
            self.engine.set_lock(client.slots[queue], held.locked, held.last_lock_timestamp * MS)
        self._expect(now + LOCK_QUEUES[1] * MS, Rare.LOCK, number)

    def _answer(self, slot: int, locks: bool, now: int) -> None:
        """Give the engine the broker's answer to an orderly client's request for one queue: the lock, or the group's committed offset."""
        client, queue = self._holders[slot]
        if locks:
            held = self._locked(now, client, [queue])
            locked_one(client.table, held, now // MS)
            self.engine.lock_one(slot, bool(held), now)
            return
        begin, told = self._begin(client, queue, now)
        least = self._least(queue)
        self.engine.fix_offset(slot, -1 if begin is None else max(begin, least), told, now)
        if begin is not None and begin < least:
            self._send_away(now, client, queue)

    def _least(self, queue: MessageQueue) -> int:
        """Return the minOffset of a queue."""
        number = self._queues[queue]
        return self.plan.min_offsets[number] if number < len(self.plan.min_offsets) else 0

    def _begin(self, client: _Client, queue: MessageQueue, now: int) -> tuple[int | None, int | None]:
        """Return the offset at which a client begins to pull, and the broker's answer about the group's offset."""
        number = self._queues[queue]
        told: int | None
        if self.plan.broadcasts:
            told = self.engine.stored(client.number, number)
            told = None if told == NOT_FOUND else told
        else:
            told = first_offset(self.engine.committed(number), self._least(queue), lambda: False)
        begin = compute_pull_from_where(self.plan.consumer.consume_from_where, queue.topic or "", NOT_FOUND if told is None else told)
        if begin is OffsetQuestion.MAX_OFFSET:
            begin = self.engine.end_offset(number, now)
        elif begin is OffsetQuestion.SEARCH_BY_TIMESTAMP:
            since = default_consume_timestamp(client.plan.joins // MS) * MS
            found = self.engine.end_offset(number, since - 1 + self.plan.broker.dispatch)
            begin = min(found, max(self.engine.end_offset(number, now) - 1, 0))  # for a later time the broker answers the last message
        return begin, told
