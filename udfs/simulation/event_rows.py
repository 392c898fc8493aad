"""Write the rows of messages that were consumed or became dead letters.

No code of the broker. A row goes to the array `consumed` or `dead`; `world` defines their columns.
"""

from __future__ import annotations

from store_format.compiled import bare
from udfs.simulation.arrivals import origin
from udfs.simulation.world import (
    C_CLIENT,
    C_ENDED,
    C_FIRST_OFFSET,
    C_FIRST_QUEUE,
    C_OFFSET,
    C_PULLED,
    C_QUEUE,
    C_RESULT,
    C_STARTED,
    C_TRY,
    CLIENT,
    CONSUMED_ROWS,
    D_OFFSET,
    D_QUEUE,
    D_TIME,
    D_TRIES,
    DEAD,
    DEAD_ROWS,
    OFFSET,
    PULLED,
    QUEUE,
    TELLS,
)


@bare
def write_consumed(w, slot, entry, tries, started, result, now):  # type: ignore[no-untyped-def]
    """Write a row of `consumed` for an entry of a slot: from `started` to `now` the listener had the message.

    `tries` is how often the listener had the message before; NONE means the number of times that the message was sent back.
    """
    queue = w.slots[slot, QUEUE]
    row = w.consumed[w.counters[CONSUMED_ROWS]]
    w.counters[CONSUMED_ROWS] += 1
    row[C_QUEUE] = queue
    row[C_OFFSET] = entry[OFFSET]
    row[C_FIRST_QUEUE], row[C_FIRST_OFFSET], row[C_TRY] = origin(w, queue, entry[OFFSET])
    if tries >= 0:
        row[C_TRY] = tries
    row[C_CLIENT] = w.slots[slot, CLIENT]
    row[C_PULLED] = entry[PULLED]
    row[C_STARTED] = started
    row[C_ENDED] = now
    row[C_RESULT] = result


@bare
def write_dead(w, queue, offset, tries, stored):  # type: ignore[no-untyped-def]
    """Count a dead letter; if the plan has rows written, write its row of `dead` with the queue and offset where it was first sent."""
    if w.cfg[TELLS]:
        dead = w.dead[w.counters[DEAD_ROWS]]
        w.counters[DEAD_ROWS] += 1
        dead[D_TIME], dead[D_QUEUE], dead[D_OFFSET], dead[D_TRIES] = stored, queue, offset, tries
    w.counters[DEAD] += 1
