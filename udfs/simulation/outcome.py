"""Run a simulation, and return the figures by which variants are compared.

Not the broker's own. A group has caught up when no message of the topic waits longer than CAUGHT_UP. Lag is sampled at intervals, so
`caught_up_at` is the time of a sample.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from udfs.simulation import world as at
from udfs.simulation.group_engine import GroupEngine, WrittenRows
from udfs.simulation.group_plan import SECOND, GroupPlan
from udfs.simulation.group_run import GroupRun, Rebalanced
from udfs.simulation.lag_sample import LAG, WAITED
from udfs.simulation.transactions import TransactionFigures, transacted

CAUGHT_UP: Final = 10 * SECOND
_COUNTED: Final = {
    "pulls": at.PULLS,
    "pulls_found": at.PULLS_FOUND,
    "flow_control": at.FLOW_CONTROL,
    "delivered": at.DELIVERED,
    "duplicates": at.DUPLICATES,
    "succeeded": at.SUCCEEDED,
    "sent_back": at.SENT_BACK,
    "dead": at.DEAD,
    "not_counted": at.NOT_COUNTED,
    "events": at.EVENTS_DONE,
}


@dataclass(frozen=True, slots=True)
class ClientWork:
    """The work of one client: batches passed to its listener, and messages that it consumed with success.

    `alive` is whether it was running at the end, `worked` the sum of microseconds in which its listener's threads were busy.
    """

    client_id: str
    alive: bool
    batches: int
    messages: int
    worked: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished simulation.

    Attributes:
        stopped_at: when the simulation ended, microseconds.
        consumed_all: whether it ended because all messages were consumed and committed; if not, it was stopped at the plan's `until`.
        counts: counter name -> value, for the names above.
        times: times of the samples of lag.
        lag: array (samples, queues, LAG_COLUMNS) of `lag_sample`; retry queues come last.
        queues: number of queues of the topic.
        transactions: figures of the transactions at the plan's `until`, None if the plan has none.
    """

    stopped_at: int
    consumed_all: bool
    counts: dict[str, int]
    times: NDArray[np.int64]
    lag: NDArray[np.int64]
    queues: int
    rebalances: list[Rebalanced]
    clients: list[ClientWork]
    transactions: TransactionFigures | None = None

    @property
    def caught_up_at(self) -> int | None:
        """Return the time of the first sample from which on the group had caught up, None if it had not at the last sample."""
        behind = np.flatnonzero(self.lag[:, : self.queues, WAITED].max(axis=1) > CAUGHT_UP)
        first = int(behind[-1]) + 1 if len(behind) else 0
        return int(self.times[first]) if first < len(self.times) else None

    @property
    def lag_messages(self) -> NDArray[np.int64]:
        """Return the lag of the topic in messages at each sample."""
        lag: NDArray[np.int64] = self.lag[:, : self.queues, LAG].sum(axis=1)
        return lag

    @property
    def idle_clients(self) -> int:
        """Return how many clients were running at the end and never had a message."""
        return sum(client.alive and client.batches == 0 for client in self.clients)


def simulate(plan: GroupPlan, tell: Callable[[WrittenRows], None] = lambda _: None) -> Outcome:
    """Run a plan and return its outcome; `tell` is called with the rows of consumed messages if the plan `tells`."""
    transactions = None
    if plan.transactions:
        messages, transactions = transacted(plan, plan.transactions)
        plan = replace(plan, messages=messages, transactions=None)
    engine = GroupEngine(plan)
    run = GroupRun(plan, engine)
    times: list[int] = []
    looks: list[NDArray[np.int64]] = []
    idle = False

    def look(now: int) -> bool:
        nonlocal idle
        times.append(now)
        looks.append(engine.lag(now))
        idle = engine.is_idle()
        return idle

    run.run(sample=look, tell=tell)
    engine.tell_rest(tell)
    world = engine.world
    return Outcome(
        stopped_at=run.stopped_at,
        consumed_all=idle,
        counts={name: int(world.counters[position]) for name, position in _COUNTED.items()},
        times=np.array(times, np.int64),
        lag=np.stack(looks),
        queues=len(plan.queues),
        rebalances=run.rebalances,
        clients=[
            ClientWork(
                plan.clients[number].client_id,
                bool(world.clients[client, at.ALIVE]),
                int(world.clients[client, at.STARTED_BATCHES]),
                int(world.clients[client, at.DONE_MESSAGES]),
                int(world.clients[client, at.WORKED]),
            )
            for number, client in run.clients()
        ],
        transactions=transactions,
    )
