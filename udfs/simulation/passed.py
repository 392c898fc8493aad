"""Which messages of a queue a listener of the group has had: a message that it gets again is a duplicate.

Not the broker's own. A client passes the messages of a queue in order from the offset where it begins. So the messages that nobody had are
those from BEGUN on, and the skipped ranges below: one is left where a client begins beyond all others. That happens in a group that never
committed, as each of its clients begins where the queue ends at that moment.
Rule: a client that begins inside a skipped range splits it, so each range is passed from its first offset on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_format.compiled import inner
from udfs.simulation import world as at
from udfs.simulation.world import NONE

if TYPE_CHECKING:
    from udfs.simulation.world import World


@inner
def had_before(w, queue, offset):  # type: ignore[no-untyped-def]
    """Record that a listener of the group gets a message; return whether one had it before."""
    row = w.queues[queue]
    if offset >= row[at.BEGUN]:
        row[at.BEGUN] = offset + 1
        return False
    place = row[at.FIRST_SKIPPED]
    while place != NONE:
        skipped = w.skipped[place]
        if skipped[at.SKIPPED_FROM] <= offset < skipped[at.SKIPPED_TO]:
            skipped[at.SKIPPED_FROM] = offset + 1
            return False
        place = skipped[at.NEXT_SKIPPED]
    return True


def begin_at(world: World, queue: int, offset: int) -> World:
    """Record that a client begins to pull a queue at an offset; return the world, with a longer `skipped` if a range was added."""
    if world.cfg[at.BROADCAST]:
        return world
    row = world.queues[queue]
    place = int(row[at.FIRST_SKIPPED])
    if offset > row[at.BEGUN]:
        added = [int(row[at.BEGUN]), offset, place]
        row[at.BEGUN] = offset
    else:
        while place != NONE and not world.skipped[place, at.SKIPPED_FROM] < offset < world.skipped[place, at.SKIPPED_TO]:
            place = int(world.skipped[place, at.NEXT_SKIPPED])
        if place == NONE:
            return world
        added = [offset, int(world.skipped[place, at.SKIPPED_TO]), int(row[at.FIRST_SKIPPED])]
        world.skipped[place, at.SKIPPED_TO] = offset
    row[at.FIRST_SKIPPED] = len(world.skipped)
    return world._replace(skipped=np.concatenate((world.skipped, np.array([added], np.int64))))
