"""How far a group is at a moment, queue by queue.

Not the broker's own; `lag` of the pages and of mqadmin is brokerOffset less consumerOffset, as the broker has them. A group that broadcasts
commits nothing there: of each queue it is as far as its client that is furthest behind, and where it has no client nobody waits.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from store_format.compiled import bare
from udfs.simulation.arrivals import arrival_time, end_offset
from udfs.simulation.world import ALIVE, BEFORE, BROADCAST, COMMITTED, DISPATCH, LOCAL_POSITION, NEVER, NONE, POSITION

BROKER_OFFSET, CONSUMER_OFFSET, REACHED_OFFSET, WAITED, LAG = range(5)
LAG_COLUMNS: Final = 5
WAITED_FROM_BEFORE: Final = NEVER  # the message was there at the start, and nobody knows since when


@bare
def _position(w, queue, end):  # type: ignore[no-untyped-def]
    """The offset that the group has reached."""
    if not w.cfg[BROADCAST]:
        return w.queues[queue, POSITION]
    least = np.int64(NEVER)
    for client in range(w.clients.shape[0] if queue < w.local.shape[1] else 0):
        if w.clients[client, ALIVE]:
            least = min(least, max(w.local[client, queue, LOCAL_POSITION], np.int64(0)))
    return end if least == NEVER else least


@bare
def sample_lag(w, now, rows):  # type: ignore[no-untyped-def]
    """Fill in, for each queue: the broker's offset, the committed one (-1 for none), the one that the client with the queue has reached,
    how many microseconds the message there has waited (0 where there is none), and the lag.
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
