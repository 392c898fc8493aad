"""The compiled loop: it processes one event after the other, up to a time.

Not the broker's own. Rule: the loop stops before an event for which an array might be too small, and returns what the caller must do; the
next call continues there. Events during a client's stall happen when the stall ends.
"""

from __future__ import annotations

import numpy as np

from store_format.compiled import bare, inner
from udfs.simulation import event_heap as heap
from udfs.simulation import world as at
from udfs.simulation.consuming import end_work, expect_look, start_work
from udfs.simulation.consuming_orderly import end_turn, start_consumer, wait_for_thread
from udfs.simulation.pulling import answered_as_of, expect_answer, pull, take_answer
from udfs.simulation.world import MS, NONE

DONE, TELL, GROW, ASK = range(4)


@inner
def _lacks_room(w):  # type: ignore[no-untyped-def]
    """Return what the caller must do before the next event; DONE for nothing."""
    batch = w.cfg[at.CONSUME_BATCH]
    if w.counters[at.CONSUMED_ROWS] + batch > w.consumed.shape[0] or w.counters[at.DEAD_ROWS] + batch > w.dead.shape[0]:
        return TELL
    if w.counters[at.WAITING] + batch > w.pending.shape[0] or w.counters[at.HEAP] > w.heap.shape[0] // 2:
        return GROW
    return DONE


@inner
def _lacks_retries(w):  # type: ignore[no-untyped-def]
    """Return whether a delivery might lack room: all waiting messages may be due at once and go to one retry queue."""
    for one in range(w.cfg[at.RETRY_QUEUES]):
        queue = w.queues[w.cfg[at.QUEUES] + one]
        if queue[at.END] - queue[at.TRIMMED] + w.counters[at.WAITING] > w.retries.shape[1]:
            return True
    return False


@inner
def _wake(w):  # type: ignore[no-untyped-def]
    """Recalculate when the pulls of the retry topic are answered."""
    for slot in range(w.slots.shape[0]):
        row = w.slots[slot]
        if row[at.IN_USE] and row[at.QUEUE] >= w.cfg[at.QUEUES] and row[at.ANSWERED_AT] != NONE and not row[at.DROPPED]:
            as_of = answered_as_of(w, row[at.QUEUE], row[at.NEXT_OFFSET], row[at.ASKED_AT])
            if as_of < row[at.AS_OF]:
                expect_answer(w, slot)


@inner
def _deliver(w, level, now):  # type: ignore[no-untyped-def]
    """Run the delivery of a delay level: move due messages to the retry topic, and wake the pulls that wait for them."""
    line, arrived = w.levels[level], False
    while line[at.LEVEL_FIRST] != NONE and w.pending[line[at.LEVEL_FIRST], at.PENDING_STORED] // MS + w.delays[level] <= now // MS:
        first = line[at.LEVEL_FIRST]
        waiting = w.pending[first]
        line[at.LEVEL_FIRST] = waiting[at.PENDING_NEXT]
        queue = w.queues[w.cfg[at.QUEUES] + waiting[at.PENDING_INTO]]
        retry = w.retries[waiting[at.PENDING_INTO], queue[at.END] - queue[at.TRIMMED]]
        retry[at.RETRY_TIME] = now
        retry[at.RETRY_QUEUE] = waiting[at.PENDING_QUEUE]
        retry[at.RETRY_OFFSET] = waiting[at.PENDING_OFFSET]
        retry[at.RETRY_TRIES] = waiting[at.PENDING_TRIES]
        queue[at.END] += 1
        waiting[at.PENDING_NEXT] = w.counters[at.FREE]
        w.counters[at.FREE] = first
        w.counters[at.WAITING] -= 1
        arrived = True
    if line[at.LEVEL_FIRST] == NONE:
        line[at.LEVEL_LAST] = NONE
    else:
        expect_look(w, level)
    if arrived:
        _wake(w)


@inner
def _persist_offsets(w, client, now):  # type: ignore[no-untyped-def]
    """Commit a client's offsets: RemoteBrokerOffsetStore.persistAll, or LocalFileOffsetStore.persistAll when broadcasting."""
    slot = w.clients[client, at.FIRST_SLOT]
    while slot != NONE:
        row = w.slots[slot]
        if not row[at.DROPPED] and row[at.REACHED] != NONE:
            if w.cfg[at.BROADCAST]:
                w.local[client, row[at.QUEUE], at.STORED] = row[at.REACHED]
            else:
                w.queues[row[at.QUEUE], at.COMMITTED] = row[at.REACHED]
        slot = row[at.NEXT_SLOT]
    heap.push(w.heap, w.counters, now + w.cfg[at.PERSIST], heap.key_of(heap.PERSIST_OFFSETS, client))


@inner
def _client_of(w, kind, number):  # type: ignore[no-untyped-def]
    """Return the client of an event."""
    if kind == heap.PERSIST_OFFSETS:
        return np.int64(number)
    return w.slots[number // w.cfg[at.RING] if kind == heap.WORK_END else number, at.CLIENT]


@inner
def _happen(w, kind, number, now):  # type: ignore[no-untyped-def]
    """Process one event of a client."""
    if kind == heap.WORK_END:
        if w.cfg[at.ORDERLY]:
            end_turn(w, number // w.cfg[at.RING], now)
            start_work(w, w.slots[number // w.cfg[at.RING], at.CLIENT], now)
        else:
            end_work(w, number, now)
        return
    if kind == heap.PERSIST_OFFSETS:
        if w.clients[number, at.ALIVE]:
            _persist_offsets(w, number, now)
        return
    row = w.slots[number]
    row[at.EVENTS] -= 1
    if not w.clients[row[at.CLIENT], at.ALIVE]:
        return
    if kind == heap.PULL:
        pull(w, number, now)
    elif kind in (heap.LOCK_ONE, heap.FIX_OFFSET):
        w.counters[at.ASKING], w.counters[at.QUESTION] = number, kind
    elif kind == heap.CONSUME:
        if not row[at.DROPPED]:
            wait_for_thread(w, number)
            start_work(w, row[at.CLIENT], now)
    elif take_answer(w, number, now) > 0:
        if w.cfg[at.ORDERLY]:
            start_consumer(w, number)
        start_work(w, row[at.CLIENT], now)


@bare
def run(w, until):  # type: ignore[no-untyped-def]
    """Process the events before `until` (microseconds).

    Returns:
        DONE: there are no more events before `until`. TELL: the caller must take the rows of `consumed` and `dead`. GROW: the caller must
        enlarge an array. ASK: the caller must answer the event of kind `counters[QUESTION]` for the slot `counters[ASKING]`. Call again
        after the last three.
    """
    while w.counters[at.HEAP] > 0 and w.heap[0, 0] < until:
        lacks = _lacks_room(w)
        if lacks != DONE:
            return lacks
        now, key = w.heap[0, 0], w.heap[0, 1]
        kind, number = heap.kind_of(key), heap.number_of(key)
        if kind == heap.DELIVER:
            if _lacks_retries(w):
                return GROW
            heap.pop(w.heap, w.counters)
            _deliver(w, number, now)
        else:
            heap.pop(w.heap, w.counters)
            if kind == heap.ANSWER and w.slots[number, at.ANSWERED_AT] != now:  # an earlier answer replaced it
                w.slots[number, at.EVENTS] -= 1
                continue
            client = w.clients[_client_of(w, kind, number)]
            if client[at.ALIVE] and client[at.STALLED_UNTIL] > now:
                if kind == heap.ANSWER:
                    w.slots[number, at.ANSWERED_AT] = client[at.STALLED_UNTIL]
                heap.push(w.heap, w.counters, client[at.STALLED_UNTIL], key)
                continue
            _happen(w, kind, number, now)
        w.counters[at.EVENTS_DONE] += 1
        w.counters[at.NOW] = now
        if w.counters[at.ASKING] != NONE:
            return ASK
    return DONE
