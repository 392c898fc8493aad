"""What a simulation comes to: one run from the beginning to the end, and the figures by which variants are compared.

Not the broker's own. A group has caught up when no message of the topic waits for longer than CAUGHT_UP; lag is looked at now and then, so
that times are those of the next look.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from udfs.simulation import world as at
from udfs.simulation.group_engine import GroupEngine, Told
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
    """What a client did.

    Attributes:
        alive: whether it was there at the end.
        batches: that its listener was given.
        messages: that it consumed with success.
        worked: microseconds that its listener's threads were busy.
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
        stopped_at: when it ended, microseconds.
        consumed_all: it ended because all that ever came was consumed and committed; else it was cut.
        counts: by name, as above.
        times: of the looks at lag.
        lag: (looks, queues, LAG_COLUMNS) as `lag_sample` has them; retry queues come last.
        queues: of the topic.
        transactions: what became of them by the plan's `until`, None where there are none.
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
        """The first look from which on no message of the topic had waited for long, None where one had at the last look."""
        behind = np.flatnonzero(self.lag[:, : self.queues, WAITED].max(axis=1) > CAUGHT_UP)
        first = int(behind[-1]) + 1 if len(behind) else 0
        return int(self.times[first]) if first < len(self.times) else None

    @property
    def lag_messages(self) -> NDArray[np.int64]:
        """Messages of the topic that are not committed, at each look; of a group that broadcasts, those that a client has not reached."""
        lag: NDArray[np.int64] = self.lag[:, : self.queues, LAG].sum(axis=1)
        return lag

    @property
    def idle_clients(self) -> int:
        """Clients that were there at the end and never had a message."""
        return sum(client.alive and client.batches == 0 for client in self.clients)


def simulate(plan: GroupPlan, tell: Callable[[Told], None] = lambda _: None) -> Outcome:
    """Run a plan; `tell` is given what is consumed, batch by batch, where the plan tells it."""
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
