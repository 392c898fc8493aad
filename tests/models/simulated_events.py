"""A simulated run from outside: its plan, and the events that it reported. Nothing here looks into the simulation."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.makers.group_plans import random_plan
from udfs.broker.message_queue import MessageQueue
from udfs.consumer.push_consumer import ConsumeFromWhere, MessageModel
from udfs.simulation.arrivals import ALL_MATCH
from udfs.simulation.group_engine import WrittenRows
from udfs.simulation.group_plan import SECOND, ClientPlan, GroupPlan, Rates, Recorded
from udfs.simulation.lag_sample import BROKER_OFFSET, CONSUMER_OFFSET
from udfs.simulation.outcome import Outcome, simulate

FAR = 1 << 62


class Row(NamedTuple):
    """A message that a listener got: a row of `consumption`."""

    queue: int
    offset: int
    first_queue: int
    first_offset: int
    tries: int
    client: int
    pulled: int
    started: int
    ended: int
    result: int

    @property
    def origin(self) -> tuple[int, int]:
        return self.first_queue, self.first_offset


class Dead(NamedTuple):
    """A dead letter."""

    time: int
    queue: int
    offset: int
    tries: int


@dataclass(frozen=True)
class Hold:
    """The time [begins, ends) in which a client has a queue; `dropped` if it ended because the client gave the queue up."""

    begins: int
    ends: int = FAR
    dropped: bool = False


class Sent(NamedTuple):
    """The messages of a queue: the offset of the first, whether the group wants each, and when each was stored if that is known."""

    first: int
    wanted: NDArray[np.bool_]
    stored: NDArray[np.int64] | None


@dataclass(frozen=True)
class Events:
    """The plan, the outcome and the reported events of a run."""

    plan: GroupPlan
    outcome: Outcome
    rows: tuple[Row, ...]
    dead: tuple[Dead, ...]

    @cached_property
    def clients(self) -> list[ClientPlan]:
        """The clients that joined, in this order; rows name a client by its place in it."""
        return sorted((one for one in self.plan.clients if one.joins <= self.outcome.stopped_at), key=lambda one: one.joins)

    def end_of(self, client: int) -> int:
        """When a client left or died; FAR if it stayed."""
        plan = self.clients[client]
        return next((time for time in (plan.leaves, plan.crashes) if time is not None), FAR)

    @cached_property
    def sent(self) -> list[Sent]:
        """The messages of each queue of the topic."""
        messages = self.plan.messages
        if isinstance(messages, Recorded):
            cuts = list(zip(messages.first[:-1].tolist(), messages.first[1:].tolist(), messages.first_offset.tolist(), strict=True))
            return [Sent(first, messages.flags[a:b] == ALL_MATCH, messages.times[a:b]) for a, b, first in cuts]
        assert messages.matching == 1.0, "which messages of a rate the group wants only the simulation knows"
        ends = self.outcome.lag[-1, : len(self.plan.queues), BROKER_OFFSET]
        return [Sent(0, np.ones(end, np.bool_), None) for end in ends.tolist()]

    def wants(self, queue: int, offset: int) -> bool:
        """Whether a message exists and the group wants it."""
        at = offset - self.sent[queue].first
        return 0 <= at < len(self.sent[queue].wanted) and bool(self.sent[queue].wanted[at])

    @cached_property
    def queues(self) -> dict[MessageQueue, int]:
        """The numbers of queues: those of the topic, then those of the retry topic, broker by broker."""
        plan, of_a_broker = self.plan, range(self.plan.broker.retry_queue_nums)
        retry = [MessageQueue(f"%RETRY%{plan.group}", broker, one) for broker in plan.brokers for one in of_a_broker]
        return {queue: number for number, queue in enumerate([*plan.queues, *retry])}

    @cached_property
    def holds(self) -> dict[tuple[int, int], list[Hold]]:
        """The holds of each client on each queue, taken from the rebalances."""
        numbers = {client.client_id: number for number, client in enumerate(self.clients)}
        found: dict[tuple[int, int], list[Hold]] = defaultdict(list)
        for event in self.outcome.rebalances:
            for queue in event.dropped:
                held = found[numbers[event.client_id], self.queues[queue]]
                held[-1] = replace(held[-1], ends=event.time, dropped=True)
            for queue in event.taken:
                key = numbers[event.client_id], self.queues[queue]
                found[key].append(Hold(event.time, self.end_of(key[0])))
        return found

    def hold_of(self, row: Row) -> Hold | None:
        """The hold in which the listener got a message."""
        held = self.holds.get((row.client, row.queue), [])
        at = bisect_right([one.begins for one in held], row.started) - 1
        return held[at] if at >= 0 and row.started < held[at].ends else None

    @cached_property
    def by_hold(self) -> dict[tuple[int, int, Hold], list[Row]]:
        """The rows of each hold, by offset and try."""
        found = defaultdict(list)
        for row in self.rows:
            if hold := self.hold_of(row):
                found[row.client, row.queue, hold].append(row)
        return {key: sorted(rows, key=lambda row: (row.offset, row.tries)) for key, rows in found.items()}

    @cached_property
    def most_tries(self) -> int:
        """The number of failed tries after which a message is given up."""
        consumer = self.plan.consumer
        return consumer.orderly_max_reconsume_times() if self.plan.orderly else consumer.concurrent_max_reconsume_times()

    def begin_of(self, queue: int) -> int | None:
        """The offset from which on a group that shares its messages gets all of them; None if that depends on when clients join."""
        if queue >= len(self.plan.queues):
            return 0
        least, committed = self.plan.min_offsets[queue], self.plan.committed[queue]
        if committed >= 0 or least == 0 or self.plan.consumer.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
            return max(committed, least)
        told = self.outcome.lag[:, queue, CONSUMER_OFFSET]
        first = int(np.argmax(told >= 0))
        holders = [hold for (_, held), holds in self.holds.items() if held == queue for hold in holds]
        alone = sum(hold.begins <= self.outcome.times[first] for hold in holders) == 1
        return int(told[first]) if told[first] >= 0 and alone else None


def run_of(plan: GroupPlan) -> Events:
    """Run a plan; returns the run with all its events."""
    rows: list[Row] = []
    dead: list[Dead] = []

    def tell(told: WrittenRows) -> None:
        rows.extend(Row(*row) for row in told.consumed.tolist())
        dead.extend(Dead(*row) for row in told.dead.tolist())

    return Events(plan, simulate(plan, tell), tuple(rows), tuple(dead))


def finite_plan(seed: int) -> GroupPlan:
    """A small plan that ends, in which clients come, go, die and stand still. Its messages are known without the simulation."""
    chance = random.Random(f"finite {seed}")
    kind = chance.choice(("concurrent", "concurrent", "orderly", "broadcast"))
    plan = random_plan(seed, until=10 * 3600 * SECOND, orderly=kind == "orderly")
    short = max(plan.broker.delays) < 10_000
    # not a multiple of any period in the simulation
    sample = chance.choice((97_003, 499_979, 5_000_011)) if short or kind != "concurrent" else 19_999_999
    consumer = plan.consumer
    if kind == "broadcast":
        consumer = replace(consumer, message_model=MessageModel.BROADCASTING)
    elif kind == "orderly":
        consumer = replace(consumer, max_reconsume_times=chance.randrange(4))
    messages = replace(plan.messages, matching=1.0) if isinstance(plan.messages, Rates) else plan.messages
    return replace(plan, consumer=consumer, messages=messages, sample=sample)


def sent_at_rates(messages: Rates) -> Sequence[float]:
    """The number of messages that come into each queue; the average if they come at random."""
    begins = [begin for begin, _ in messages.steps] + [messages.ends]
    total = sum(rate * max(min(end, messages.ends) - begin, 0) for (begin, rate), end in zip(messages.steps, begins[1:], strict=True))
    return [backlog + total * share / SECOND for backlog, share in zip(messages.backlog, messages.shares, strict=True)]
