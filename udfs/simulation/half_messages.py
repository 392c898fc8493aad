"""The half messages of a simulation: when each is stored, and when its producer knows the result of its local transaction.

Client source (4.9.3): DefaultMQProducerImpl.sendMessageInTransaction. Its order: send the half message, run the local transaction after
the answer, end the half message.
Rule: the half messages are the messages of the plan's rates. Each draws the same random numbers as without transactions, and more.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from store_format.compiled import bare
from store_format.made.made_values import unit
from udfs.simulation.arrivals import arrival_time, body_size, matches, record_size
from udfs.simulation.draws import DECISION, DECISION_TIME, LOCAL_TRANSACTION, LOCAL_TRANSACTION_TIME, draw, message_stream
from udfs.simulation.group_plan import GroupPlan, Transactions
from udfs.simulation.new_world import new_world
from udfs.simulation.service_time import CONSTANT, Takes, time_taken
from udfs.simulation.world import BACKLOG_END, BEFORE, COMING, NETWORK, NEVER, QUEUES, SEED

# longest local transaction, and longest time until its producer knows the result, in microseconds
LONGEST_TRANSACTION: Final = 86_400 * 1_000_000

# columns of the rows
STORED, QUEUE, OFFSET, FLAGS, RECORD, BODY, KNOWN, IS_COMMITTED, IS_TOLD = range(9)
_COLUMNS: Final = 9
# positions in the numbers of `_fill`
_COMMITS, _KNOWS, _THEN_COMMITS, _TAKES, _TAKES_A, _TAKES_B, _DECIDES, _DECIDES_A, _DECIDES_B = range(9)
_NOTHING: Final = -1.0


def half_messages(plan: GroupPlan, transactions: Transactions) -> NDArray[np.int64]:
    """Return a row for each message of a plan's rates.

    STORED is when the half message is stored (microseconds), BEFORE for a message of the backlog, which was committed earlier. QUEUE is the
    message's own queue, OFFSET its number there. FLAGS, RECORD and BODY are as in `Recorded`. KNOWN is when the producer knows the result
    of the local transaction, NEVER if it never does. IS_COMMITTED is whether the result is a commit, else it is a rollback. IS_TOLD is
    whether the producer ends the half message by itself; if not, it does so only after the broker's check asks it.
    """
    world = new_world(plan)
    rows = np.empty((int((world.queues[:, BACKLOG_END] + world.queues[:, COMING]).sum()), _COLUMNS), np.int64)
    late = transactions.decides or Takes(CONSTANT, _NOTHING)
    numbers = [transactions.commits, transactions.commits + transactions.rolls_back, transactions.then_commits]
    numbers += [time for one in (transactions.takes, late) for time in (one.shape, one.first, one.second)]
    _fill(world, np.array(numbers, np.float64), rows)
    return rows


@bare
def _fill(w, numbers, rows):  # type: ignore[no-untyped-def]
    """Fill `rows` with the messages of one queue after the other."""
    at = 0
    for queue in range(w.cfg[QUEUES]):
        for offset in range(w.queues[queue, BACKLOG_END] + w.queues[queue, COMING]):
            row = rows[at]
            at += 1
            body = body_size(w, queue, offset)
            row[STORED] = arrival_time(w, queue, offset)
            row[QUEUE], row[OFFSET], row[FLAGS] = queue, offset, matches(w, queue, offset)
            row[RECORD], row[BODY] = record_size(w, queue, offset, body), body
            row[KNOWN], row[IS_COMMITTED], row[IS_TOLD] = BEFORE, True, False
            if row[STORED] == BEFORE:
                continue
            stream = message_stream(w.cfg[SEED], queue, offset)
            ending = unit(draw(stream, 0, LOCAL_TRANSACTION))
            row[IS_TOLD] = ending < numbers[_KNOWS]
            row[KNOWN] = row[STORED] + w.cfg[NETWORK]
            if row[IS_TOLD]:
                row[IS_COMMITTED] = ending < numbers[_COMMITS]
                row[KNOWN] += time_taken(
                    int(numbers[_TAKES]), numbers[_TAKES_A], numbers[_TAKES_B], stream, 0, LOCAL_TRANSACTION_TIME, LONGEST_TRANSACTION
                )
            elif numbers[_DECIDES_A] == _NOTHING:
                row[KNOWN] = NEVER
            else:
                row[IS_COMMITTED] = unit(draw(stream, 0, DECISION)) < numbers[_THEN_COMMITS]
                row[KNOWN] += time_taken(
                    int(numbers[_DECIDES]), numbers[_DECIDES_A], numbers[_DECIDES_B], stream, 0, DECISION_TIME, LONGEST_TRANSACTION
                )
