"""The arrays of a simulation before its first event."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from udfs.broker.send_message import retry_level
from udfs.consumer.consume_orderly import suspend_millis
from udfs.consumer.pull_message import BROKER_SUSPEND_MAX_TIME_MILLIS, PULL_TIME_DELAY_MILLS_WHEN_FLOW_CONTROL
from udfs.consumer.push_consumer import PERSIST_OFFSETS, UNSET
from udfs.pull.pull_request_hold import SWEEP_MS
from udfs.simulation import world as at
from udfs.simulation.group_plan import SECOND, GroupPlan, Rates, Recorded
from udfs.simulation.world import MS, NONE, World

_MOST_BUCKETS = 4_000_000
_FIRST_ROWS = 1024
_TOLD_ROWS = 1 << 16


def new_world(plan: GroupPlan) -> World:
    """Return the arrays of a plan before its first event, without clients and slots."""
    retry_queues = plan.broker.retry_queue_nums * len(plan.brokers)
    messages = plan.messages
    bucket = _bucket(plan)
    cfg, shares = _settings(plan, bucket)
    recorded = isinstance(messages, Recorded)
    cum = np.zeros((len(plan.queues), 2), np.int64) if recorded else arrival_counts(messages, plan.seed, bucket)  # type: ignore[arg-type]
    levels = np.full((len(plan.broker.delays), at.LEVEL_COLUMNS), NONE, np.int64)
    counters = np.zeros(at.COUNTERS, np.int64)
    counters[at.ASKING] = NONE
    told = _TOLD_ROWS if plan.tells else plan.consumer.consume_message_batch_max_size
    return World(
        heap=np.zeros((_FIRST_ROWS, 2), np.int64),
        slots=np.zeros((0, at.SLOT_COLUMNS), np.int64),
        clients=np.zeros((0, at.CLIENT_COLUMNS), np.int64),
        queues=_queues(plan, cum, retry_queues),
        ring=np.zeros((0, at.RING_COLUMNS), np.int64),
        cum=cum,
        times=messages.times if isinstance(messages, Recorded) else np.zeros(0, np.int64),
        flags=messages.flags if isinstance(messages, Recorded) else np.zeros(0, np.uint8),
        sizes=messages.sizes if isinstance(messages, Recorded) else np.zeros((0, 2), np.int32),
        skipped=np.zeros((0, at.SKIPPED_COLUMNS), np.int64),
        retries=np.zeros((retry_queues, _FIRST_ROWS, at.RETRY_COLUMNS), np.int64),
        pending=free_rows(0, _FIRST_ROWS),
        local=np.zeros((0, len(plan.queues), at.LOCAL_COLUMNS), np.int64),
        levels=levels,
        level_of_try=_levels(plan),
        delays=np.array(plan.broker.delays, np.int64),
        counters=counters,
        consumed=np.zeros((told, at.CONSUMED_COLUMNS), np.int64),
        dead=np.zeros((told, at.DEAD_COLUMNS), np.int64),
        cfg=cfg,
        shares=shares,
    )


def free_rows(first: int, count: int) -> NDArray[np.int64]:
    """Return free rows of `pending`; each names the next free row."""
    rows = np.zeros((count, at.PENDING_COLUMNS), np.int64)
    rows[:, at.PENDING_NEXT] = np.arange(first + 1, first + count + 1)
    return rows


def _bucket(plan: GroupPlan) -> int:
    """Return the microseconds of a bucket of arrivals: a second, or more to keep the table small."""
    seconds = max(1, -(-plan.until // SECOND))
    return SECOND * max(1, -(-seconds * len(plan.queues) // _MOST_BUCKETS))


def arrival_counts(messages: Rates, seed: int, bucket: int) -> NDArray[np.int64]:
    """Return an array (queues, buckets + 1): the number of messages that come before each bucket of time."""
    buckets = max(1, -(-messages.ends // bucket))
    edges = np.arange(buckets + 1, dtype=np.float64) * bucket
    begins = np.array([begin for begin, _ in messages.steps] + [messages.ends], np.float64)
    rates = np.array([rate for _, rate in messages.steps])
    reached = np.concatenate(([0.0], np.cumsum(rates * np.diff(begins)) / SECOND))
    expected = np.interp(edges, begins, reached, left=0.0)
    cum = np.zeros((len(messages.shares), buckets + 1), np.int64)
    for queue, share in enumerate(messages.shares):
        if messages.even:
            cum[queue] = np.floor(expected * share + 1e-9)
        else:
            random = np.random.Generator(np.random.Philox(key=[seed, queue]))
            cum[queue, 1:] = np.cumsum(random.poisson(np.diff(expected) * share))
    return cum


def _queues(plan: GroupPlan, cum: NDArray[np.int64], retry_queues: int) -> NDArray[np.int64]:
    count, messages = len(plan.queues), plan.messages
    rows = np.zeros((count + retry_queues, at.QUEUE_COLUMNS), np.int64)
    rows[:, at.COMMITTED] = rows[:, at.FIRST_SKIPPED] = NONE
    rows[:count, at.COMMITTED] = plan.committed
    rows[:count, at.POSITION] = np.maximum(plan.committed, 0)
    if isinstance(messages, Recorded):
        rows[:count, at.BACKLOG_END] = messages.first_offset
        rows[:count, at.COMING] = np.diff(messages.first)
        rows[:count, at.FIRST_TIME] = messages.first[:-1]
    else:
        rows[:count, at.BACKLOG_END] = messages.backlog
        rows[:count, at.COMING] = cum[:, -1]
    of_broker = {broker: number * plan.broker.retry_queue_nums for number, broker in enumerate(plan.brokers)}
    rows[:count, at.RETRY_BASE] = [of_broker[queue.brokerName] for queue in plan.queues]
    return rows


def _levels(plan: GroupPlan) -> NDArray[np.int64]:
    """Return the delay level after each try; CommitLog replaces a level above the last one by the last one."""
    most = plan.consumer.concurrent_max_reconsume_times()
    levels = [retry_level(0, tries, most) for tries in range(most + 1)]
    last = len(plan.broker.delays)
    return np.array([NONE if level is None else min(level, last) for level in levels], np.int64)


def _delay(plan: GroupPlan) -> int:
    """Return the delay of the messages' level in ms; CommitLog replaces a level above the last one by the last one."""
    level = plan.messages.delay_level if isinstance(plan.messages, Rates) else 0
    return plan.broker.delays[min(level, len(plan.broker.delays)) - 1] if level else NONE


def ring_size(plan: GroupPlan) -> int:
    """Return how many messages a client can hold of a queue: the limit that stops pulls, and one more pull."""
    consumer = plan.consumer
    # a consumed message keeps its place in the ring until all messages before it are consumed
    most = max(consumer.pull_threshold_for_queue, consumer.consume_concurrently_max_span)
    least = most + 2 + min(consumer.pull_batch_size, plan.broker.count_in_memory)
    return 1 << max(least - 1, 1).bit_length()  # a power of two


def _settings(plan: GroupPlan, bucket: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    consumer, broker, messages = plan.consumer, plan.broker, plan.messages
    body = messages.body if isinstance(messages, Rates) else (0, 0)
    values = {
        at.QUEUES: len(plan.queues),
        at.RETRY_QUEUES: broker.retry_queue_nums * len(plan.brokers),
        at.RETRY_NUMS: broker.retry_queue_nums,
        at.ORDERLY: plan.orderly,
        at.MOST_TRIES: consumer.orderly_max_reconsume_times(),
        at.SUSPENDED: suspend_millis(UNSET, consumer.suspend_current_queue_time_millis) * MS,
        at.BROADCAST: plan.broadcasts,
        at.DELAY: _delay(plan),
        at.EXCEPTION_DELAY: consumer.pull_time_delay_mills_when_exception * MS,
        at.NETWORK: broker.network,
        at.DISPATCH: broker.dispatch,
        at.PULL_BATCH: consumer.pull_batch_size,
        at.CONSUME_BATCH: consumer.consume_message_batch_max_size,
        at.MOST_MESSAGES: consumer.pull_threshold_for_queue,
        at.MOST_MIB: consumer.pull_threshold_size_for_queue,
        at.MOST_SPAN: consumer.consume_concurrently_max_span,
        at.PULL_INTERVAL: consumer.pull_interval * MS,
        at.FLOW_DELAY: PULL_TIME_DELAY_MILLS_WHEN_FLOW_CONTROL * MS,
        at.SUSPEND: BROKER_SUSPEND_MAX_TIME_MILLIS * MS,
        at.SWEEP: SWEEP_MS * MS,
        at.PERSIST: PERSIST_OFFSETS[1] * MS,
        at.RING: ring_size(plan),
        at.BYTES_MEMORY: broker.bytes_in_memory,
        at.COUNT_MEMORY: broker.count_in_memory,
        at.ENTRIES_A_FILE: broker.entries_a_file,
        at.BUCKET: bucket,
        at.BODY_LEAST: body[0],
        at.BODY_MOST: body[1],
        at.OVERHEAD: messages.overhead if isinstance(messages, Rates) else 0,
        at.SEED: plan.seed,
        at.SERVICE: plan.listener.shape,
        at.TELLS: plan.tells,
    }
    listener = plan.listener
    matching = messages.matching if isinstance(messages, Rates) else 1.0
    shares = np.array([matching, listener.failing, listener.poison, listener.first, listener.second], np.float64)
    return np.array([values[position] for position in range(at.SETTINGS)], np.int64), shares
