"""How far a group is at a moment, queue by queue.

Not the broker's own; `lag` of the pages and of mqadmin is brokerOffset less consumerOffset, as the broker has them.
"""

from __future__ import annotations

from typing import Final

from store_format.compiled import bare
from udfs.simulation.arrivals import arrival_time, end_offset
from udfs.simulation.world import COMMITTED, DISPATCH, POSITION

BROKER_OFFSET, CONSUMER_OFFSET, REACHED_OFFSET, WAITED = range(4)
LAG_COLUMNS: Final = 4


@bare
def sample_lag(w, now, rows):  # type: ignore[no-untyped-def]
    """Fill in, for each queue: the broker's offset, the committed one (-1 for none), the one that the client with the queue has reached,
    and how many microseconds the message there has waited (0 where there is none).
    """
    for queue in range(w.queues.shape[0]):
        end, position = end_offset(w, queue, now - w.cfg[DISPATCH]), w.queues[queue, POSITION]
        rows[queue, BROKER_OFFSET] = end
        rows[queue, CONSUMER_OFFSET] = w.queues[queue, COMMITTED]
        rows[queue, REACHED_OFFSET] = position
        rows[queue, WAITED] = now - arrival_time(w, queue, position) if position < end else 0
