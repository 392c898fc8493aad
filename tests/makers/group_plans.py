"""Plans of small simulations, drawn at random: by hypothesis, and by a seed."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from hypothesis import strategies as st

from udfs.broker.message_queue import MessageQueue
from udfs.consumer.allocate import (
    AllocateMessageQueueAveragely,
    AllocateMessageQueueAveragelyByCircle,
    AllocateMessageQueueConsistentHash,
    AllocateMessageQueueStrategy,
)
from udfs.consumer.push_consumer import ConsumeFromWhere, PushConsumer
from udfs.simulation.arrivals import ALL_MATCH, MATCHES_AT_BROKER
from udfs.simulation.group_plan import SECOND, BrokerPlan, ClientPlan, GroupPlan, Listener, Rates, Recorded
from udfs.simulation.service_time import CONSTANT, EXPONENTIAL, LOGNORMAL, UNIFORM

STRATEGIES: tuple[AllocateMessageQueueStrategy, ...] = (
    AllocateMessageQueueAveragely(),
    AllocateMessageQueueAveragelyByCircle(),
    AllocateMessageQueueConsistentHash(),
)


def _client(random: random.Random, number: int, until: int) -> ClientPlan:
    def moment() -> int:
        return random.randrange(until)

    joins = 0 if number == 0 or random.random() < 0.5 else moment()
    ends = random.choice(("", "", "leaves", "crashes")) if number else ""
    stalls = tuple(
        (begin, begin + random.randrange(1, random.choice((20, 100)) * SECOND)) for begin in [joins + moment()] if random.random() < 0.25
    )
    if random.random() < 0.05:
        stalls = ((joins + moment(), until + 130 * SECOND),)
    last = {ends: joins + 1 + moment()} if ends else {}
    return ClientPlan(client_id=f"10.0.0.{number}@1", joins=joins, silent=random.random() < 0.3, stalls=stalls, **last)  # type: ignore[arg-type]


def _recorded(random: random.Random, queues: int, until: int) -> Recorded:
    counts = [random.randrange(60) for _ in range(queues)]
    times = [sorted(random.randrange(-10 * SECOND, until) for _ in range(count)) for count in counts]
    total = sum(counts)
    return Recorded(
        first=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        first_offset=np.array([random.choice((0, 7)) for _ in counts], np.int64),
        times=np.array([time for line in times for time in line], np.int64),
        flags=np.array([random.choice((0, MATCHES_AT_BROKER, ALL_MATCH, ALL_MATCH)) for _ in range(total)], np.uint8),
        sizes=np.array([(120 + size, size) for size in (random.randrange(1, 900) for _ in range(total))], np.int32).reshape(total, 2),
    )


def _rates(random: random.Random, queues: int, until: int) -> Rates:
    rate = random.choice((0.5, 3.0, 20.0))
    return Rates(
        steps=((random.choice((0, SECOND)), rate), (10 * SECOND, rate * random.choice((0.0, 2.0)))),
        ends=random.randrange(11 * SECOND, until),
        shares=(1 / queues,) * queues,
        backlog=tuple(random.choice((0, 3, 90)) for _ in range(queues)),
        even=random.random() < 0.5,
        matching=random.choice((1.0, 1.0, 0.3)),
        body=random.choice(((100, 100), (1, 2000), (400_000, 900_000))),
        delay_level=random.choice((0, 0, 1, 2, 99)),
    )


def random_plan(seed: int, **settings: Any) -> GroupPlan:
    """A plan of a minute or so, with few messages, in which much happens."""
    chance = random.Random(seed)
    until, queues = 60 * SECOND, chance.randrange(1, 5)
    recorded = chance.random() < 0.4
    messages = _recorded(chance, queues, until // 2) if recorded else _rates(chance, queues, until // 2)
    shape = chance.choice((CONSTANT, UNIFORM, EXPONENTIAL, LOGNORMAL))
    time = chance.choice((0.0, 3_000.0, 90_000.0, 700_000.0))
    second = {UNIFORM: time * 3, LOGNORMAL: 0.9}.get(shape, 0.0)
    consumer = PushConsumer(
        consume_thread_min=chance.choice((1, 3, 20)),
        consume_message_batch_max_size=chance.choice((1, 1, 3)),
        pull_batch_size=chance.choice((1, 8, 32, 40)),
        pull_threshold_for_queue=chance.choice((1000, 10, 1)),
        pull_threshold_size_for_queue=chance.choice((100, 1)),
        consume_concurrently_max_span=chance.choice((2000, 12)),
        pull_interval=chance.choice((0, 0, 30)),
        max_reconsume_times=chance.choice((-1, 1, 0)),
        consume_from_where=chance.choice(tuple(ConsumeFromWhere)[:3]),
    )
    first = messages.first_offset.tolist() if isinstance(messages, Recorded) else [0] * queues
    plan = {
        "group": "g",
        "queues": tuple(MessageQueue("t", f"b{number * 2 // queues}", number) for number in range(queues)),
        "committed": tuple(chance.choice((-1, offset, offset)) for offset in first),
        "min_offsets": tuple(first),
        "clients": tuple(_client(chance, number, until) for number in range(chance.randrange(1, 5))),
        "messages": messages,
        "until": until,
        "seed": seed,
        "listener": Listener(shape=shape, first=time, second=second, failing=chance.choice((0.0, 0.2)), poison=chance.choice((0.0, 0.05))),
        "consumer": consumer,
        "broker": BrokerPlan(
            network=chance.choice((0, 200, 30_000)),
            dispatch=chance.choice((0, 1000)),
            retry_queue_nums=chance.choice((1, 2)),
            entries_a_file=chance.choice((300_000, 16)),
            notify=chance.random() < 0.8,
            delays=chance.choice(((1000, 2000, 3000, 4000), BrokerPlan().delays)),
        ),
        "strategy": chance.choice(STRATEGIES),
        "tells": True,
    }
    return GroupPlan(**{**plan, **settings})


SEEDS = st.integers(0, 2**40)
