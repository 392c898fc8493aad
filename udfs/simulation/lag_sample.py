"""The consumer lag of a group at a moment, for each queue.

Not the broker's own code. `lag` is brokerOffset minus consumerOffset, as in mqadmin. A broadcasting group commits no offset at the broker:
its offset of a queue is the least one among its clients, and without a client its lag is 0.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from store_format.compiled import bare, inner
from udfs.simulation.arrivals import arrival_time, end_offset
from udfs.simulation.world import ALIVE, BEFORE, BROADCAST, COMMITTED, DISPATCH, LOCAL_POSITION, NEVER, NONE, POSITION

BROKER_OFFSET, CONSUMER_OFFSET, REACHED_OFFSET, WAITED, LAG = range(5)
LAG_COLUMNS: Final = 5
WAITED_FROM_BEFORE: Final = NEVER  # the message is of the backlog, so its waiting time is unknown


@inner
def _position(w, queue, end):  # type: ignore[no-untyped-def]
    """Return the offset that the group has reached in a queue."""
    if not w.cfg[BROADCAST]:
        return w.queues[queue, POSITION]
    least = np.int64(NEVER)
    for client in range(w.clients.shape[0] if queue < w.local.shape[1] else 0):
        if w.clients[client, ALIVE]:
            least = min(least, max(w.local[client, queue, LOCAL_POSITION], np.int64(0)))
    return end if least == NEVER else least


@bare
def sample_lag(w, now, rows):  # type: ignore[no-untyped-def]
    """Fill `rows` with a row for each queue: (broker offset, committed offset, reached offset, waiting time, lag).

    The committed offset is -1 if there is none. The reached offset is that of the queue's client. The waiting time is that of the message
    at the reached offset, in microseconds; 0 if there is no such message.
    """
    for queue in range(w.queues.shape[0]):
        end = end_offset(w, queue, now - w.cfg[DISPATCH])
        position = _position(w, queue, end)
        committed = np.int64(NONE) if w.cfg[BROADCAST] else w.queues[queue, COMMITTED]
        rows[queue, BROKER_OFFSET] = end
        rows[queue, CONSUMER_OFFSET] = committed
        rows[queue, REACHED_OFFSET] = position
        rows[queue, WAITED] = 0
        if position < end:
            arrived = arrival_time(w, queue, position)
            rows[queue, WAITED] = WAITED_FROM_BEFORE if arrived == BEFORE else now - arrived
        rows[queue, LAG] = end - (position if w.cfg[BROADCAST] else max(committed, 0))
