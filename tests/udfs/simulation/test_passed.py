"""Messages that a listener gets again, compared with a set of those that it had."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.makers.group_plans import random_plan
from tests.runs.both_forms import python_of
from tests.runs.sampling import ALL
from udfs.simulation import world as at
from udfs.simulation.new_world import new_world
from udfs.simulation.passed import begin_at, had_before

in_python = python_of(had_before)  # the compiled one is for compiled callers only
OFFSETS = st.integers(0, 40)
# a client and how many messages it passes in order: from the offset where it begins anew, or the next ones
STEPS = st.lists(st.tuples(st.integers(0, 3), st.none() | OFFSETS, st.integers(1, 8)), max_size=40)


@settings(max_examples=5000 if ALL else 200, deadline=None)
@given(STEPS, st.sets(OFFSETS))
def test_a_message_is_a_duplicate_if_any_client_had_it(steps: list[tuple[int, int | None, int]], filtered: set[int]) -> None:
    world = new_world(random_plan(1, orderly=False, until=1))
    had: set[int] = set()
    places: dict[int, int] = {}
    for client, begin, count in steps:
        if begin is not None or client not in places:
            places[client] = begin or 0
            world = begin_at(world, 0, places[client])
        for offset in range(places[client], places[client] + count):
            if offset not in filtered:
                assert in_python(world, 0, offset) == (offset in had)
                had.add(offset)
        places[client] += count
    assert world.queues[0, at.FIRST_SKIPPED] < len(world.skipped)


@pytest.mark.parametrize("begins", [(5, 3), (3, 5)])
def test_a_queue_has_skipped_ranges_of_its_own(begins: tuple[int, int]) -> None:
    world = new_world(random_plan(1, orderly=False, until=1))
    for queue, begin in enumerate(begins):
        world = begin_at(world, queue, begin)
    for queue, begin in enumerate(begins):
        assert [in_python(world, queue, offset) for offset in (0, 1, begin, begin)] == [False, False, False, True]
