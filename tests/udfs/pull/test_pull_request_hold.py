"""Long polling: what wakes a held pull, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from udfs.filters.message_filter import EntryUnit, RetryTopicMissingError
from udfs.pull.pull_request_hold import (
    NEVER,
    Arrival,
    Arrivals,
    HeldRequest,
    is_swept,
    notify_message_arriving,
    polling_time,
    sweep_interval,
    woken_at,
)


@dataclass(frozen=True)
class Tags:
    """A filter by tags; with `by_properties` also by properties, which match if they have the key `yes`."""

    codes: frozenset[int] = frozenset({1})
    by_properties: bool = False
    throws: bool = False
    units: list[EntryUnit | None] = field(default_factory=list)

    def is_matched_by_consume_queue(self, tags_code: int | None, ext_unit: EntryUnit | None) -> bool:
        self.units.append(ext_unit)
        return tags_code is None or tags_code in self.codes

    def is_matched_by_commit_log(self, properties: Mapping[str, str] | None) -> bool:
        if self.throws:
            raise RetryTopicMissingError
        return not self.by_properties or (properties is not None and "yes" in properties)


def pull(name: str = "p", *, offset: int = 5, held: int = 100, timeout: int = 1000, message_filter: Any = None) -> HeldRequest[str]:
    return HeldRequest(
        request=name,
        timeout_millis=timeout,
        suspend_timestamp=held,
        pull_from_this_offset=offset,
        message_filter=message_filter or Tags(),
    )


def told(*pulls: HeldRequest[str], end: int = 6, now: int = 200, **more: Any) -> tuple[str, str]:
    found = notify_message_arriving(pulls, end, now, **more)
    return "".join(one.request for one in found.woken), "".join(one.request for one in found.held)


MATCHING, OTHER = Arrival(tags_code=1, msg_store_time=9), Arrival(tags_code=2, msg_store_time=9)


def test_a_matching_message_wakes_and_another_one_does_not() -> None:
    assert told(pull(), arrival=MATCHING) == ("p", "")
    assert told(pull(), arrival=OTHER) == ("", "p")


def test_a_sweep_wakes_whoever_was_passed_whatever_the_filter() -> None:
    assert told(pull()) == ("p", "")
    assert told(pull(), end=5) == ("", "p")


def test_an_offset_that_was_not_passed_waits() -> None:
    assert told(pull(offset=6), arrival=MATCHING) == ("", "p")
    assert told(pull(offset=6), arrival=MATCHING, newest_offset=lambda: 7) == ("p", "")


@pytest.mark.parametrize("arrival", [None, OTHER])
def test_patience_ends_at_an_arrival_and_at_a_sweep_alike(arrival: Arrival | None) -> None:
    assert told(pull(offset=6), now=1099, arrival=arrival) == ("", "p")
    assert told(pull(offset=6), now=1100, arrival=arrival) == ("p", "")


def test_properties_are_asked_after_the_tag_and_only_where_there_are_some() -> None:
    choosy = pull(message_filter=Tags(by_properties=True))
    with_properties = Arrival(tags_code=1, msg_store_time=9, properties={"no": ""})
    assert told(choosy, arrival=with_properties) == ("", "p")
    assert told(choosy, arrival=Arrival(tags_code=1, msg_store_time=9, properties={"yes": ""})) == ("p", "")
    assert told(choosy, arrival=MATCHING) == ("p", "")
    assert told(choosy) == ("p", "")


def test_the_filter_sees_the_unit_of_the_message() -> None:
    seen = Tags()
    told(pull(message_filter=seen), arrival=Arrival(tags_code=1, msg_store_time=77, bit_map=b"\x01"))
    (unit,) = seen.units
    assert unit is not None
    assert (unit.msg_store_time, unit.bit_map) == (77, b"\x01")


def test_pulls_of_one_queue_are_judged_one_by_one_and_keep_their_order() -> None:
    pulls = [pull("a"), pull("b", message_filter=Tags(frozenset({2}))), pull("c"), pull("d", offset=9)]
    assert told(*pulls, arrival=MATCHING) == ("ac", "bd")


def test_a_filter_that_throws_loses_all_that_are_not_yet_woken() -> None:
    arrival = Arrival(tags_code=1, msg_store_time=9, properties={})
    pulls = [pull("a"), pull("b", offset=9), pull("c", message_filter=Tags(throws=True)), pull("d")]
    assert told(*pulls, arrival=arrival) == ("a", "")


def test_without_long_polling_the_brokers_own_time_counts() -> None:
    assert polling_time(15_000, long_polling_enable=True, short_polling_time_mills=1000) == 15_000
    assert polling_time(15_000, long_polling_enable=False, short_polling_time_mills=1000) == 1000
    assert sweep_interval(long_polling_enable=True, short_polling_time_mills=1000) == 5000
    assert sweep_interval(long_polling_enable=False, short_polling_time_mills=1000) == 1000


@pytest.mark.parametrize(("topic", "swept"), [("T", True), ("a@b", False), ("%RETRY%g", True), ("", False)])
def test_a_topic_whose_key_splits_into_more_than_two_is_swept_with_light_queues_only(topic: str, swept: bool) -> None:
    assert is_swept(topic) is swept
    assert is_swept(topic, enable_lmq=True) is bool(topic)  # LmqPullRequestHoldService splits at the last @


@dataclass(frozen=True)
class Case:
    """A held pull, with the few moments at which something happens."""

    offset: int
    held: int
    timeout: int
    at_first: int
    arrivals: tuple[tuple[int, bool], ...]
    first_sweep: int
    interval: int
    wakes: bool


@st.composite
def cases(draw: st.DrawFn) -> Case:
    held = draw(st.integers(0, 12))
    times = sorted(draw(st.lists(st.integers(held + 1, held + 60), max_size=6)))
    return Case(
        offset=draw(st.integers(0, 4)),
        held=held,
        timeout=draw(st.integers(0, 40)),
        at_first=draw(st.integers(0, 3)),
        arrivals=tuple((time, draw(st.booleans())) for time in times),
        first_sweep=draw(st.integers(0, 20)),
        interval=draw(st.integers(0, 15)),
        wakes=draw(st.booleans()),
    )


def moment_by_moment(case: Case) -> int:
    """The moment at which the broker wakes the pull, found a millisecond at a time."""
    end = case.at_first
    for now in range(case.held, case.held + 200):
        for _, matches in [one for one in case.arrivals if one[0] == now]:
            end += 1
            if case.wakes and ((matches and end > case.offset) or now >= case.held + case.timeout):
                return now
        if case.interval and (now - case.first_sweep) % case.interval == 0 and (end > case.offset or now >= case.held + case.timeout):
            return now
    return NEVER


def event_by_event(case: Case) -> int:
    """The same moment, found by `notify_message_arriving` at each arrival and sweep."""
    held: tuple[HeldRequest[str], ...] = (pull(offset=case.offset, held=case.held, timeout=case.timeout),)
    end = case.at_first
    for now in range(case.held, case.held + 200):
        for _, matches in [one for one in case.arrivals if one[0] == now]:
            end += 1
            if case.wakes:
                held = notify_message_arriving(held, end, now, arrival=MATCHING if matches else OTHER).held
        if held and case.interval and (now - case.first_sweep) % case.interval == 0:
            held = notify_message_arriving(held, end, now).held
        if not held:
            return now
    return NEVER


def at_once(case: Case) -> int:
    times = [case.held, *(time for time, _ in case.arrivals)]
    offsets = np.arange(case.at_first, case.at_first + len(times), dtype=np.int64)
    arrivals = Arrivals(times=np.array(times, np.int64), offsets=offsets)
    matches = [False, *(one for _, one in case.arrivals)]
    held = pull(offset=case.offset, held=case.held, timeout=case.timeout)
    return woken_at(held, arrivals, matches, first_sweep=case.first_sweep, interval=case.interval, wakes=case.wakes)


@given(cases())
def test_all_forms_of_the_rule_wake_at_the_same_moment(case: Case) -> None:
    assert at_once(case) == event_by_event(case) == moment_by_moment(case)


@given(cases())
def test_nobody_waits_longer_than_patience_and_one_sweep(case: Case) -> None:
    if case.interval:
        assert case.held <= at_once(case) <= case.held + case.timeout + case.interval
