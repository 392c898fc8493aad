"""Write the rows of messages that were consumed or became dead letters.

No code of the broker. A row goes to the array `consumed` or `dead`; `world` defines their columns.
"""

from __future__ import annotations

from store_format.compiled import inner
from udfs.simulation import world as at
from udfs.simulation.arrivals import origin


@inner
def write_consumed(w, slot, entry, tries, started, result, now):  # type: ignore[no-untyped-def]
    """Write a row of `consumed` for an entry of a slot: from `started` to `now` the listener had the message.

    `tries` is how often the listener had the message before; NONE means the number of times that the message was sent back.
    """
    queue = w.slots[slot, at.QUEUE]
    row = w.consumed[w.counters[at.CONSUMED_ROWS]]
    w.counters[at.CONSUMED_ROWS] += 1
    row[at.C_QUEUE] = queue
    row[at.C_OFFSET] = entry[at.OFFSET]
    row[at.C_FIRST_QUEUE], row[at.C_FIRST_OFFSET], row[at.C_TRY] = origin(w, queue, entry[at.OFFSET])
    if tries >= 0:
        row[at.C_TRY] = tries
    row[at.C_CLIENT] = w.slots[slot, at.CLIENT]
    row[at.C_PULLED] = entry[at.PULLED]
    row[at.C_STARTED] = started
    row[at.C_ENDED] = now
    row[at.C_RESULT] = result


@inner
def write_dead(w, queue, offset, tries, stored):  # type: ignore[no-untyped-def]
    """Count a dead letter; if the plan `tells`, write its row of `dead` with the queue and offset where it was first sent."""
    if w.cfg[at.TELLS]:
        dead = w.dead[w.counters[at.DEAD_ROWS]]
        w.counters[at.DEAD_ROWS] += 1
        dead[at.D_TIME], dead[at.D_QUEUE], dead[at.D_OFFSET], dead[at.D_TRIES] = stored, queue, offset, tries
    w.counters[at.DEAD] += 1
