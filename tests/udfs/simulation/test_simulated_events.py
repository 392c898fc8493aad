"""The events of simulated runs pass all checks of what must hold for every run; events that are falsified do not."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest

from tests.models.simulated_events import FAR, Events, Row, finite_plan, run_of
from tests.models.simulation_faults import faults_of
from tests.runs.sampling import SEED
from udfs.simulation.lag_sample import BROKER_OFFSET, CONSUMER_OFFSET, REACHED_OFFSET
from udfs.simulation.world import RECONSUME_LATER, SUCCESS, TOO_LATE

Tamper = Callable[[Events], Events | None]
# of the ten thousand that tests/long has
SAMPLE = sorted(random.Random(SEED).sample(range(10_000), 50))
# an orderly queue was given up while its listener was at work, and its lock let go at once
ONCE_WRONG = [5003]


@cache
def events_of(seed: int) -> Events:
    return run_of(finite_plan(seed))


@pytest.mark.parametrize("seed", [*SAMPLE, *ONCE_WRONG])
def test_a_simulated_run_keeps_what_was_promised(seed: int) -> None:
    assert faults_of(events_of(seed)) == {}


# falsified events -------------------------------------------------------------------------------------------------------------------


def changed(run: Events, row: Row, **fields: int) -> Events:
    return replace(run, rows=tuple(one._replace(**fields) if one is row else one for one in run.rows))


def without_a_message(run: Events) -> Events | None:
    """Remove all rows of the first message that was consumed and is no dead letter."""
    dead = {(one.queue, one.offset) for one in run.dead}
    origins = [row.origin for row in run.rows if row.result == SUCCESS and row.origin not in dead and promised(run, row)]
    return replace(run, rows=tuple(row for row in run.rows if row.origin != origins[0])) if origins else None


def promised(run: Events, row: Row) -> bool:
    begin = run.begin_of(row.first_queue)
    return begin is not None and row.first_offset >= begin


def without_a_dead_letter(run: Events) -> Events | None:
    return replace(run, dead=run.dead[1:]) if run.dead and not run.plan.orderly else None


def with_a_message_twice(run: Events) -> Events | None:
    return replace(run, rows=(*run.rows, run.rows[0])) if run.rows and not run.plan.orderly else None


def with_one_that_is_not_the_groups(run: Events) -> Events | None:
    row = next((row for row in run.rows if row.queue < len(run.plan.queues) and not run.wants(row.queue, row.offset + 1)), None)
    return None if row is None else changed(run, row, offset=row.offset + 1, first_offset=row.offset + 1)


def with_an_early_commit(run: Events) -> Events | None:
    """At the last sample before a promised message was done, let the committed offset be past the message."""
    first_time: dict[tuple[int, int], int] = {}
    for row in run.rows if not run.plan.broadcasts else ():
        if row.result in (SUCCESS, RECONSUME_LATER) and row.queue < len(run.plan.queues) and promised(run, row):
            first_time[row.queue, row.offset] = min(row.ended, first_time.get((row.queue, row.offset), FAR))
    for (queue, offset), time in first_time.items():
        looks = (run.outcome.times <= time).nonzero()[0]
        if len(looks):
            return with_lag(run, int(looks[-1]), queue, CONSUMER_OFFSET, offset + 1)
    return None


def with_lag(run: Events, look: int, queue: int, column: int, value: int) -> Events:
    lag = run.outcome.lag.copy()
    lag[look, queue, column] = value
    return replace(run, outcome=replace(run.outcome, lag=lag))


def that_says_a_client_is_further(run: Events) -> Events | None:
    if not run.plan.broadcasts or not run.rows:
        return None
    row = run.rows[0]
    looks = ((run.outcome.times > run.clients[row.client].joins + 1_000_000) & (run.outcome.times <= row.ended)).nonzero()[0]
    return with_lag(run, int(looks[0]), row.queue, REACHED_OFFSET, row.offset + 1) if len(looks) else None


def that_ends_with_lag(run: Events) -> Events | None:
    end = int(run.outcome.lag[-1, 0, BROKER_OFFSET])
    return with_lag(run, -1, 0, CONSUMER_OFFSET, end - 1) if end and not run.plan.broadcasts else None


def with_two_out_of_order(run: Events) -> Events | None:
    """Exchange the times of two messages of an orderly queue."""
    mine = sorted((row for row in run.rows if row.result == SUCCESS and promised(run, row)), key=lambda row: (row.queue, row.started))
    for one, other in pairwise(mine):
        if run.plan.orderly and one.queue == other.queue and one.offset < other.offset and one.ended <= other.started < other.ended:
            times = {"started": one.started, "ended": one.ended}
            first = changed(run, other, **times)
            return changed(first, one, started=other.started, ended=other.ended)
    return None


def with_two_at_once(run: Events) -> Events | None:
    """Let a batch of an orderly queue end after the next one has begun."""
    rows = [row for row in run.rows if run.plan.orderly and row.result == SUCCESS and not run.clients[row.client].stalls]
    for one, other in pairwise(sorted(rows, key=lambda row: (row.queue, row.started))):
        if one.queue == other.queue and one.ended <= other.started < other.ended:
            return changed(run, one, ended=other.started + 1)
    return None


def of_another_client(run: Events) -> Events | None:
    """Let a client consume a message of a queue that it does not have."""
    for row in run.rows:
        for client in range(len(run.clients)):
            if run.hold_of(row._replace(client=client)) is None:
                return changed(run, row, client=client)
    return None


def where_a_late_result_counts(run: Events) -> Events | None:
    row = next((row for row in run.rows if row.result == TOO_LATE and not run.plan.orderly), None)
    return None if row is None else changed(run, row, result=SUCCESS)


def pulled_before_it_came(run: Events) -> Events | None:
    for row in run.rows:
        stored = run.sent[row.first_queue].stored
        if stored is not None and stored[row.first_offset - run.sent[row.first_queue].first] > 0:
            return changed(run, row, pulled=int(stored[row.first_offset - run.sent[row.first_queue].first]))
    return None


def tried_again_at_once(run: Events) -> Events | None:
    row = next((row for row in run.rows if row.queue >= len(run.plan.queues)), None)
    return None if row is None else changed(run, row, pulled=row.pulled - 900_000)


def tried_again_for_nothing(run: Events) -> Events | None:
    """Let a failed try, which another try followed, be a success."""
    again = {(*row.origin, row.tries) for row in run.rows if row.queue >= len(run.plan.queues)}
    row = next((row for row in run.rows if row.result == RECONSUME_LATER and (*row.origin, row.tries + 1) in again), None)
    return None if row is None else changed(run, row, result=SUCCESS)


def given_in_a_stall(run: Events) -> Events | None:
    for row in run.rows:
        for begin, _ in run.clients[row.client].stalls:
            if row.pulled < begin < row.ended:
                return changed(run, row, started=begin)
    return None


def with_fewer_threads(run: Events) -> Events | None:
    one = replace(run.plan.consumer, consume_thread_min=1)
    return replace(run, plan=replace(run.plan, consumer=one)) if run.plan.consumer.consume_thread_min > 1 else None


def with_less_room(run: Events) -> Events | None:
    less = replace(run.plan.consumer, pull_threshold_for_queue=-1, pull_batch_size=1)
    return replace(run, plan=replace(run.plan, consumer=less)) if run.plan.consumer.pull_batch_size > 1 else None


def with_a_figure_too_high(run: Events) -> Events:
    return replace(run, outcome=replace(run.outcome, counts=run.outcome.counts | {"succeeded": run.outcome.counts["succeeded"] + 1}))


def with_a_message_more(run: Events) -> Events:
    lag = run.outcome.lag.copy()
    lag[-1, 0, BROKER_OFFSET] += 7 + int(6 * lag[-1, 0, BROKER_OFFSET] ** 0.5)
    return replace(run, outcome=replace(run.outcome, lag=lag))


FOUND_BY: dict[Tamper, str] = {
    without_a_message: "no_message_is_lost",
    without_a_dead_letter: "what_fails_comes_again",
    with_a_message_twice: "each_hold_gives_a_run",
    with_one_that_is_not_the_groups: "nothing_else_is_given",
    with_an_early_commit: "no_offset_passes_what_is_not_done",
    that_says_a_client_is_further: "each_client_has_all",
    that_ends_with_lag: "it_ends_with_all_done",
    with_two_out_of_order: "orderly_queues_are_in_order",
    with_two_at_once: "orderly_queues_are_in_order",
    of_another_client: "results_fit_the_holds",
    where_a_late_result_counts: "results_fit_the_holds",
    pulled_before_it_came: "nothing_else_is_given",
    tried_again_at_once: "what_fails_comes_again",
    tried_again_for_nothing: "what_fails_comes_again",
    given_in_a_stall: "clients_keep_to_their_limits",
    with_fewer_threads: "clients_keep_to_their_limits",
    with_less_room: "clients_keep_to_their_limits",
    with_a_figure_too_high: "it_ends_with_all_done",
    with_a_message_more: "as_many_come_as_the_plan_says",
}


@pytest.mark.parametrize("tamper", FOUND_BY, ids=lambda tamper: tamper.__name__)
def test_what_is_told_wrongly_is_found(tamper: Tamper) -> None:
    told = (wrong for seed in SAMPLE if (wrong := tamper(events_of(seed))) is not None)
    assert any(FOUND_BY[tamper] in faults_of(wrong) for wrong in told)
