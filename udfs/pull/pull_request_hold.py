"""Long polling: which held pulls are asked again, and when.

Broker source (4.9.3): PullRequestHoldService (run, checkHoldRequest, notifyMessageArriving), ManyPullRequest, PullRequest;
NotifyMessageArrivingListener; PullMessageProcessor.processRequest, case PULL_NOT_FOUND.
Rules: a pull that may wait is held under its topic and queue. The message that arrives wakes those whose offset it passed and whose filter
matches it; a sweep every five seconds wakes those whose offset was passed, whatever their filter. Both let go of those that waited long
enough. Who is woken is asked again from the first check on, and answered whatever comes out.
Surprises: the time a pull is ready to wait is looked at only then, so a wait of 0 ms lasts until the next sweep. Without long polling
arrivals wake nobody, the sweep comes every shortPollingTimeMills, and that is how long every pull waits. The filter is the one at the
time of holding. Where it throws, all pulls held for the queue are lost. A queue of a topic with `@` in its name is never swept.

`notify_message_arriving` is the rule, for one moment of one queue; `woken_at` says from all arrivals at once when a pull is woken.
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

Asked = TypeVar("Asked")


class HeldFilter(Protocol):
    """What is asked of the filter of a held pull."""

    def is_matched_by_consume_queue(self, tags_code: int | None, ext_unit: EntryUnit | None) -> bool:
        """By tag, or by bit map."""

    def is_matched_by_commit_log(self, properties: Mapping[str, str] | None) -> bool:
        """By properties."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRequest(Generic[Asked]):
    """A held pull.

    Attributes:
        request: what is to be asked again.
        timeout_millis: how long it is ready to wait, as `polling_time` gives it.
        suspend_timestamp: when it was held, ms.
        pull_from_this_offset: the queue offset it asks for.
        message_filter: as it was then.
    """

    request: Asked
    timeout_millis: int
    suspend_timestamp: int
    pull_from_this_offset: int
    message_filter: HeldFilter


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A message that was dispatched: the unit it gets in the consume queue extension, and its properties (None where it has none)."""

    tags_code: int
    msg_store_time: int
    bit_map: bytes | None = None
    properties: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Notified(Generic[Asked]):
    """What becomes of held pulls: those to be asked again now, and those that stay, in their order. The others are lost."""

    woken: tuple[HeldRequest[Asked], ...]
    held: tuple[HeldRequest[Asked], ...]


def polling_time(suspend_timeout_millis: int, *, long_polling_enable: bool, short_polling_time_mills: int) -> int:
    """How long a pull is ready to wait, ms."""
    return suspend_timeout_millis if long_polling_enable else short_polling_time_mills


def sweep_interval(*, long_polling_enable: bool, short_polling_time_mills: int) -> int:
    """How long the broker waits between two sweeps, ms; the settings are those at the end of the last one."""
    return SWEEP_MS if long_polling_enable else short_polling_time_mills


def is_swept(topic: str) -> bool:
    """Whether the sweep looks at the queues of a topic: it splits the key `topic@queueId` at every `@`."""
    return bool(topic) and TOPIC_QUEUEID_SEPARATOR not in topic


def notify_message_arriving(
    held: Iterable[HeldRequest[Asked]],
    max_offset: int,
    now: int,
    *,
    arrival: Arrival | None = None,
    newest_offset: Callable[[], int] | None = None,
) -> Notified[Asked]:
    """Tell the pulls held for one queue of a message that arrived, or of a sweep.

    Args:
        held: in the order in which they came.
        max_offset: one past the queue offset of the message; for a sweep the queue's maxOffset.
        now: the broker's time, ms.
        arrival: the message; None for a sweep.
        newest_offset: the queue's maxOffset, asked for where `max_offset` passes a pull by; None where that is the same.
    """
    woken: list[HeldRequest[Asked]] = []
    kept: list[HeldRequest[Asked]] = []
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
    """CqExtUnit of an arrival."""

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
    """The messages that arrive at one queue, in order: one element each.

    Attributes:
        times: when each is dispatched, ms, ascending.
        offsets: one past the queue offset of each message, ascending.
    """

    times: NDArray[np.int64]
    offsets: NDArray[np.int64]


def woken_at(
    pull: HeldRequest[Asked],
    arrivals: Arrivals,
    matches: Sequence[bool] | NDArray[np.bool_],
    *,
    first_sweep: int,
    interval: int,
    wakes: bool,
) -> int:
    """When a held pull is asked again, from all arrivals at once: ms, NEVER where it is not.

    Args:
        pull: held at `suspend_timestamp`; arrivals up to then have come before.
        arrivals: of its queue.
        matches: whether its filter matches each.
        first_sweep: time of any sweep, ms.
        interval: between sweeps, ms, as `sweep_interval` gives it; 0 where the queue is never swept (`is_swept`).
        wakes: whether arrivals are told at all: long polling is on, and the broker is no slave.
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
    """The first sweep that is not before a time."""
    return time + (first_sweep - time) % interval
