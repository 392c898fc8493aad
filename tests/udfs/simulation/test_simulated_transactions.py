"""Simulated transactions: compared with a slow model of the broker's loop, and a few of them with known results."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.generate.workload_fields import WorkloadError
from pipeline.simulation.plans import plan_of
from pipeline.simulation.scenario import located, read_scenario
from pipeline.simulation.simulation_rows import SimulationRun, rows_of
from tests.runs.sampling import ALL
from udfs.broker.message_queue import MessageQueue
from udfs.broker.transaction_check import CheckSettings
from udfs.simulation.group_plan import SECOND, BrokerPlan, ClientPlan, GroupPlan, Rates, Transactions
from udfs.simulation.half_messages import BODY, IS_COMMITTED, IS_TOLD, KNOWN, OFFSET, QUEUE, STORED, half_messages
from udfs.simulation.outcome import simulate
from udfs.simulation.service_time import CONSTANT, EXPONENTIAL, UNIFORM, Takes
from udfs.simulation.transactions import TransactionFigures, transacted
from udfs.simulation.world import BEFORE, MS, NEVER

NETWORK, MINUTE = 200, 60 * SECOND


def plan(transactions: Transactions, until: int = 20 * MINUTE, queues: int = 1, brokers: int = 1, **rates: Any) -> GroupPlan:
    count = queues * brokers
    given: dict[str, Any] = {"steps": ((0, 1.0),), "ends": SECOND, "shares": (1 / count,) * count, "backlog": (0,) * count, "even": True}
    return GroupPlan(
        group="g",
        queues=tuple(MessageQueue("orders", f"b{broker}", queue) for broker in range(brokers) for queue in range(queues)),
        committed=(0,) * count,
        clients=(ClientPlan(client_id="c"),),
        messages=Rates(**given | rates),
        transactions=transactions,
        until=until,
    )


def lasts(seconds: float) -> Takes:
    return Takes(CONSTANT, seconds * SECOND)


# the loop of TransactionalMessageServiceImpl.check, once more ------------------------------------------------------------------------


@dataclass
class Half:
    """A half message in the half queue: how often it was checked is None before the first check."""

    transaction: int
    stored: int
    checks: int | None = None


@dataclass
class SlowBroker:
    """The broker's loop, one half message after the other, on lists."""

    rows: list[list[int]]
    plan: GroupPlan
    transactions: Transactions
    halves: list[Half] = field(default_factory=list)
    ops: list[tuple[int, int]] = field(default_factory=list)
    half_offset: int = 0
    op_offset: int = 0
    events: list[tuple[int, int, int, int]] = field(default_factory=list)
    came: list[tuple[int, int]] = field(default_factory=list)
    ended: Counter[int] = field(default_factory=Counter)
    given_up: set[int] = field(default_factory=set)
    checked: int = 0

    def run(self) -> None:
        for number, row in enumerate(self.rows):
            heapq.heappush(self.events, (row[STORED], 0, number, 0))
        for moment in range(self.transactions.check_interval, self.plan.until + 1, self.transactions.check_interval):
            heapq.heappush(self.events, (moment, 2, 0, 0))
        while self.events and self.events[0][0] <= self.plan.until:
            now, kind, transaction, half_offset = heapq.heappop(self.events)
            if kind == 0:
                self.store(now, transaction)
            elif kind == 1:
                self.end(now, transaction, half_offset)
            else:
                self.check(now)

    def store(self, now: int, transaction: int) -> None:
        row, network = self.rows[transaction], self.plan.broker.network
        if row[IS_TOLD]:
            heapq.heappush(self.events, (row[KNOWN] + network, 1, transaction, len(self.halves)))
        self.halves.append(Half(transaction, now))

    def end(self, now: int, transaction: int, half_offset: int) -> None:
        self.ended[transaction] += 1
        if self.rows[transaction][IS_COMMITTED]:
            self.came.append((now, transaction))
        self.ops.append((now, half_offset))

    def check(self, now: int) -> None:
        conf, clock, started = self.transactions.settings, now // MS, now // MS
        removed: dict[int, int] = {}
        done: set[int] = set()
        visible = now - self.plan.broker.dispatch
        position, least = self.op_offset, self.half_offset

        def read() -> list[tuple[int, int]]:
            nonlocal position
            found = [(number, op) for number, op in enumerate(self.ops) if op[0] <= visible][position : position + 32]
            position += len(found)
            for number, (_, half_offset) in found:
                if half_offset < least:
                    done.add(number)
                else:
                    removed[half_offset] = number
            return [op for _, op in found]

        last, at = read(), self.half_offset
        while True:
            if at in removed:
                done.add(removed.pop(at))
            elif at >= len(self.halves) or self.halves[at].stored > visible:
                break
            else:
                half = self.halves[at]
                age = clock - (self.rows[half.transaction][STORED] - self.plan.broker.network) // MS
                if half.checks is not None and half.checks >= conf.transaction_check_max:
                    self.given_up.add(half.transaction)
                elif half.stored // MS >= started or 0 <= age < conf.transaction_time_out:
                    break
                elif not last and age > conf.transaction_time_out:
                    self.ask(now, half)
                else:
                    clock += 0 if last else 1  # the broker looks again and again until the ms is over
                    last = read()
                    continue
            at += 1
        self.half_offset = at
        while self.op_offset in done:
            self.op_offset += 1

    def ask(self, now: int, half: Half) -> None:
        network = self.plan.broker.network
        self.checked += 1
        if self.rows[half.transaction][KNOWN] <= now + network:
            heapq.heappush(self.events, (now + 2 * network, 1, half.transaction, len(self.halves)))
        self.halves.append(Half(half.transaction, now, (half.checks or 0) + 1))


TIMES = st.one_of(
    st.builds(lasts, st.sampled_from((0, 0.5, 5, 20, 45, 200))),
    st.builds(lambda most: Takes(UNIFORM, 0.0, most * SECOND), st.sampled_from((3, 30, 120))),
    st.builds(lambda mean: Takes(EXPONENTIAL, mean * SECOND), st.sampled_from((1, 20))),
)


@st.composite
def transaction_plans(draw: st.DrawFn) -> tuple[GroupPlan, Transactions]:
    commits = draw(st.sampled_from((0.0, 0.3, 0.8, 1.0)))
    transactions = Transactions(
        commits=commits,
        rolls_back=draw(st.sampled_from((0.0, 0.5, 1.0))) * (1 - commits),
        takes=draw(TIMES),
        decides=draw(st.none() | TIMES),
        then_commits=draw(st.sampled_from((0.0, 0.5, 1.0))),
        settings=CheckSettings(
            transaction_time_out=draw(st.sampled_from((0, 1000, 6000, 17_000))), transaction_check_max=draw(st.integers(0, 5))
        ),
        check_interval=draw(st.sampled_from((5, 10, 30))) * SECOND,
    )
    queues, brokers = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    broker = BrokerPlan(network=draw(st.sampled_from((0, NETWORK, 3 * SECOND))), dispatch=draw(st.sampled_from((0, 1000, 2 * SECOND))))
    made = plan(
        transactions,
        until=draw(st.sampled_from((40, 150, 200))) * SECOND,
        queues=queues,
        brokers=brokers,
        steps=((0, draw(st.sampled_from((0.2, 3.0, 12.0)))),),
        ends=draw(st.sampled_from((20, 150))) * SECOND,
        backlog=(draw(st.integers(0, 3)),) * queues * brokers,
        even=draw(st.booleans()),
        body=(0, 4 << 20),
    )
    return replace(made, broker=broker, seed=draw(st.integers(0, 2**40))), transactions


def slow_figures(of_plan: GroupPlan, brokers: list[SlowBroker]) -> dict[str, Any]:
    pairs = [(broker, number) for broker in brokers for number in range(len(broker.rows)) if broker.rows[number][STORED] <= of_plan.until]
    ended = [(broker, number) for broker, number in pairs if broker.ended[number]]
    committed = sum(broker.rows[number][IS_COMMITTED] for broker, number in ended)
    delays = [
        min(time for time, of in broker.came if of == number) - broker.rows[number][STORED]
        for broker, number in ended
        if broker.rows[number][IS_COMMITTED]
    ]
    return {
        "sent": len(pairs),
        "committed": committed,
        "committed_again": sum(len(broker.came) for broker in brokers) - committed,
        "rolled_back": len(ended) - committed,
        "checked": sum(broker.checked for broker in brokers),
        "given_up": sum(len(broker.given_up) for broker in brokers),
        "undecided": sum(not broker.ended[number] and number not in broker.given_up for broker, number in pairs),
        "commit_delays": sorted(delays),
    }


def shown(figures: TransactionFigures) -> dict[str, Any]:
    return {name: getattr(figures, name) for name in TransactionFigures.__slots__} | {"commit_delays": figures.commit_delays.tolist()}


@settings(max_examples=1000 if ALL else 30, deadline=None)
@given(transaction_plans())
def test_transactions_end_as_the_brokers_loop_has_it(case: tuple[GroupPlan, Transactions]) -> None:
    of_plan, transactions = case
    rows = half_messages(of_plan, transactions).tolist()
    brokers = []
    for name in of_plan.brokers:
        mine = [row for row in rows if row[STORED] > BEFORE and of_plan.queues[row[QUEUE]].brokerName == name]
        brokers.append(SlowBroker(sorted(mine, key=lambda row: (row[STORED], row[QUEUE], row[OFFSET])), of_plan, transactions))
        brokers[-1].run()
    recorded, figures = transacted(of_plan, transactions)
    came: list[list[tuple[int, int]]] = [[] for _ in of_plan.queues]
    for row in rows:
        if row[STORED] == BEFORE:
            came[row[QUEUE]].append((BEFORE, row[BODY]))
    for broker in brokers:
        for time, transaction in broker.came:
            came[broker.rows[transaction][QUEUE]].append((time, broker.rows[transaction][BODY]))
    bounds = list(itertools.pairwise(recorded.first.tolist()))
    assert [list(zip(recorded.times[a:b].tolist(), recorded.sizes[a:b, 1].tolist(), strict=True)) for a, b in bounds] == came
    assert shown(figures) == slow_figures(of_plan, brokers)


# what a few must come to -------------------------------------------------------------------------------------------------------------


def figures_of(transactions: Transactions, **settings: Any) -> TransactionFigures:
    return transacted(plan(transactions, **settings), transactions)[1]


def test_a_producer_that_commits_at_once_is_never_asked() -> None:
    found = figures_of(Transactions(commits=1.0), steps=((0, 5.0),), ends=MINUTE)
    assert (found.sent, found.committed, found.committed_again, found.checked, found.undecided) == (300, 300, 0, 0, 0)
    assert set(found.commit_delays.tolist()) == {2 * NETWORK}  # the answer to the half message, and the commit


def test_a_message_whose_producer_never_knows_is_given_up_at_the_sixteenth_check() -> None:
    found = figures_of(Transactions(commits=0.0), until=16 * MINUTE)
    assert (found.sent, found.checked, found.given_up, found.undecided) == (1, 15, 1, 0)
    found = figures_of(Transactions(commits=0.0), until=16 * MINUTE - 1)
    assert (found.sent, found.checked, found.given_up, found.undecided) == (1, 15, 0, 1)


@pytest.mark.parametrize(("begins", "asked"), [(53, 60), (55, 120)])
def test_a_producer_that_knows_when_it_is_asked_commits_at_the_check_after_six_seconds(begins: int, asked: int) -> None:
    transactions = Transactions(commits=0.0, decides=lasts(1))
    of_plan = plan(transactions, steps=((begins * SECOND, 1.0),), ends=(begins + 1) * SECOND)
    recorded, found = transacted(of_plan, transactions)
    assert recorded.times.tolist() == [asked * SECOND + 2 * NETWORK]
    assert (found.committed, found.checked) == (1, 1)


def test_a_producer_that_knows_after_ninety_seconds_is_asked_twice() -> None:
    transactions = Transactions(commits=0.0, decides=lasts(90))
    recorded, found = transacted(plan(transactions), transactions)
    assert recorded.times.tolist() == [120 * SECOND + 2 * NETWORK]
    assert (found.checked, found.committed, found.committed_again) == (2, 1, 0)


@pytest.mark.parametrize(("commits", "again"), [(1.0, 1), (0.0, 0)])
def test_a_local_transaction_that_outlasts_a_check_is_ended_twice(commits: float, again: int) -> None:
    transactions = Transactions(commits=commits, rolls_back=1 - commits, takes=lasts(70))
    of_plan = plan(transactions)
    recorded, found = transacted(of_plan, transactions)
    (row,) = half_messages(of_plan, transactions).tolist()
    ends = [row[STORED] + 70 * SECOND + 2 * NETWORK, 120 * SECOND + 2 * NETWORK]
    assert recorded.times.tolist() == (ends if again else [])
    assert (found.checked, found.committed, found.committed_again, found.rolled_back) == (2, again, again, 1 - again)
    assert found.commit_delays.tolist() == [70 * SECOND + 2 * NETWORK] * again


def test_what_was_given_up_comes_still_if_its_producer_commits_it() -> None:
    transactions = Transactions(commits=1.0, takes=lasts(300), settings=CheckSettings(transaction_check_max=2))
    found = figures_of(transactions)
    assert (found.given_up, found.checked, found.committed, found.committed_again, found.undecided) == (1, 2, 1, 0, 0)


def test_shares_and_times_are_those_of_the_scenario() -> None:
    takes = Takes(UNIFORM, 1.0 * SECOND, 3.0 * SECOND)
    transactions = Transactions(commits=0.7, rolls_back=0.2, takes=takes, decides=lasts(9), then_commits=0.25)
    rows = half_messages(plan(transactions, steps=((0, 200.0),), ends=100 * SECOND, backlog=(7,)), transactions)
    assert (rows[:7, STORED] == BEFORE).all()
    sent = rows[7:]
    told = sent[:, IS_TOLD] == 1
    committed = sent[:, IS_COMMITTED] == 1
    assert np.mean(told & committed) == pytest.approx(0.7, abs=0.015)
    assert np.mean(told & ~committed) == pytest.approx(0.2, abs=0.015)
    assert np.mean(committed[~told]) == pytest.approx(0.25, abs=0.04)
    taken = sent[:, KNOWN] - sent[:, STORED] - NETWORK
    assert set(taken[~told].tolist()) == {9 * SECOND}
    assert (taken[told].min() >= SECOND, taken[told].max() <= 3 * SECOND) == (True, True)
    assert np.mean(taken[told]) == pytest.approx(2 * SECOND, rel=0.02)
    never = half_messages(plan(Transactions(commits=0.0)), Transactions(commits=0.0))
    assert never[:, KNOWN].tolist() == [NEVER]


def test_a_group_consumes_what_was_committed_and_no_more() -> None:
    transactions = Transactions(commits=0.6, rolls_back=0.3, takes=lasts(2), decides=lasts(30))
    of_plan = plan(transactions, queues=2, steps=((0, 20.0),), ends=5 * MINUTE, backlog=(10, 0), until=30 * MINUTE)
    outcome = simulate(of_plan)
    figures = outcome.transactions
    assert figures is not None
    assert outcome.consumed_all
    assert figures.sent == 6000
    assert outcome.counts["succeeded"] == 10 + figures.committed
    assert figures.committed + figures.rolled_back == 6000
    assert figures.committed == pytest.approx(4200, rel=0.03)
    assert figures.checked == pytest.approx(600 * 1.4, rel=0.15)  # 24 s of each minute are too early for the check that comes


def test_a_topic_to_which_nothing_is_committed_is_consumed_at_once() -> None:
    outcome = simulate(plan(Transactions(commits=0.0, rolls_back=1.0), queues=3, ends=MINUTE))
    assert (outcome.consumed_all, outcome.stopped_at, outcome.counts["delivered"]) == (True, 0, 0)
    assert outcome.transactions is not None
    assert outcome.transactions.rolled_back == 60


# scenarios ----------------------------------------------------------------------------------------------------------------------------

TABLE = """\
[transactions]
commits = 0.5
rolls_back = 0.25
takes = "20ms"
decides = "90s"
"""
WHOLE = f"""\
group = "g"
topic = "orders"
until = "20m"
[messages]
rate = 10
lasts = "1m"
{TABLE}[[clients]]
count = 2
"""


@pytest.mark.parametrize(
    ("changed", "to", "line", "says"),
    [
        ("rolls_back = 0.25", "rolls_back = 0.6", 9, "commits and rolls_back of 1 at most together, found 0.5 and 0.6"),
        ("commits = 0.5", "commits = 1.5", 8, "a number from 0 to 1"),
        ("commits = 0.5", "commits = -0.1", 8, "a number from 0 to 1"),
        ("commits = 0.5\n", "", 7, "the field commits"),
        ("rolls_back = 0.25", "rolls_back = 0.5", 11, "because only the rest is decided later"),
        ("takes = \"20ms\"", "takes = \"-20ms\"", 10, "a number from 0"),
        ("takes = \"20ms\"", "takes = -1", 10, "a number from 0"),
        ("takes = \"20ms\"", "takes = [\"30ms\", \"20ms\"]", 10, "the lesser duration first"),
        ("decides = \"90s\"", "decides = \"2d\"", 11, "a day or less"),
        ("decides = \"90s\"", "then_commits = 0.5", 11, "the field decides, which then_commits needs"),
        ("decides = \"90s\"", "decide = \"90s\"", 11, "the nearest known name is decides"),
        ("lasts = \"1m\"", "delay = 3", 6, "producers remove the delay level"),
        ("rate = 10\nlasts = \"1m\"", "recorded = true", 5, "are already committed"),
        ("rate = 10", "rate = [[\"0s\", 10], [\"30s\", 40_000]]", 5, "1,000,000 messages at most with the backlog, if they are sent"),
        ("[[clients]]", "[broker]\ntransactionCheckInterval = 0\n[[clients]]", 13, "1000 or more"),
        ("[[clients]]", "[broker]\ntransactionTimeOut = -1\n[[clients]]", 13, "not below 0"),
        (TABLE, "[broker]\ntransactionCheckMax = 3\n", 8, "a table [transactions], which it needs"),
    ],
)  # fmt: skip
def test_transactions_that_cannot_be_are_refused_with_their_line(tmp_path: Path, changed: str, to: str, line: int, says: str) -> None:
    assert WHOLE.count(changed) == 1
    with pytest.raises(WorkloadError) as refused:
        read_scenario(WHOLE.replace(changed, to), str(tmp_path / "scenario.toml"))
    assert f"scenario.toml, line {line}" in str(refused.value)
    assert says in str(refused.value)


def scenario_plan(text: str, *varied: str) -> GroupPlan:
    (variant,) = read_scenario(text, "here", varied)
    with located("here", text):
        return plan_of(variant.scenario, 1, "here")


def test_transactions_are_read_as_the_scenario_says() -> None:
    found = scenario_plan(WHOLE, "broker.transactionCheckMax=3", "broker.transactionTimeOut=2000", "broker.transactionCheckInterval=10000")
    assert found.transactions == Transactions(
        commits=0.5,
        rolls_back=0.25,
        takes=Takes(CONSTANT, 20_000.0),
        decides=Takes(CONSTANT, 90.0 * SECOND),
        settings=CheckSettings(transaction_time_out=2000, transaction_check_max=3),
        check_interval=10 * SECOND,
    )
    assert scenario_plan(WHOLE).transactions == replace(found.transactions, settings=CheckSettings(), check_interval=MINUTE)


def test_a_message_keeps_the_properties_of_its_transaction() -> None:
    more = scenario_plan(WHOLE).messages.overhead - scenario_plan(WHOLE.replace(TABLE, "")).messages.overhead  # type: ignore[union-attr]
    assert more == len("REAL_TOPIC.orders.REAL_QID.0.TRAN_MSG.true.PGROUP.producers.")


def test_a_run_has_a_row_of_its_transactions() -> None:
    rows = [row for batch in rows_of(SimulationRun(2, 7, scenario_plan(WHOLE))) for row in batch.to_pylist()]
    (found,) = (row for row in rows if row["tableName"] == "simulated_transactions")
    (run,) = (row for row in rows if row["tableName"] == "simulation_run")
    assert (found["variant"], found["seed"], found["topic"], found["brokerName"]) == (2, 7, "orders", "broker-a")
    assert run["succeeded"] == found["committed"] + found["committedAgain"]
    assert found["sent"] == found["committed"] + found["rolledBack"]
    assert (found["givenUp"], found["undecided"]) == (0, 0)
    # two of three are committed after 20 ms; the others 90 s later, at the check that follows
    assert found["commitMillis50"] == 20
    assert 90_000 < found["commitMillis99"] <= found["commitMillisMax"] <= 150_000
