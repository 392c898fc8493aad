"""Simulated groups: the compiled loop compared with the rules themselves, and a few runs with known results."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.makers.group_plans import SEEDS, random_plan
from tests.models.slow_group import SlowEngine
from tests.models.slow_parts import Always
from tests.runs.sampling import ALL
from udfs.broker.message_queue import MessageQueue
from udfs.consumer.push_consumer import ConsumeFromWhere, MessageModel, PushConsumer
from udfs.pull import pull_request_hold as hold
from udfs.simulation import world as at
from udfs.simulation.arrivals import ALL_MATCH, arrival_time, end_offset
from udfs.simulation.group_engine import GroupEngine, WrittenRows
from udfs.simulation.group_plan import SECOND, ClientPlan, GroupPlan, Listener, Rates, Recorded
from udfs.simulation.group_run import GroupRun, Rebalanced
from udfs.simulation.lag_sample import CONSUMER_OFFSET
from udfs.simulation.new_world import new_world
from udfs.simulation.outcome import Outcome, simulate
from udfs.simulation.pulling import answered_as_of
from udfs.simulation.service_time import EXPONENTIAL

Row = tuple[int, ...]
PROCESSED = (at.SUCCESS, at.RECONSUME_LATER)


def fast(plan: GroupPlan) -> tuple[GroupEngine, list[Row], list[Row], list[Rebalanced]]:
    """Run the compiled loop; returns its engine, rows of consumption and dead letters, and rebalances."""
    engine, consumed, dead = GroupEngine(plan), [], []  # type: ignore[var-annotated]

    def tell(told: WrittenRows) -> None:
        consumed.extend(map(tuple, told.consumed.tolist()))
        dead.extend(map(tuple, told.dead.tolist()))

    run = GroupRun(plan, engine)
    run.run(sample=lambda _: False, tell=tell)
    engine.tell_rest(tell)
    return engine, consumed, dead, run.rebalances


@settings(max_examples=3000 if ALL else 20, deadline=None)
@given(SEEDS, st.sampled_from(("concurrent", "orderly", "broadcast")))
@example(64655099, "concurrent")  # the clients of a group that never committed begin at different offsets
def test_the_compiled_loop_does_event_by_event_what_the_rules_say(seed: int, kind: str) -> None:
    plan = random_plan(seed, orderly=kind == "orderly", until=(60 if kind == "concurrent" else 150) * SECOND)
    if kind == "broadcast":
        plan = replace(plan, consumer=replace(plan.consumer, message_model=MessageModel.BROADCASTING))
    engine, consumed, dead, rebalances = fast(plan)
    slow = SlowEngine(plan)
    by_rules = GroupRun(plan, slow)  # type: ignore[arg-type]
    by_rules.run(sample=lambda _: False, tell=lambda _: None)
    assert consumed == [tuple(map(int, row)) for row in slow.consumed]
    assert dead == slow.dead
    if kind == "broadcast":
        queues = range(len(plan.queues))
        assert [[engine.stored(one, queue) for queue in queues] for one in range(len(slow.clients))] == [
            [slow.stored(one, queue) for queue in queues] for one in range(len(slow.clients))
        ]
    assert rebalances == by_rules.rebalances
    counters = engine.world.counters
    names = {"pulls": at.PULLS, "found": at.PULLS_FOUND, "flow": at.FLOW_CONTROL, "delivered": at.DELIVERED, "duplicates": at.DUPLICATES}
    names |= {"succeeded": at.SUCCEEDED, "sent_back": at.SENT_BACK, "given_up": at.DEAD}
    slow.counts["given_up"] += len(slow.dead)
    assert {name: int(counters[position]) for name, position in names.items()} == slow.counts
    assert [engine.committed(queue) for queue in range(len(slow.names))] == [slow.committed(queue) for queue in range(len(slow.names))]


def test_a_pull_waits_as_long_as_the_rule_says() -> None:
    for seed in range(500):
        assert_it_waits_as_long(random.Random(seed))


def assert_it_waits_as_long(chance: random.Random) -> None:
    gaps = [(chance.randrange(20 * SECOND), chance.random() < 0.4) for _ in range(chance.randrange(4))]
    asked = chance.randrange(20 * SECOND)
    times = np.cumsum([gap for gap, _ in gaps]).astype(np.int64)
    told = [wanted for _, wanted in gaps]
    recorded = Recorded(
        first=np.array([0, len(gaps)], np.int64),
        first_offset=np.zeros(1, np.int64),
        times=times,
        flags=np.array([ALL_MATCH * wanted for wanted in told], np.uint8),
        sizes=np.ones((len(gaps), 2), np.int32),
    )
    world = new_world(plan_of(queues=1, committed=(0,), messages=recorded))
    offset = int((times + 1000 <= asked).sum())  # the end of the queue
    pull = hold.HeldRequest(
        request=None, timeout_millis=15 * SECOND, suspend_timestamp=asked, pull_from_this_offset=offset, message_filter=Always()
    )
    arrivals = hold.Arrivals(times=times + 1000, offsets=np.arange(1, len(gaps) + 1))
    woken = hold.woken_at(pull, arrivals, told, first_sweep=0, interval=5 * SECOND, wakes=True)
    assert answered_as_of(world, 0, offset, asked) == woken


@given(SEEDS)
@settings(max_examples=15, deadline=None)
def test_the_same_seed_gives_the_same_bytes(seed: int) -> None:
    def told() -> bytes:
        parts: list[bytes] = []
        outcome = simulate(random_plan(seed), lambda told: parts.extend((told.consumed.tobytes(), told.dead.tobytes())))
        return b"".join([*parts, outcome.lag.tobytes(), repr((outcome.counts, outcome.rebalances, outcome.clients)).encode()])

    assert told() == told()


# what a few runs must come to -------------------------------------------------------------------------------------------------------


def plan_of(
    *,
    queues: int = 4,
    rate: float = 0.0,
    backlog: int = 0,
    clients: int | tuple[ClientPlan, ...] = 2,
    until: int = 600 * SECOND,
    **more: object,
) -> GroupPlan:
    names = tuple(MessageQueue("orders", "broker-a", number) for number in range(queues))
    each = (1 / queues,) * queues
    rates = Rates(steps=((0, rate),), ends=until, shares=each, backlog=(backlog // queues,) * queues, even=True)
    given: dict[str, object] = {
        "group": "g",
        "queues": names,
        "committed": (0,) * queues,
        "clients": tuple(ClientPlan(client_id=f"c{number}") for number in range(clients)) if isinstance(clients, int) else clients,
        "messages": rates,
        "until": until,
        "sample": SECOND,
        "tells": True,
    }
    return GroupPlan(**{**given, **more})  # type: ignore[arg-type]


def ran(plan: GroupPlan) -> tuple[Outcome, list[Row]]:
    rows: list[Row] = []
    return simulate(plan, lambda told: rows.extend(map(tuple, told.consumed.tolist()))), rows


def test_a_backlog_takes_as_long_as_the_threads_need_for_it() -> None:
    outcome, _ = ran(plan_of(backlog=40_000, listener=Listener(first=20_000.0)))
    work = 40_000 * 20_000 / (2 * PushConsumer().consume_thread_min)
    assert outcome.consumed_all
    assert work <= outcome.stopped_at <= work + 11 * SECOND  # a look, a commit, and a pull that waited for flow control
    assert outcome.lag_messages[-1] == 0
    assert outcome.counts["succeeded"] == outcome.counts["delivered"] == 40_000


def test_messages_come_at_their_rate_and_are_consumed_as_they_come() -> None:
    outcome, rows = ran(plan_of(rate=100.0, until=100 * SECOND))
    assert outcome.counts["succeeded"] in range(9_990, 10_001)
    assert outcome.caught_up_at == 0
    assert outcome.counts["duplicates"] == 0
    assert max(row[at.C_STARTED] - row[at.C_PULLED] for row in rows) == 0


def test_clients_beyond_the_number_of_queues_are_idle_but_for_the_retry_topic() -> None:
    outcome, _ = ran(plan_of(queues=2, rate=50.0, clients=5, until=60 * SECOND))
    assert outcome.idle_clients == 3


def test_more_clients_than_queues_do_not_help() -> None:
    slow = Listener(first=500_000.0)
    first, more = (ran(plan_of(backlog=4_000, clients=count, listener=slow))[0] for count in (4, 8))
    assert first.stopped_at == more.stopped_at


def test_a_client_that_dies_leaves_messages_that_come_twice() -> None:
    dies = (ClientPlan(client_id="c0"), ClientPlan(client_id="c1", crashes=20 * SECOND + 3))
    outcome, rows = ran(plan_of(backlog=8_000, clients=dies, listener=Listener(first=100_000.0)))
    lost = [row for row in rows if row[at.C_RESULT] == at.LOST]
    assert outcome.consumed_all
    assert len(lost) == PushConsumer().consume_thread_min
    assert outcome.counts["duplicates"] >= len(lost)
    assert {client.client_id: client.alive for client in outcome.clients} == {"c0": True, "c1": False}


@pytest.mark.parametrize(("silent", "least", "most"), [(False, 0, SECOND), (True, 120 * SECOND, 121 * SECOND)])
def test_the_others_take_over_at_once_where_a_process_dies_and_after_two_minutes_where_its_machine_does(
    silent: bool, least: int, most: int
) -> None:
    dies = (ClientPlan(client_id="c0"), ClientPlan(client_id="c1", crashes=30 * SECOND, silent=silent))
    outcome, _ = ran(plan_of(rate=10.0, clients=dies))
    taken = [event for event in outcome.rebalances if event.time > 0 and event.taken and event.topic == "orders"]
    assert [event.client_id for event in taken] == ["c0"]
    assert least <= taken[0].time - 30 * SECOND <= most


def test_a_client_that_joins_pulls_again_what_the_others_have_not_committed() -> None:
    joins = (ClientPlan(client_id="c0"), ClientPlan(client_id="c1", joins=33 * SECOND))
    outcome, rows = ran(plan_of(backlog=4_000, clients=joins, listener=Listener(first=900_000.0)))
    assert outcome.counts["duplicates"] > 0
    assert any(row[at.C_RESULT] == at.TOO_LATE for row in rows)
    dropped = [event for event in outcome.rebalances if event.dropped]
    assert [(event.client_id, len(event.dropped)) for event in dropped if event.topic == "orders"] == [("c0", 2)]
    assert dropped[0].time == 33 * SECOND + 200


def test_what_always_fails_is_tried_seventeen_times_by_the_delay_levels_and_then_given_up() -> None:
    dead: list[Row] = []
    rows: list[Row] = []
    plan = plan_of(queues=1, backlog=1, until=6 * 3600 * SECOND, listener=Listener(poison=1.0), sample=60 * SECOND)

    def tell(told: WrittenRows) -> None:
        rows.extend(map(tuple, told.consumed.tolist()))
        dead.extend(map(tuple, told.dead.tolist()))

    outcome = simulate(plan, tell)
    delays = [10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]  # levels 3 to 18
    assert [row[at.C_TRY] for row in rows] == list(range(17))
    waited = [later[at.C_STARTED] - row[at.C_ENDED] for row, later in pairwise(rows)]
    assert [round(one / SECOND) for one in waited] == delays
    assert [row[at.D_TRIES] for row in dead] == [17]
    assert outcome.counts["sent_back"] == 16
    assert outcome.consumed_all


def test_an_orderly_queue_is_consumed_one_message_after_the_other_once_all_queues_are_locked() -> None:
    listener = Listener(first=100_000.0)
    outcome, rows = ran(plan_of(queues=2, backlog=40, clients=1, orderly=True, listener=listener))
    assert outcome.consumed_all
    by_queue = {queue: [row for row in rows if row[at.C_QUEUE] == queue] for queue in (0, 1)}
    for mine in by_queue.values():
        assert [row[at.C_OFFSET] for row in mine] == list(range(20))
        # queues are locked a second after the start, and pulls look for that every second
        assert mine[0][at.C_STARTED] == SECOND + 400
        assert all(after[at.C_STARTED] == before[at.C_ENDED] for before, after in pairwise(mine))


def test_an_orderly_listener_tries_what_failed_again_before_what_is_behind_it_until_it_is_given_up() -> None:
    consumer = PushConsumer(max_reconsume_times=2)
    plan = plan_of(queues=1, backlog=2, clients=1, orderly=True, consumer=consumer, listener=Listener(first=100_000.0, poison=1.0))
    outcome, rows = ran(plan)
    assert [(row[at.C_OFFSET], row[at.C_TRY]) for row in rows] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    waits = [after[at.C_STARTED] - before[at.C_ENDED] for before, after in pairwise(rows)]
    assert waits == [SECOND, SECOND, 0, SECOND, SECOND]
    assert (outcome.counts["dead"], outcome.counts["sent_back"], outcome.consumed_all) == (2, 0, True)


@pytest.mark.parametrize(("leaves", "least", "most"), [(True, 0, 21), (False, 35, 85)])
def test_an_orderly_client_that_dies_keeps_its_locks_for_a_minute(leaves: bool, least: int, most: int) -> None:
    ends = 50 * SECOND
    goes = ClientPlan(client_id="c1", leaves=ends if leaves else None, crashes=None if leaves else ends)
    outcome, _ = ran(plan_of(rate=10.0, clients=(ClientPlan(client_id="c0"), goes), orderly=True, until=300 * SECOND))
    taken = [event for event in outcome.rebalances if event.time > 0 and event.taken and event.topic == "orders"]
    assert [(event.client_id, len(event.taken)) for event in taken] == [("c0", 2)]
    assert least <= (taken[0].time - ends) / SECOND <= most


def test_a_client_that_stands_still_for_more_than_two_minutes_loses_its_queues_and_gets_some_back() -> None:
    stalled = (ClientPlan(client_id="c0"), ClientPlan(client_id="c1", stalls=((30 * SECOND, 200 * SECOND),)))
    outcome, rows = ran(plan_of(rate=20.0, until=300 * SECOND, clients=stalled))
    events = [(event.client_id, event.time // SECOND, len(event.taken), len(event.dropped)) for event in outcome.rebalances]
    assert ("c0", 150, 2, 0) in events
    assert ("c0", 200, 0, 2) in events
    assert [row for row in rows if row[at.C_CLIENT] == 1 and 31 * SECOND < row[at.C_STARTED] < 200 * SECOND] == []


def test_how_long_a_message_takes_does_not_depend_on_who_consumes_it() -> None:
    listener = Listener(shape=EXPONENTIAL, first=50_000.0, failing=0.1)
    taken = []
    for clients in (1, 3):
        _, rows = ran(plan_of(rate=20.0, clients=clients, until=60 * SECOND, seed=4, listener=listener))
        times = {row[at.C_FIRST_QUEUE : at.C_TRY + 1]: (row[at.C_ENDED] - row[at.C_STARTED], row[at.C_RESULT]) for row in rows}
        taken.append({key: one for key, one in times.items() if one[1] in PROCESSED})
    both = taken[0].keys() & taken[1].keys()
    assert len(both) > 1000
    assert all(taken[0][key] == taken[1][key] for key in both)


def test_a_run_that_does_not_end_is_cut() -> None:
    outcome, _ = ran(plan_of(rate=1000.0, until=30 * SECOND, listener=Listener(first=1_000_000.0)))
    assert not outcome.consumed_all
    assert outcome.stopped_at == 30 * SECOND
    assert outcome.caught_up_at is None  # though at the start nothing waited
    assert outcome.lag_messages[-1] > 20_000


def test_recorded_messages_come_when_they_came_and_those_of_before_at_once() -> None:
    times = np.array([-5 * SECOND, 3 * SECOND, 8 * SECOND], np.int64)
    recorded = Recorded(
        first=np.array([0, 3], np.int64),
        first_offset=np.array([70], np.int64),
        times=times,
        flags=np.full(3, ALL_MATCH, np.uint8),
        sizes=np.full((3, 2), 100, np.int32),
    )
    outcome, rows = ran(plan_of(queues=1, clients=1, committed=(70,), min_offsets=(70,), messages=recorded))
    assert [row[at.C_OFFSET] for row in rows] == [70, 71, 72]
    assert [row[at.C_STARTED] - max(time, 0) for row, time in zip(rows, times, strict=True)] == [400, 1200, 1200]
    assert outcome.stopped_at == 11 * SECOND  # the look after the commit at 10 s, at which the last one was consumed


def test_messages_with_a_delay_level_come_at_the_look_that_finds_them_due() -> None:
    at_once, late = (ran(plan_of(rate=3.0, queues=1, clients=1, until=60 * SECOND, messages=one))[1] for one in delayed(0, 3))
    looks = range(SECOND, 60 * SECOND, 100_000)
    stored = [row[at.C_PULLED] - 1400 for row in at_once]  # dispatch, and the way of the answer
    due = [next(look for look in looks if look // 1000 >= time // 1000 + 10_000) for time in stored[: len(late)]]
    assert [row[at.C_PULLED] - 1200 for row in late] == due
    assert len(late) > 100


def delayed(*levels: int) -> list[Rates]:
    return [Rates(steps=((0, 3.0),), ends=50 * SECOND, shares=(1.0,), backlog=(0,), even=True, delay_level=one) for one in levels]


def test_a_level_above_the_last_one_is_the_last_one() -> None:
    last, above = (ran(plan_of(queues=1, clients=1, until=9000 * SECOND, messages=one))[1] for one in delayed(18, 99))
    assert last == above
    assert len(last) == 150


BROADCASTING = PushConsumer(message_model=MessageModel.BROADCASTING, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)


def test_each_client_of_a_group_that_broadcasts_gets_all_messages_once_and_drops_what_fails() -> None:
    outcome, rows = ran(plan_of(queues=2, backlog=400, clients=3, consumer=BROADCASTING, listener=Listener(first=1000.0, failing=0.3)))
    assert outcome.consumed_all
    given = Counter((row[at.C_CLIENT], row[at.C_QUEUE], row[at.C_OFFSET]) for row in rows)
    assert given == {(client, queue, offset): 1 for client in range(3) for queue in range(2) for offset in range(200)}
    failed = [row for row in rows if row[at.C_RESULT] == at.RECONSUME_LATER]
    assert (outcome.counts["succeeded"], outcome.counts["dead"]) == (1200 - len(failed), len(failed))
    assert (outcome.counts["sent_back"], outcome.counts["duplicates"]) == (0, 0)
    assert len(failed) == pytest.approx(360, rel=0.2)
    assert len({row[at.C_QUEUE : at.C_OFFSET + 1] for row in failed}) > 220, "each client fails on its own"
    assert {event.topic for event in outcome.rebalances} == {"orders"}


def test_a_group_that_broadcasts_is_as_far_as_its_client_that_is_furthest_behind() -> None:
    stands = (ClientPlan(client_id="c0"), ClientPlan(client_id="c1", stalls=((30 * SECOND, 90 * SECOND),)))
    outcome, _ = ran(plan_of(queues=2, rate=10.0, clients=stands, until=200 * SECOND, consumer=BROADCASTING))
    lag = dict(zip((outcome.times // SECOND).tolist(), outcome.lag_messages.tolist(), strict=True))
    assert lag[29] <= 1
    assert lag[80] == pytest.approx(500, abs=3)
    assert lag[120] <= 1
    assert (outcome.lag[:, :, CONSUMER_OFFSET] == -1).all(), "a broker knows nothing of it"


@pytest.mark.parametrize(("committed", "first"), [(-1, 300), (120, 120)])
def test_a_client_of_a_group_that_broadcasts_begins_where_its_own_file_says(committed: int, first: int) -> None:
    late = (ClientPlan(client_id="c0"), ClientPlan(client_id="c1", joins=20 * SECOND))
    consumer = PushConsumer(message_model=MessageModel.BROADCASTING)  # from the last offset
    _, rows = ran(plan_of(queues=1, backlog=300, rate=1.0, clients=late, consumer=consumer, committed=(committed,), until=60 * SECOND))
    begins = [min(row[at.C_OFFSET] for row in rows if row[at.C_CLIENT] == client) for client in (0, 1)]
    assert begins == [first, first if committed >= 0 else pytest.approx(320, abs=1)]


def test_a_client_of_a_group_that_broadcasts_keeps_its_queues_where_it_stands_still() -> None:
    stands = ClientPlan(client_id="c0", stalls=((31 * SECOND, 200 * SECOND),))
    outcome, rows = ran(plan_of(queues=1, rate=10.0, clients=(stands,), until=300 * SECOND, consumer=BROADCASTING))
    assert [event.dropped for event in outcome.rebalances] == [()]
    assert [row[at.C_OFFSET] for row in rows] == list(range(len(rows)))
    assert len(rows) == pytest.approx(3000, abs=5)


@given(SEEDS, st.sampled_from((0, 1, 3)))
@settings(max_examples=50, deadline=None)
def test_messages_of_a_rate_come_in_order_and_are_counted_as_they_come(seed: int, delay_level: int) -> None:
    rates = Rates(steps=((0, 3.0), (5 * SECOND, 40.0)), ends=9 * SECOND, shares=(0.25, 0.75), backlog=(2, 0), delay_level=delay_level)
    world = new_world(plan_of(queues=2, seed=seed, messages=rates, until=20 * SECOND))
    for queue in range(2):
        end = end_offset(world, queue, 20 * SECOND)
        times = [arrival_time(world, queue, offset) for offset in range(end)]
        assert times == sorted(times)
        assert arrival_time(world, queue, end) == at.NEVER
        for moment in (0, SECOND, 5 * SECOND + 1, 9 * SECOND, *range(9_900_000, 20 * SECOND, 99_999)):
            assert end_offset(world, queue, moment) == sum(time <= moment for time in times)


@pytest.mark.parametrize(
    ("where", "second", "begins"),
    [
        (ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, -8000, 100),
        (ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, -8000, 103),
        # half an hour before the start there was all but the last message; past the last one it would be that one
        (ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, -1801, 102),
        (ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, -1700, 101),
    ],
)
def test_a_group_that_never_committed_begins_where_its_setting_says(where: ConsumeFromWhere, second: int, begins: int) -> None:
    recorded = Recorded(
        first=np.array([0, 4], np.int64),
        first_offset=np.array([100], np.int64),
        times=np.array([-9000 * SECOND, second * SECOND, -5 * SECOND, 3 * SECOND], np.int64),
        flags=np.full(4, ALL_MATCH, np.uint8),
        sizes=np.full((4, 2), 100, np.int32),
    )
    consumer = PushConsumer(consume_from_where=where)
    plan = plan_of(queues=1, clients=1, committed=(-1,), min_offsets=(100,), messages=recorded, consumer=consumer)
    assert next(row[at.C_OFFSET] for row in ran(plan)[1]) == begins


@pytest.mark.parametrize("orderly", [False, True])
def test_a_client_that_begins_below_the_first_message_takes_the_queue_anew_after_ten_seconds(orderly: bool) -> None:
    recorded = Recorded(
        first=np.array([0, 2], np.int64),
        first_offset=np.array([100], np.int64),
        times=np.array([-9 * SECOND, 3 * SECOND], np.int64),
        flags=np.full(2, ALL_MATCH, np.uint8),
        sizes=np.full((2, 2), 100, np.int32),
    )
    plan = plan_of(queues=1, clients=1, committed=(70,), min_offsets=(100,), messages=recorded, orderly=orderly)
    outcome, rows = ran(plan)
    assert [row[at.C_OFFSET] for row in rows] == [100, 101]
    turns = [(event.time, bool(event.taken)) for event in outcome.rebalances if event.topic == "orders"]
    locked = SECOND * orderly  # the first pull with a lock
    assert turns == [(0, True), (locked + 10 * SECOND + 400, False), (20 * SECOND, True)]
    assert rows[0][at.C_PULLED] == 20 * SECOND + locked + 400
    assert outcome.lag[-1, 0, 0] == 102
