"""Append the messages of a simulated run to a store, in the order of time.

Broker source (4.9.3): SendMessageProcessor, EndTransactionProcessor, TransactionalMessageBridge, ScheduleMessageService; the rules are
those of `udfs.broker.send_message`, `udfs.broker.transactional_message` and `udfs.broker.schedule_delivery`.
Rules: producers send at the plan's rates, plain, delayed or in transactions. A message that a listener failed on is sent back, waits in
the queue of its delay level, and is delivered to the retry topic, or goes to the dead letters. Half messages, half messages that a check
puts back, op messages and discarded half messages are stored in the broker's own topics.
Surprise: each try of a message, and each check that puts a half message back, is a record of its own in the log.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from store_format.log.put_message import PROPERTY_DELAY, SCHEDULE_TOPIC, InnerMessage
from store_format.made.made_values import unit
from store_format.record.message import Host, Message
from udfs.broker import send_message as sending
from udfs.broker import transactional_message as transactional
from udfs.broker.schedule_delivery import look_after
from udfs.broker.topic_config import AUTO_CREATE_TOPIC_KEY_TOPIC
from udfs.filters.message_filter import RETRY_GROUP_TOPIC_PREFIX
from udfs.simulation.arrivals import ALL_MATCH
from udfs.simulation.draws import TAG, draw, message_stream
from udfs.simulation.group_plan import PRODUCER_GROUP, GroupPlan, Rates, Transactions
from udfs.simulation.half_messages import BODY, FLAGS, IS_COMMITTED, OFFSET, QUEUE, STORED, half_messages
from udfs.simulation.transactions import TransactionRun, transaction_runs
from udfs.simulation.world import BEFORE, MS

_KEYS: Final = "KEYS"


class _Kind(IntEnum):
    """The kinds of events, in their order at one moment."""

    DELIVER = 0
    SEND = 1
    END = 2
    CHECK = 3
    SEND_BACK = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A run that has ended at `at` (microseconds); its messages come at rates, to the queues of one broker.

    `sent_back` has (when the broker received it, queue, offset) of each message that was sent back, in order.
    """

    plan: GroupPlan
    at: int
    sent_back: Sequence[tuple[int, int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Facts that a stored message needs and a simulation does not have.

    Attributes:
        sender: the broker's processor of sent messages, with its topics and groups.
        begins: start of virtual time, ms since 1970.
        producer: address of the producers and of the clients.
        store_host: address of the broker.
        wanted, unwanted: tags of messages that match and do not match the group's filter, with their weights.
    """

    sender: sending.SendMessageProcessor
    begins: int
    producer: Host
    store_host: Host
    wanted: Sequence[tuple[str, float]] = ()
    unwanted: Sequence[tuple[str, float]] = ()


# stores a message at a time (ms since 1970) and returns it with its offsets
Put = Callable[[InnerMessage, int], Message]
# time, kind, number among the events of this kind, action
_Event = tuple[int, _Kind, int, Callable[[int], None]]


@dataclass(slots=True)
class Appending:
    """A run whose messages are appended to a store; `delivered` counts delivered messages by delay level, from 1."""

    ended: Ended
    around: Surroundings
    put: Put
    delivered: Counter[int] = field(default_factory=Counter)
    transactions: TransactionRun | None = None
    _events: list[_Event] = field(default_factory=list)
    _there: dict[tuple[str, int, int], Message] = field(default_factory=dict)
    _halves: list[Message] = field(default_factory=list)
    _waiting: int = 0

    def append_all(self) -> None:
        """Append all messages of the run up to its end."""
        plan = self.ended.plan
        assert isinstance(plan.messages, Rates)
        at_once = replace(plan, messages=replace(plan.messages, delay_level=0), transactions=None)
        rows = half_messages(at_once, plan.transactions or Transactions(commits=1.0))
        if plan.transactions:
            (self.transactions,) = transaction_runs(replace(plan, until=self.ended.at), plan.transactions, rows)
        self._events = sorted(self._known(rows), key=lambda event: event[:3])
        while self._events and self._events[0][0] <= self.ended.at:
            time, _, _, happen = heapq.heappop(self._events)
            happen(time)

    def _known(self, rows: NDArray[np.int64]) -> Iterator[_Event]:
        """Yield the events that are known at the start."""
        times = np.where(rows[:, STORED] == BEFORE, 0, rows[:, STORED])
        for number, at in enumerate(np.lexsort((rows[:, OFFSET], rows[:, QUEUE], rows[:, STORED])).tolist()):
            yield int(times[at]), _Kind.SEND, number, partial(self._send, rows[at])
        for number, (time, queue, offset) in enumerate(self.ended.sent_back):
            yield time, _Kind.SEND_BACK, number, partial(self._send_back, queue, offset)
        if self.transactions:
            for number, (time, half_offset) in enumerate(self.transactions.op_queue):
                yield time, _Kind.END, number, partial(self._end, half_offset)
            yield from self._checks(self.transactions)

    def _checks(self, run: TransactionRun) -> Iterator[_Event]:
        """Yield an event for each half message that a check puts back or discards."""
        stood: dict[int, int] = {}
        for offset, (transaction, time, changed) in enumerate(run.half_queue):
            if transaction in stood:
                yield time, _Kind.CHECK, stood[transaction], partial(self._put_back, stood[transaction], changed)
            stood[transaction] = offset
        for time, offset in run.discards:
            yield time, _Kind.CHECK, offset, partial(self._give_up, offset)

    def _clock(self, time: int) -> int:
        return self.around.begins + time // MS

    def _store(self, inner: InnerMessage, time: int) -> Message:
        """Store a message; add the delivery of a delayed one to the events."""
        stored = self.put(inner, self._clock(time))
        topic = stored.topic.decode()
        if topic == SCHEDULE_TOPIC:
            due = look_after(0, time // MS + self.ended.plan.broker.delays[stored.queue_id]) * MS
            self._waiting += 1
            event: _Event = due, _Kind.DELIVER, (stored.queue_id << 48) + self._waiting, partial(self._deliver, stored)
            heapq.heappush(self._events, event)
        else:
            self._there[topic, stored.queue_id, stored.queue_offset] = stored
        return stored

    def _send(self, row: NDArray[np.int64], time: int) -> None:
        request = sending.SendMessageRequest(
            message=self._sent(row, time),
            default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
            default_topic_queue_nums=len(self.ended.plan.queues),
            max_reconsume_times=None,
        )
        inner = self.around.sender.accept(request)
        if transactional.is_prepared(inner.properties):
            self._halves.append(self._store(transactional.half_message(inner), time))
        else:
            self._store(inner, time)

    def _sent(self, row: NDArray[np.int64], time: int) -> InnerMessage:
        """Return the message that a producer sends."""
        plan = self.ended.plan
        assert isinstance(plan.messages, Rates)
        number, offset, size = int(row[QUEUE]), int(row[OFFSET]), int(row[BODY])
        queue, key = plan.queues[number], f"{number}-{offset}"
        properties = {_KEYS: key, sending.PROPERTY_WAIT_STORE_MSG_OK: "true"}
        if tag := self._tag(row):
            properties[transactional.PROPERTY_TAGS] = tag
        if row[STORED] > BEFORE and plan.messages.delay_level:
            properties[PROPERTY_DELAY] = str(plan.messages.delay_level)
        if row[STORED] > BEFORE and plan.transactions:
            properties |= {transactional.PROPERTY_TRANSACTION_PREPARED: "true", transactional.PROPERTY_PRODUCER_GROUP: PRODUCER_GROUP}
        text = f"{key} ".encode()
        return InnerMessage(
            topic=plan.topic,
            queue_id=int(queue.queueId),
            body=(text * (size // len(text) + 1))[:size],
            born_host=self.around.producer,
            store_host=self.around.store_host,
            born_timestamp=self._clock(time - plan.broker.network),
            properties=properties,
        )

    def _tag(self, row: NDArray[np.int64]) -> str:
        """Return the tag of a message, "" for none."""
        shares = self.around.wanted if row[FLAGS] == ALL_MATCH else self.around.unwanted
        if not shares:
            return ""
        stream = np.uint64(message_stream(self.ended.plan.seed, int(row[QUEUE]), int(row[OFFSET])))
        reached = np.cumsum([weight for _, weight in shares])
        wanted = unit(np.uint64(draw(stream, 0, TAG))) * reached[-1]
        return shares[int(np.searchsorted(reached, wanted, side="right"))][0]

    def _end(self, half_offset: int, time: int) -> None:
        """Store the messages of an END_TRANSACTION for a half message."""
        assert self.transactions
        half, (transaction, _, _) = self._halves[half_offset], self.transactions.half_queue[half_offset]
        if self.transactions.rows[transaction, IS_COMMITTED]:
            self._store(transactional.committed_message(half), time)
        self._store(transactional.op_message(half, self.around.store_host, self._clock(time)), time)

    def _put_back(self, half_offset: int, changed: Mapping[str, str], time: int) -> None:
        half = self._halves[half_offset]
        self._halves.append(self._store(transactional.renewed_half_message(half, {**half.properties_map(), **changed}), time))

    def _give_up(self, half_offset: int, time: int) -> None:
        half = self._halves[half_offset]
        self._store(transactional.discarded_half_message(half, half.properties_map()), time)

    def _deliver(self, delayed: Message, time: int) -> None:
        self.delivered[delayed.queue_id + 1] += 1
        due = sending.message_timeup(delayed)
        assert due is not None  # no message of a transaction is delayed
        self._store(due, time)

    def _send_back(self, queue: int, offset: int, time: int) -> None:
        plan = self.ended.plan
        name = RETRY_GROUP_TOPIC_PREFIX + plan.group
        topic, queue_id = (plan.topic, int(plan.queues[queue].queueId)) if queue < len(plan.queues) else (name, queue - len(plan.queues))
        most = plan.consumer.concurrent_max_reconsume_times()
        request = sending.SendBackRequest(group=plan.group, delay_level=0, max_reconsume_times=most, version=sending.V3_4_9)
        inner = sending.send_back(self.around.sender, request, self._there[topic, queue_id, offset])
        assert inner is not None, "a group has a retry queue"
        self._store(inner, time)
