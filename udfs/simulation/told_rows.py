"""What the loop writes down of messages that were consumed or given up, where somebody wants to know.

Not the broker's own: rows of `consumed` and `dead`, as `world` has their columns.
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
def tell_message(w, slot, entry, tries, started, result, now):  # type: ignore[no-untyped-def]
    """A message of a batch that the listener had; `tries` is how often it had been given before, NONE for as often as it was sent back."""
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
def tell_dead(w, queue, offset, tries, stored):  # type: ignore[no-untyped-def]
    """A dead letter, by where it was sent first."""
    if w.cfg[TELLS]:
        dead = w.dead[w.counters[DEAD_ROWS]]
        w.counters[DEAD_ROWS] += 1
        dead[D_TIME], dead[D_QUEUE], dead[D_OFFSET], dead[D_TRIES] = stored, queue, offset, tries
    w.counters[DEAD] += 1
