"""Long polling: which held pulls the broker processes again, and when.

Broker source (4.9.3): PullRequestHoldService (run, checkHoldRequest, notifyMessageArriving), ManyPullRequest, PullRequest;
NotifyMessageArrivingListener; PullMessageProcessor.processRequest, case PULL_NOT_FOUND.
Rules: a pull that may wait is held under its topic and queue. A message that arrives wakes each pull of its queue whose offset is below
the new maxOffset and whose filter matches the message. A sweep every five seconds wakes each pull whose offset is below maxOffset,
whatever its filter. Both also wake the pulls that have waited for their timeout. A woken pull is processed again from the first check on,
and answered whatever the result.
Surprises: the timeout is tested only at an arrival or a sweep, so a wait of 0 ms lasts until the next sweep. Without long polling arrivals
wake no pull; the sweep comes every shortPollingTimeMills, which is also every pull's timeout. The filter is the one at the time of
holding. If it throws, all pulls held for the queue are lost. A queue of a topic with `@` in its name is never swept.

`notify_message_arriving` is the rule for one moment of one queue. `woken_at` calculates from all arrivals when one pull is woken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from udfs.filters.message_filter import EntryUnit, RetryTopicMissingError

SWEEP_MS: Final = 5000
TOPIC_QUEUEID_SEPARATOR: Final = "@"
NEVER: Final = 2**63 - 1

RequestT = TypeVar("RequestT")


class HeldFilter(Protocol):
    """The filter of a held pull, as a wake-up uses it."""

    def is_matched_by_consume_queue(self, tags_code: int | None, ext_unit: EntryUnit | None) -> bool:
        """Return whether an entry matches by its tag or by the bit map of its ext unit."""

    def is_matched_by_commit_log(self, properties: Mapping[str, str] | None) -> bool:
        """Return whether a message matches by its properties."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRequest(Generic[RequestT]):
    """A held pull.

    Attributes:
        request: the pull request to process again.
        timeout_millis: how long the pull may wait, ms, from `polling_time`.
        suspend_timestamp: when the pull was held, ms.
        pull_from_this_offset: the pull's queue offset.
        message_filter: the pull's filter when it was held.
    """

    request: RequestT
    timeout_millis: int
    suspend_timestamp: int
    pull_from_this_offset: int
    message_filter: HeldFilter


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A dispatched message: its unit in the consume queue extension, and its properties (None if it has none)."""

    tags_code: int
    msg_store_time: int
    bit_map: bytes | None = None
    properties: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Notified(Generic[RequestT]):
    """Held pulls after an arrival or a sweep: the woken ones and those still held, in their order. The others are lost."""

    woken: tuple[HeldRequest[RequestT], ...]
    held: tuple[HeldRequest[RequestT], ...]


def polling_time(suspend_timeout_millis: int, *, long_polling_enable: bool, short_polling_time_mills: int) -> int:
    """Return how long a held pull may wait, ms."""
    return suspend_timeout_millis if long_polling_enable else short_polling_time_mills


def sweep_interval(*, long_polling_enable: bool, short_polling_time_mills: int) -> int:
    """Return the time between the end of one sweep and the next, ms; the settings are read when the sweep ends."""
    return SWEEP_MS if long_polling_enable else short_polling_time_mills


def is_swept(topic: str, *, enable_lmq: bool = False) -> bool:
    """Return whether sweeps reach the queues of a topic.

    A topic with `@` breaks the sweep's split of `topic@queueId`; not that of a broker with enableLmq (LmqPullRequestHoldService).
    """
    return bool(topic) and (enable_lmq or TOPIC_QUEUEID_SEPARATOR not in topic)


def notify_message_arriving(
    held: Iterable[HeldRequest[RequestT]],
    max_offset: int,
    now: int,
    *,
    arrival: Arrival | None = None,
    newest_offset: Callable[[], int] | None = None,
) -> Notified[RequestT]:
    """Return which pulls held for one queue wake, and which stay, at the arrival of a message or at a sweep.

    Args:
        held: the pulls held for the queue, in the order in which they came.
        max_offset: one past the queue offset of the message; for a sweep the queue's maxOffset.
        now: the broker's time, ms.
        arrival: the message; None for a sweep.
        newest_offset: returns the queue's maxOffset, for a pull whose offset is not below `max_offset`; None if that is `max_offset` too.
    """
    woken: list[HeldRequest[RequestT]] = []
    kept: list[HeldRequest[RequestT]] = []
    for one in held:
        newest = max_offset
        if newest <= one.pull_from_this_offset and newest_offset is not None:
            newest = newest_offset()
        try:
            wakes = newest > one.pull_from_this_offset and _matches(one.message_filter, arrival)
        except RetryTopicMissingError:
            return Notified(tuple(woken), ())
        timed_out = now >= one.suspend_timestamp + one.timeout_millis
        (woken if wakes or timed_out else kept).append(one)
    return Notified(tuple(woken), tuple(kept))


@dataclass(frozen=True, slots=True)
class _Unit:
    """The CqExtUnit of an arrived message."""

    msg_store_time: int
    bit_map: bytes | None


def _matches(message_filter: HeldFilter, arrival: Arrival | None) -> bool:
    if arrival is None:
        return message_filter.is_matched_by_consume_queue(None, _Unit(0, None))
    unit = _Unit(arrival.msg_store_time, arrival.bit_map)
    if not message_filter.is_matched_by_consume_queue(arrival.tags_code, unit):
        return False
    return arrival.properties is None or message_filter.is_matched_by_commit_log(arrival.properties)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """The messages that arrive at one queue, in order; each array has one element a message.

    Attributes:
        times: when each message is dispatched, ms, ascending.
        offsets: one past the queue offset of each message, ascending.
    """

    times: NDArray[np.int64]
    offsets: NDArray[np.int64]


def woken_at(
    pull: HeldRequest[RequestT],
    arrivals: Arrivals,
    matches: Sequence[bool] | NDArray[np.bool_],
    *,
    first_sweep: int,
    interval: int,
    wakes: bool,
) -> int:
    """Return when a held pull is woken, ms, from all arrivals at its queue; NEVER if no arrival and no sweep wakes it.

    Args:
        pull: a pull held at its `suspend_timestamp`; arrivals up to that time came before it.
        arrivals: all arrivals at the pull's queue.
        matches: whether the pull's filter matches each arrival.
        first_sweep: the time of any one sweep, ms.
        interval: time between sweeps, ms, from `sweep_interval`; 0 if the queue is never swept (`is_swept`).
        wakes: whether arrivals wake pulls: long polling is on, and the broker is not a slave.
    """
    began = int(np.searchsorted(arrivals.times, pull.suspend_timestamp, side="right"))
    times, passed = arrivals.times[began:], arrivals.offsets[began:] > pull.pull_from_this_offset
    patience = pull.suspend_timestamp + pull.timeout_millis
    moments = []
    if wakes:
        told = times[passed & np.asarray(matches, np.bool_)[began:] | (times >= patience)]
        moments += told[:1].tolist()
    if interval > 0:
        since = [patience, *times[passed][:1].tolist()]
        if began > 0 and arrivals.offsets[began - 1] > pull.pull_from_this_offset:  # held for a queue file that is missing
            since.append(pull.suspend_timestamp)
        moments.append(_next_sweep(max(min(since), pull.suspend_timestamp), first_sweep, interval))
    return min(moments, default=NEVER)


def _next_sweep(time: int, first_sweep: int, interval: int) -> int:
    """Return the time of the first sweep at or after a time."""
    return time + (first_sweep - time) % interval
