"""The future events, earliest first: a binary heap in an array.

Not the broker's own. Rule: events of one moment are ordered by their key (kind, then number), so the order of insertion does not matter.
Two events with the same time and key are the same event.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from store_format.compiled import bare
from udfs.simulation.world import HEAP

DELIVER, WORK_END, PERSIST_OFFSETS, PULL, ANSWER, CONSUME, LOCK_ONE, FIX_OFFSET = range(8)
_KIND_BITS: Final = 48
_NUMBER: Final = (1 << _KIND_BITS) - 1


@bare
def key_of(kind, number):  # type: ignore[no-untyped-def]
    """Return the key of an event."""
    return (np.int64(kind) << _KIND_BITS) | number


@bare
def kind_of(key):  # type: ignore[no-untyped-def]
    """Return the kind of an event from its key."""
    return key >> _KIND_BITS


@bare
def number_of(key):  # type: ignore[no-untyped-def]
    """Return the number in a key: by kind a delay level, a place in the ring, a client or a slot."""
    return key & _NUMBER


@bare
def push(heap, counters, time, key):  # type: ignore[no-untyped-def]
    """Add an event; the heap must have room."""
    at = counters[HEAP]
    counters[HEAP] = at + 1
    while at > 0:
        above = (at - 1) >> 1
        other = heap[above, 0]
        if other < time or (other == time and heap[above, 1] <= key):
            break
        heap[at, 0] = other
        heap[at, 1] = heap[above, 1]
        at = above
    heap[at, 0] = time
    heap[at, 1] = key


@bare
def pop(heap, counters):  # type: ignore[no-untyped-def]
    """Remove the first event and return it."""
    size = counters[HEAP] - 1
    counters[HEAP] = size
    time, key = heap[size, 0], heap[size, 1]
    at = np.int64(0)
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        right = below + 1
        if right < size and (heap[right, 0] < heap[below, 0] or (heap[right, 0] == heap[below, 0] and heap[right, 1] < heap[below, 1])):
            below = right
        if time < heap[below, 0] or (time == heap[below, 0] and key <= heap[below, 1]):
            break
        heap[at, 0] = heap[below, 0]
        heap[at, 1] = heap[below, 1]
        at = below
    heap[at, 0] = time
    heap[at, 1] = key
