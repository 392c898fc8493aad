"""A slow model of the simulation's compiled loop: it calls the rules of udfs.consumer and udfs.broker, with an object for each thing."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile

import numpy as np

from tests.models.slow_parts import Always, Batch, Came, Client, Slot, Unordered
from udfs.broker.message_queue import MessageQueue
from udfs.broker.schedule_delivery import DELAY_FOR_A_WHILE, FIRST_DELAY_TIME, due_messages, look_after
from udfs.broker.send_message import retry_level
from udfs.consumer import consume_concurrently as concurrently
from udfs.consumer import consume_orderly as orderly
from udfs.consumer.offset_store import NOT_FOUND, LocalFileOffsetStore, RemoteBrokerOffsetStore
from udfs.consumer.offset_tree import MessageExt
from udfs.consumer.process_queue import ProcessQueue
from udfs.consumer.pull_api_wrapper import filter_again, pull_status, tags_set
from udfs.consumer.pull_message import BROKER_SUSPEND_MAX_TIME_MILLIS, Pull, PullRequest, fix_offset, pull_fields, pull_message, take_answer
from udfs.consumer.push_consumer import PERSIST_OFFSETS, UNSET
from udfs.filters.message_filter import RETRY_GROUP_TOPIC_PREFIX
from udfs.pull import get_message as gm
from udfs.pull import pull_request_hold as hold
from udfs.pull.codes import BrokerRole, GetMessageStatus
from udfs.pull.pull_result import response_code
from udfs.simulation import world as at
from udfs.simulation.arrivals import MATCHES_AT_BROKER, MATCHES_AT_CLIENT, arrival_time, body_size, matches, record_size
from udfs.simulation.draws import RETRY_QUEUE, draw, message_stream
from udfs.simulation.event_heap import ANSWER, CONSUME, DELIVER, FIX_OFFSET, LOCK_ONE, PULL, WORK_END
from udfs.simulation.event_heap import PERSIST_OFFSETS as PERSIST
from udfs.simulation.group_engine import Ask, WrittenRows
from udfs.simulation.group_plan import GroupPlan, Rates
from udfs.simulation.new_world import new_world, ring_size
from udfs.simulation.service_time import fails, service_time
from udfs.simulation.world import MS, NEVER

FAR = 1 << 60


class SlowEngine:
    """An engine for `group_run` that calls the rules."""

    def __init__(self, plan: GroupPlan) -> None:
        self.plan = plan
        at_once = replace(plan, messages=replace(plan.messages, delay_level=0)) if isinstance(plan.messages, Rates) else plan
        self.world = new_world(at_once)  # the stored messages, and the outcome of each try
        names = [*plan.queues]
        for broker in plan.brokers:
            names += [MessageQueue(RETRY_GROUP_TOPIC_PREFIX + plan.group, broker, one) for one in range(plan.broker.retry_queue_nums)]
        self.names = names
        self.came: list[list[Came]] = [[] for _ in names]
        self.first = [0] * len(names)
        for queue in range(len(plan.queues)):
            self._load(queue)
        if isinstance(plan.messages, Rates) and plan.messages.delay_level:
            self._delay(plan.messages.delay_level)
        self.offsets: dict[int, int] = {number: offset for number, offset in enumerate(plan.committed) if offset >= 0}
        self.clients: list[Client] = []
        self.slots: list[Slot | None] = []
        self.levels: list[list[tuple[int, int, tuple[int, int, int]]]] = [[] for _ in plan.broker.delays]
        self.events: list[tuple[int, int, int, object]] = []
        self.consumed: list[tuple[int, ...]] = []
        self.dead: list[tuple[int, ...]] = []
        self.counts = dict.fromkeys(("pulls", "found", "flow", "delivered", "duplicates", "succeeded", "sent_back", "given_up"), 0)
        self.seen: set[tuple[int, int, int]] = set()
        self.in_tables: set[int] = set()
        self.ask: Ask = lambda slot, locks, now: None

    def _load(self, queue: int) -> None:
        recorded = len(self.world.times) > 0
        self.first[queue] = int(self.world.queues[queue, at.BACKLOG_END]) if recorded else 0
        offset = self.first[queue]
        while (time := int(arrival_time(self.world, queue, offset))) < NEVER:
            body = int(body_size(self.world, queue, offset))
            record = int(record_size(self.world, queue, offset, body))
            self.came[queue].append(Came(time, int(matches(self.world, queue, offset)), body, record, (queue, offset, 0)))
            offset += 1

    def _delay(self, level: int) -> None:
        """Let a delayed message stay in the queue of its level until the broker, which looks at intervals, finds it due."""
        delay = self.plan.broker.delays[min(level, len(self.plan.broker.delays)) - 1]
        line = sorted((one.time, queue, number) for queue, came in enumerate(self.came) for number, one in enumerate(came) if one.time >= 0)
        first, now = 0, FIRST_DELAY_TIME
        while first < len(line):
            there = takewhile(lambda stored: stored <= now * MS, (stored for stored, _, _ in line[first:]))  # noqa: B023 (used at once)
            count = due_messages([stored // MS + delay for stored in there], now, delay)
            for _, queue, number in line[first : first + count]:
                self.came[queue][number] = replace(self.came[queue][number], time=now * MS)
            first, now = first + count, now + DELAY_FOR_A_WHILE

    # called by group_run ------------------------------------------------------------------------------------------------------------

    def add_client(self, now: int) -> int:
        client = Client(len(self.clients))
        if self.plan.broadcasts:
            client.store = LocalFileOffsetStore(file={self.names[queue]: offset for queue, offset in self.offsets.items()})
            client.store.load()
        self.clients.append(client)
        self._push(now + PERSIST_OFFSETS[0] * MS, PERSIST, client.number, client)
        return client.number

    def remove_client(self, client: int) -> None:
        gone = self.clients[client]
        gone.alive = False
        gone.line.clear()
        for slot in gone.slots:
            slot.request.process_queue.dropped = True
            slot.queued = 0
            self.in_tables.discard(slot.number)

    def stall(self, client: int, until: int) -> None:
        self.clients[client].stalled_until = max(until, self.clients[client].stalled_until)

    def take(self, client: int, queue: int, offset: int, told: int | None, now: int) -> int:
        owner = self.clients[client]
        name = self.names[queue]
        number = self._free_slot()
        if isinstance(owner.store, LocalFileOffsetStore):
            assert owner.store.read_from_store(name) == (NOT_FOUND if told is None else told)
        else:
            owner.store.remove_offset(name)
            owner.store.read_from_store(name, NOT_FOUND if told is None else told)
        slot = Slot(number, owner, queue, PullRequest(name, ProcessQueue.new(now // MS), offset), last_pull=now)
        self.slots[number] = slot
        owner.slots.append(slot)
        self.in_tables.add(number)
        self._pull(slot, now)
        return number

    def _free_slot(self) -> int:
        for number, slot in enumerate(self.slots):
            if slot is None or (number not in self.in_tables and slot.dropped and not slot.events and not slot.queued and not slot.working):
                return number
        number = len(self.slots)
        self.slots += [None] * max(8, number)
        return number

    def give_up(self, slot: int) -> None:
        given = self.slots[slot]
        assert given is not None
        if given.dropped:
            return
        self.drop(slot)
        assert isinstance(given.client.store, RemoteBrokerOffsetStore), "who broadcasts keeps its queues"
        offset = given.client.store.persist(given.request.queue)
        if offset is not None:
            self.offsets[given.queue] = offset
        given.client.store.remove_offset(given.request.queue)

    def drop(self, slot: int) -> None:
        self._slot(slot).request.process_queue.dropped = True

    def commit(self, queue: int, offset: int) -> None:
        self.offsets[queue] = offset

    def persist(self, client: int) -> None:
        owner = self.clients[client]
        held = {slot.request.queue: slot.queue for slot in owner.slots if not slot.dropped}
        if isinstance(owner.store, LocalFileOffsetStore):
            owner.store.persist_all(held)
            return
        for name, offset in owner.store.persist_all(held).items():
            self.offsets[held[name]] = offset

    def release(self, slot: int) -> None:
        self.in_tables.discard(slot)

    def has_temp_message(self, slot: int) -> bool:
        return self._slot(slot).request.process_queue.has_temp_message()

    def batch_ends(self, slot: int) -> int:
        return self._slot(slot).ends if self._slot(slot).working > 0 else 0

    def set_lock(self, slot: int, locked: bool, at_time: int) -> None:
        held = self._slot(slot).request.process_queue
        held.locked, held.last_lock_timestamp = locked, at_time // MS

    def lock_one(self, slot: int, locked: bool, now: int) -> None:
        if locked:
            self.set_lock(slot, True, now)
        after = orderly.CONSUME_AFTER_LOCKED if locked else orderly.CONSUME_AFTER_NOT_LOCKED
        self._later(self._slot(slot), CONSUME, now + after * MS)

    def fix_offset(self, slot: int, offset: int, told: int | None, now: int) -> None:
        one = self._slot(slot)
        assert isinstance(one.client.store, RemoteBrokerOffsetStore)
        one.client.store.read_from_store(one.request.queue, NOT_FOUND if told is None else told)
        fix_offset(one.request, offset)
        self._pull(one, now)

    def _slot(self, number: int) -> Slot:
        found = self.slots[number]
        assert found is not None
        return found

    def last_pull(self, slot: int) -> int:
        return self._slot(slot).last_pull

    def committed(self, queue: int) -> int:
        return self.offsets.get(queue, -1)

    def stored(self, client: int, queue: int) -> int:
        store = self.clients[client].store
        assert isinstance(store, LocalFileOffsetStore)
        return store.file.get(self.names[queue], -1)

    def end_offset(self, queue: int, now: int) -> int:
        return self.first[queue] + sum(one.time + self.plan.broker.dispatch <= now for one in self.came[queue])

    def run(self, until: int, tell: Callable[[WrittenRows], None], ask: Ask) -> None:
        self.ask = ask
        while self.events and self.events[0][0] < until:
            now, kind, number, what = heapq.heappop(self.events)
            self._happen(now, kind, number, what)

    # events -------------------------------------------------------------------------------------------------------------------------

    def _push(self, time: int, kind: int, number: int, what: object) -> None:
        heapq.heappush(self.events, (time, kind, number, Unordered(what)))

    def _happen(self, now: int, kind: int, number: int, boxed: object) -> None:
        what = boxed.what  # type: ignore[attr-defined]
        if kind == DELIVER:
            self._look(number, now)
            return
        client = what if isinstance(what, Client) else what.slot.client if isinstance(what, Batch) else what.client
        if kind == ANSWER and what.answered_at != now:
            what.events -= 1
            return
        if client.alive and client.stalled_until > now:
            if kind == ANSWER:
                what.answered_at = client.stalled_until
            self._push(client.stalled_until, kind, number, what)
            return
        if isinstance(what, Slot):
            what.events -= 1
        if kind == WORK_END:
            self._end(what, now)
        elif client.alive:
            if kind == PERSIST:
                self.persist(client.number)
                self._push(now + PERSIST_OFFSETS[1] * MS, PERSIST, number, client)
            elif kind == PULL:
                self._pull(what, now)
            elif kind == ANSWER:
                self._answer(what, now)
            elif kind == CONSUME:
                self._consume(what, now)
            else:
                self.ask(number, kind == LOCK_ONE, now)

    def _later(self, slot: Slot, kind: int, time: int) -> None:
        slot.events += 1
        self._push(time, kind, slot.number, slot)

    def _pull(self, slot: Slot, now: int) -> None:
        slot.answered_at = None
        verdict, delay = pull_message(slot.request, self.plan.consumer, now // MS, orderly=self.plan.orderly)
        if verdict is Pull.DROPPED:
            return
        slot.last_pull = now
        last = slot.request.process_queue.msg_tree_map.last_key()
        slot.put = slot.put if last is None else slot.places[last] + 1  # the next place in the ring of the compiled loop
        if verdict is Pull.FIX_OFFSET:
            self._later(slot, FIX_OFFSET, now)
            return
        if verdict is not Pull.NOW:
            self.counts["flow"] += verdict is not Pull.NOT_LOCKED
            self._later(slot, PULL, now + delay * MS)
            return
        ask = pull_fields(self.plan.consumer, slot.client.store.read_from_memory(slot.request.queue), "*")
        if ask.sys_flag & 1:
            self.offsets[slot.queue] = ask.commit_offset
        slot.asked_at = now + self.plan.broker.network
        self._expect_answer(slot)

    def _expect_answer(self, slot: Slot) -> None:
        slot.as_of = self._woken(slot)
        slot.answered_at = slot.as_of + self.plan.broker.network
        slot.events += 1
        self._push(slot.answered_at, ANSWER, slot.number, slot)

    def _woken(self, slot: Slot) -> int:
        came, offset = self.came[slot.queue], slot.request.next_offset
        if self.end_offset(slot.queue, slot.asked_at) > offset:
            return slot.asked_at
        held = hold.HeldRequest(
            request=None,
            timeout_millis=BROKER_SUSPEND_MAX_TIME_MILLIS * MS,
            suspend_timestamp=slot.asked_at,
            pull_from_this_offset=offset,
            message_filter=Always(),
        )
        times = np.array([one.time + self.plan.broker.dispatch for one in came], np.int64)
        arrivals = hold.Arrivals(times=times, offsets=self.first[slot.queue] + 1 + np.arange(len(came)))
        told = [bool(one.verdict & MATCHES_AT_BROKER) for one in came]
        return hold.woken_at(held, arrivals, told, first_sweep=0, interval=hold.SWEEP_MS * MS, wakes=True)

    def _ask_store(self, slot: Slot) -> tuple[GetMessageStatus, int, int, list[int]]:
        """getMessage as of the moment at which the pull is answered: status, next and max offset, offsets found."""
        end, offset, file = self.end_offset(slot.queue, slot.as_of), slot.request.next_offset, self.plan.broker.entries_a_file
        first = max(offset - offset % file, self.first[slot.queue])
        rows = self.came[slot.queue][first - self.first[slot.queue] : min(end, offset - offset % file + file) - self.first[slot.queue]]
        physic = np.cumsum([0, *(one.record for one in rows)])[:-1].astype(np.int64)
        verdicts = np.array([gm.MATCHES if one.verdict & MATCHES_AT_BROKER else gm.NOT_BY_CONSUME_QUEUE for one in rows], np.uint8)
        sizes = np.array([one.record for one in rows], np.int32)
        block = gm.Block(first, physic, sizes, np.zeros(len(rows), np.int64), verdicts)
        request = np.array([[offset, self.plan.consumer.pull_batch_size, self.first[slot.queue], end, FAR, gm.NO_FILTER]], np.int64)
        count = self.plan.broker.count_in_memory
        rules = [16000, 1, 2**31, 0, 0, 64 * 1024, 1]  # of 4.9.3, from WINDOW_BYTES on
        caps = np.array([self.plan.broker.bytes_in_memory, count, 0, 0, FAR, 0, file, *rules], np.int64)
        log = gm.CommitLogFiles(np.zeros(1, np.int64), np.full(1, 1 << 30, np.int64), 1 << 30)
        answers = gm.get_message(request, caps, block, gm.TagCodes(np.zeros(1, np.int64), np.zeros(0, np.int32)), log)
        answer = answers.columns[0]
        status = GetMessageStatus(int(answer[gm.STATUS]))
        return status, int(answer[gm.NEXT]), end, [first + int(row) for row in answers.taken]

    def _answer(self, slot: Slot, now: int) -> None:
        slot.answered_at = None
        if slot.dropped:
            return
        self.counts["pulls"] += 1
        status, following, end, offsets = self._ask_store(slot)
        code = response_code(status, slot.request.next_offset, BrokerRole.ASYNC_MASTER, False)
        self.counts["found"] += status is GetMessageStatus.FOUND
        found = [(offset, self.came[slot.queue][offset - self.first[slot.queue]]) for offset in offsets]
        messages = [
            MessageExt(offset, one.body, "a" if one.verdict & MATCHES_AT_CLIENT else "b", reconsume_times=one.origin[2])
            for offset, one in found
        ]
        messages = filter_again(messages, tags_set("a"))
        answered = take_answer(slot.request, self.plan.consumer, pull_status(code), following, end, messages)
        if answered.reached is not None:
            slot.client.store.update_offset(slot.request.queue, answered.reached, increase_only=True)
        for message in messages:
            slot.pulled[message.queue_offset] = now
            slot.places[message.queue_offset] = slot.put
            slot.put += 1
        if answered.starts_consumer and self.plan.orderly:
            self._wait_for_thread(slot)
        for batch in [] if self.plan.orderly else concurrently.batches(messages, self.plan.consumer.consume_message_batch_max_size):
            slot.queued += 1
            place = slot.places[batch[0].queue_offset] % ring_size(self.plan)
            slot.client.line.append(Batch(slot, slot.number * ring_size(self.plan) + place, batch))
        assert answered.pull_after is not None
        if answered.pull_after:
            self._later(slot, PULL, now + answered.pull_after * MS)
        else:
            self._pull(slot, now)
        self._start(slot.client, now)

    def _start(self, client: Client, now: int) -> None:
        while client.busy < self.plan.consumer.consume_thread_min and client.line:
            batch = client.line.popleft()
            batch.slot.queued -= 1
            if self.plan.orderly:
                self._turn(batch.slot, now)
            elif not batch.slot.dropped:
                self._begin(batch, now)

    def _begin(self, batch: Batch, now: int) -> None:
        concurrently.begin(batch.messages, now // MS)
        taken, batch.failed, batch.started = 0, False, now
        for message in batch.messages:
            key = (batch.slot.client.number if self.plan.broadcasts else -1, batch.slot.queue, message.queue_offset)
            queue, offset, tries = self._origin(batch.slot, message)
            put_back = self.plan.orderly and message.reconsume_times > tries
            self.counts["duplicates"] += key in self.seen and not put_back
            self.counts["delivered"] += 1
            self.seen.add(key)
            tries = batch.slot.client.number if self.plan.broadcasts else message.reconsume_times
            stream = np.uint64(message_stream(self.plan.seed, queue, offset))
            taken += int(service_time(self.world.cfg, self.world.shares, stream, tries))
            batch.failed |= bool(fails(self.world.shares, stream, tries))
        if batch.failed and not self.plan.orderly and not self.plan.broadcasts:
            taken += 2 * self.plan.broker.network * len(batch.messages)
        batch.slot.client.busy += 1
        batch.slot.working += 1
        batch.slot.ends = now + taken
        self._push(now + taken, WORK_END, batch.place, batch)

    def _origin(self, slot: Slot, message: MessageExt) -> tuple[int, int, int]:
        return self.came[slot.queue][message.queue_offset - self.first[slot.queue]].origin

    def _end(self, batch: Batch, now: int) -> None:
        slot, client = batch.slot, batch.slot.client
        slot.working -= 1
        if not client.alive:
            self._tell(batch, at.LOST, now)
            return
        client.busy -= 1
        if self.plan.orderly:
            self._end_orderly(batch, now)
        elif slot.dropped:
            self._tell(batch, at.TOO_LATE, now)
        else:
            self._tell(batch, at.RECONSUME_LATER if batch.failed else at.SUCCESS, now)
            says = concurrently.ConsumeConcurrentlyStatus
            status = says.RECONSUME_LATER if batch.failed else says.CONSUME_SUCCESS
            self.counts["succeeded"] += 0 if batch.failed else len(batch.messages)
            back = concurrently.to_send_back(batch.messages, status, concurrently.ACK_ALL, self.plan.consumer.message_model)
            self.counts["given_up"] += len(batch.messages) if batch.failed and self.plan.broadcasts else 0
            for message in back:
                self._send_back(self._origin(slot, message), now - self.plan.broker.network)
            offset = concurrently.process_consume_result(slot.request.process_queue, batch.messages, (), now // MS)
            if offset is not None:
                client.store.update_offset(slot.request.queue, offset, increase_only=True)
        self._start(client, now)

    # orderly ------------------------------------------------------------------------------------------------------------------------

    def _consume(self, slot: Slot, now: int) -> None:
        if not slot.dropped:
            self._wait_for_thread(slot)
            self._start(slot.client, now)

    def _wait_for_thread(self, slot: Slot) -> None:
        slot.began = None
        slot.queued += 1
        slot.client.line.append(Batch(slot, slot.number * ring_size(self.plan), ()))

    def _turn(self, slot: Slot, now: int) -> None:
        began = None if slot.began is None else slot.began // MS
        held = slot.request.process_queue
        turn, after = orderly.next_turn(held, self.plan.consumer.message_model, began=began, now=now // MS)
        if turn in (orderly.Turn.LOCK, orderly.Turn.PAUSE):
            self._later(slot, LOCK_ONE if turn is orderly.Turn.LOCK else CONSUME, now + after * MS)
        elif turn is orderly.Turn.TAKE:
            slot.began = now if slot.began is None else slot.began
            messages = held.take_messages(self.plan.consumer.consume_message_batch_max_size, now // MS)
            if messages:
                self._begin(Batch(slot, slot.number * ring_size(self.plan), messages), now)

    def _end_orderly(self, batch: Batch, now: int) -> None:
        slot, says, consumer = batch.slot, orderly.ConsumeOrderlyStatus, self.plan.consumer
        self._tell(batch, at.TOO_LATE if slot.dropped else at.RECONSUME_LATER if batch.failed else at.SUCCESS, now)
        status = says.SUSPEND_CURRENT_QUEUE_A_MOMENT if batch.failed else says.SUCCESS
        self.counts["succeeded"] += 0 if batch.failed or slot.dropped else len(batch.messages)
        sent = orderly.to_send_back(batch.messages, status, consumer.orderly_max_reconsume_times())
        for message in sent:
            queue, offset, _ = self._origin(slot, message)
            self.dead.append((now + self.plan.broker.network, queue, offset, message.reconsume_times + 1))
        result = orderly.process_consume_result(slot.request.process_queue, batch.messages, status, sent, auto_commit=True)
        if result.commit_offset is not None:
            slot.client.store.update_offset(slot.request.queue, result.commit_offset, increase_only=False)
        if result.continues:
            self._turn(slot, now)
        else:
            after = orderly.suspend_millis(UNSET, consumer.suspend_current_queue_time_millis)
            self._later(slot, CONSUME, now + after * MS)

    def _tell(self, batch: Batch, result: int, now: int) -> None:
        slot = batch.slot
        for message in batch.messages:
            offset = message.queue_offset
            queue, first_offset, _ = self._origin(slot, message)
            first = (queue, first_offset, message.reconsume_times)
            times = (slot.pulled[offset], batch.started, now)
            self.consumed.append((slot.queue, offset, *first, slot.client.number, *times, result))

    # messages that come again -------------------------------------------------------------------------------------------------------

    def _send_back(self, origin: tuple[int, int, int], stored: int) -> None:
        queue, offset, tries = origin
        level = retry_level(0, tries, self.plan.consumer.concurrent_max_reconsume_times())
        if level is None:
            self.dead.append((stored, queue, offset, tries + 1))
            return
        self.counts["sent_back"] += 1
        broker = self.plan.brokers.index(self.plan.queues[queue].brokerName)
        nums = self.plan.broker.retry_queue_nums
        into = int(draw(np.uint64(message_stream(self.plan.seed, queue, offset)), tries, RETRY_QUEUE)) % nums
        line = self.levels[min(level, len(self.levels)) - 1]
        line.append((stored, broker * nums + into, (queue, offset, tries + 1)))
        if len(line) == 1:
            self._expect_look(min(level, len(self.levels)) - 1)

    def _due(self, level: int) -> list[int]:
        return [stored // MS + self.plan.broker.delays[level] for stored, _, _ in self.levels[level]]

    def _expect_look(self, level: int) -> None:
        self._push(look_after(0, self._due(level)[0]) * MS, DELIVER, level, None)

    def _look(self, level: int, now: int) -> None:
        count = due_messages(self._due(level), now // MS, self.plan.broker.delays[level])
        for _, into, origin in self.levels[level][:count]:
            body = self.came[origin[0]][origin[1] - self.first[origin[0]]]
            self.came[len(self.plan.queues) + into].append(Came(now, MATCHES_AT_BROKER | MATCHES_AT_CLIENT, body.body, body.record, origin))
        del self.levels[level][:count]
        if self.levels[level]:
            self._expect_look(level)
        if count:
            for slot in self.slots:
                waits = slot and slot.queue >= len(self.plan.queues) and slot.answered_at is not None and not slot.dropped
                if slot and waits and self._woken(slot) < slot.as_of:
                    self._expect_answer(slot)
