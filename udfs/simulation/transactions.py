"""Transactions in virtual time: producers end their half messages, the broker checks them, and committed messages come to the topic.

Broker source (4.9.3): EndTransactionProcessor.processRequest, TransactionalMessageCheckService, AbstractTransactionalMessageCheckListener
(sendCheckMessage); client: DefaultMQProducerImpl (endTransaction, checkTransactionState). A check is `udfs.broker.transaction_check`.
Rules: each broker has one half queue and one op queue. When a half message is committed, its message is appended to its own queue, and then
an op message to the op queue. Every transactionCheckInterval the broker checks its half messages. A producer that the check asks, and that
knows the result, ends the half message that the check put back.
Surprises: if a local transaction is still running at its first check, the producer later ends the half message that it sent, not the one
that the check put back. The broker then asks about that one too, and a committed message comes twice. A discarded half message still comes
to the topic if its producer commits it later.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from udfs.broker.transaction_check import OPS_AT_ONCE, HalfMessage, OpMessage, OpRead, check_queue
from udfs.simulation.group_plan import GroupPlan, Recorded, Transactions
from udfs.simulation.half_messages import BODY, FLAGS, IS_COMMITTED, IS_TOLD, KNOWN, OFFSET, QUEUE, RECORD, STORED, half_messages
from udfs.simulation.world import BEFORE, MS, NEVER

_NO_PROPERTIES: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionFigures:
    """Counts of transactions by their state at the end.

    Attributes:
        sent: half messages that producers sent.
        committed: transactions whose message came to the topic.
        committed_again: messages that came to the topic once more.
        rolled_back: transactions that were rolled back.
        checked: how often a producer was asked.
        given_up: half messages that went to CHECK_MAX_TIME_TOPIC.
        undecided: transactions that were neither ended nor discarded.
        commit_delays: microseconds from storing each half message to its first commit, ascending.
    """

    sent: int
    committed: int
    committed_again: int
    rolled_back: int
    checked: int
    given_up: int
    undecided: int
    commit_delays: NDArray[np.int64]


def transacted(plan: GroupPlan, transactions: Transactions) -> tuple[Recorded, TransactionFigures]:
    """Return the messages that transactions at the plan's rates bring to the topic, and the counts of transactions at `until`."""
    rows = half_messages(plan, transactions)
    runs = transaction_runs(plan, transactions, rows)
    backlog = rows[rows[:, STORED] == BEFORE]
    return _recorded(np.concatenate([backlog, *(run.came() for run in runs)]), len(plan.queues)), _figures(runs)


def transaction_runs(plan: GroupPlan, transactions: Transactions, rows: NDArray[np.int64]) -> list[TransactionRun]:
    """Return the finished run of transactions of each broker of a plan; `rows` are the plan's `half_messages`."""
    numbers = {broker: number for number, broker in enumerate(plan.brokers)}
    broker_of = np.array([numbers[queue.brokerName] for queue in plan.queues])[rows[:, QUEUE]]
    runs = []
    for number in range(len(plan.brokers)):
        mine = rows[(broker_of == number) & (rows[:, STORED] > BEFORE) & (rows[:, STORED] <= plan.until)]
        run = TransactionRun(plan, transactions, mine[np.lexsort((mine[:, OFFSET], mine[:, QUEUE], mine[:, STORED]))])
        run.run()
        runs.append(run)
    return runs


def _recorded(came: NDArray[np.int64], queues: int) -> Recorded:
    """Return rows, whose STORED is when the message came to the topic, as recorded messages, by queue and time."""
    ordered = came[np.lexsort((came[:, STORED], came[:, QUEUE]))]  # keeps the order of messages that came at one time
    return Recorded(
        first=np.searchsorted(ordered[:, QUEUE], np.arange(queues + 1)).astype(np.int64),
        first_offset=np.zeros(queues, np.int64),
        times=ordered[:, STORED].copy(),
        flags=ordered[:, FLAGS].astype(np.uint8),
        sizes=ordered[:, [RECORD, BODY]].astype(np.int32, order="C"),  # another layout would compile the event loop again
    )


def _figures(runs: list[TransactionRun]) -> TransactionFigures:
    rows = np.concatenate([run.rows for run in runs])
    ended_at = np.concatenate([run.ended_at for run in runs])
    given_up = np.concatenate([run.given_up for run in runs])
    ended = ended_at != NEVER
    committed = ended & (rows[:, IS_COMMITTED] == 1)
    return TransactionFigures(
        sent=len(rows),
        committed=int(committed.sum()),
        committed_again=sum(len(run.commits) for run in runs) - int(committed.sum()),
        rolled_back=int((ended & ~committed).sum()),
        checked=sum(run.checked for run in runs),
        given_up=int(given_up.sum()),
        undecided=int((~ended & ~given_up).sum()),
        commit_delays=np.sort((ended_at - rows[:, STORED])[committed]),
    )


@dataclass(slots=True)
class TransactionRun:
    """A broker's half queue and op queue (`TransactionQueues`), and its transactions, numbered in the order of their half messages.

    Attributes:
        rows: rows of `half_messages`, in the order in which they are stored.
        half_queue: (transaction, when it was stored, properties) of each half message.
        op_queue: (when it was stored, offset of the half message) of each op message.
        ends: (when, transaction, offset of its half message) of each future END_TRANSACTION.
        commits: (when, transaction) of each message that came to the topic.
        discards: (when, offset of the half message) of each discarded half message.
        ended_at: when each transaction was first ended, NEVER if it was not.
        given_up: whether each transaction was discarded.
        half_offset, op_offset: offsets where the next check begins.
        asked: transactions whose producers the current check asks, each with the offset of the half message that was put back.
    """

    plan: GroupPlan
    transactions: Transactions
    rows: NDArray[np.int64]
    now: int = 0
    half_offset: int = 0
    op_offset: int = 0
    checked: int = 0
    half_queue: list[tuple[int, int, Mapping[str, str]]] = field(default_factory=list)
    op_queue: list[tuple[int, int]] = field(default_factory=list)
    ends: list[tuple[int, int, int]] = field(default_factory=list)
    commits: list[tuple[int, int]] = field(default_factory=list)
    discards: list[tuple[int, int]] = field(default_factory=list)
    asked: list[tuple[int, int]] = field(default_factory=list)
    ended_at: NDArray[np.int64] = field(init=False)
    given_up: NDArray[np.bool_] = field(init=False)
    _next: int = 0  # number of the transaction whose half message is stored next

    def __post_init__(self) -> None:
        self.ended_at = np.full(len(self.rows), NEVER, np.int64)
        self.given_up = np.zeros(len(self.rows), np.bool_)

    def run(self) -> None:
        """Run all events until the end; checks take no time, and are skipped when no half message is left to check."""
        every, until = self.transactions.check_interval, self.plan.until
        for moment in range(every, until + 1, every):
            self._advance(moment)
            result = check_queue(self, self.half_offset, self.op_offset, moment // MS, self.transactions.settings)
            self.half_offset, self.op_offset = result.half_offset, result.op_offset
            for half in result.discarded:
                self.given_up[self.half_queue[half.queue_offset][0]] = True
                self.discards.append((moment, half.queue_offset))
            self._ask(moment)
            if self._next == len(self.rows) and self.half_offset == len(self.half_queue):
                break
        self._advance(until)

    def came(self) -> NDArray[np.int64]:
        """Return the rows of the messages that came to the topic; STORED is the time at which each came."""
        commits = np.array(self.commits, np.int64).reshape(-1, 2)
        rows: NDArray[np.int64] = self.rows[commits[:, 1]]
        rows[:, STORED] = commits[:, 0]
        return rows

    # between two checks -------------------------------------------------------------------------------------------------------------

    def _advance(self, until: int) -> None:
        """Process the half messages that producers send and end, up to a time."""
        network = self.plan.broker.network
        behind = int(np.searchsorted(self.rows[:, STORED], until, side="right"))
        for transaction in range(self._next, behind):
            row = self.rows[transaction]
            if row[IS_TOLD]:
                heapq.heappush(self.ends, (int(row[KNOWN]) + network, transaction, len(self.half_queue)))
            self.half_queue.append((transaction, int(row[STORED]), _NO_PROPERTIES))
        self._next = behind
        while self.ends and self.ends[0][0] <= until:
            self._end(*heapq.heappop(self.ends))
        self.now = until

    def _end(self, time: int, transaction: int, half_offset: int) -> None:
        """Process an END_TRANSACTION: append the message to the topic if it is committed, and an op message to the op topic."""
        if self.rows[transaction, IS_COMMITTED]:
            self.commits.append((time, transaction))
        self.op_queue.append((time, half_offset))
        self.ended_at[transaction] = min(time, int(self.ended_at[transaction]))

    def _ask(self, moment: int) -> None:
        """Send CHECK_TRANSACTION_STATE for the half messages that were put back; producers that know the result end them."""
        network = self.plan.broker.network
        for transaction, half_offset in self.asked:
            if self.rows[transaction, KNOWN] <= moment + network:
                heapq.heappush(self.ends, (moment + 2 * network, transaction, half_offset))
        self.checked += len(self.asked)
        self.asked.clear()

    # what a check sees --------------------------------------------------------------------------------------------------------------

    def half(self, offset: int) -> HalfMessage | int | None:
        """Return the half message at an offset, None if none is visible yet."""
        if offset >= len(self.half_queue):
            return None
        transaction, stored, properties = self.half_queue[offset]
        if stored + self.plan.broker.dispatch > self.now:
            return None
        born = int(self.rows[transaction, STORED]) - self.plan.broker.network  # a half message that is put back keeps its bornTimestamp
        return HalfMessage(queue_offset=offset, born_timestamp=born // MS, store_timestamp=stored // MS, properties=properties)

    def ops(self, offset: int) -> OpRead:
        """Return the visible op messages from an offset on."""
        seen = bisect_right(self.op_queue, self.now - self.plan.broker.dispatch, key=itemgetter(0))
        found = [
            OpMessage(offset + number, str(half_offset), stored // MS)
            for number, (stored, half_offset) in enumerate(self.op_queue[offset : min(offset + OPS_AT_ONCE, seen)])
        ]
        return OpRead(found or None, offset + len(found))

    def put_back(self, half: HalfMessage, properties: Mapping[str, str], *, immune: bool) -> None:
        """Store a half message again."""
        transaction, _, _ = self.half_queue[half.queue_offset]
        self.asked.append((transaction, len(self.half_queue)))
        self.half_queue.append((transaction, self.now, properties))
