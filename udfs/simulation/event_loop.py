"""The compiled loop: it processes one event after the other, up to a time.

Not the broker's own. Rule: the loop stops before an event for which an array might be too small, and returns what the caller must do; the
next call continues there. Events during a client's stall happen when the stall ends.
"""

from __future__ import annotations

import numpy as np

from store_format.compiled import bare
from udfs.simulation.consuming import end_work, expect_look, start_work
from udfs.simulation.consuming_orderly import end_turn, start_consumer, wait_for_thread
from udfs.simulation.event_heap import (
    ANSWER,
    CONSUME,
    DELIVER,
    FIX_OFFSET,
    LOCK_ONE,
    PERSIST_OFFSETS,
    PULL,
    WORK_END,
    key_of,
    kind_of,
    number_of,
    pop,
    push,
)
from udfs.simulation.pulling import answered_as_of, expect_answer, pull, take_answer
from udfs.simulation.world import (
    ALIVE,
    ANSWERED_AT,
    AS_OF,
    ASKED_AT,
    ASKING,
    BROADCAST,
    CLIENT,
    COMMITTED,
    CONSUME_BATCH,
    CONSUMED_ROWS,
    DEAD_ROWS,
    DROPPED,
    END,
    EVENTS,
    EVENTS_DONE,
    FIRST_SLOT,
    FREE,
    HEAP,
    IN_USE,
    LEVEL_FIRST,
    LEVEL_LAST,
    MS,
    NEXT_OFFSET,
    NEXT_SLOT,
    NONE,
    NOW,
    ORDERLY,
    PENDING_INTO,
    PENDING_NEXT,
    PENDING_OFFSET,
    PENDING_QUEUE,
    PENDING_STORED,
    PENDING_TRIES,
    PERSIST,
    QUESTION,
    QUEUE,
    QUEUES,
    REACHED,
    RETRY_OFFSET,
    RETRY_QUEUE,
    RETRY_QUEUES,
    RETRY_TIME,
    RETRY_TRIES,
    RING,
    STALLED_UNTIL,
    STORED,
    TRIMMED,
    WAITING,
)

DONE, TELL, GROW, ASK = range(4)


@bare
def _lacks_room(w):  # type: ignore[no-untyped-def]
    """Return what the caller must do before the next event; DONE for nothing."""
    batch = w.cfg[CONSUME_BATCH]
    if w.counters[CONSUMED_ROWS] + batch > w.consumed.shape[0] or w.counters[DEAD_ROWS] + batch > w.dead.shape[0]:
        return TELL
    if w.counters[WAITING] + batch > w.pending.shape[0] or w.counters[HEAP] > w.heap.shape[0] // 2:
        return GROW
    return DONE


@bare
def _lacks_retries(w):  # type: ignore[no-untyped-def]
    """Return whether a delivery might lack room: all waiting messages may be due at once and go to one retry queue."""
    for one in range(w.cfg[RETRY_QUEUES]):
        queue = w.queues[w.cfg[QUEUES] + one]
        if queue[END] - queue[TRIMMED] + w.counters[WAITING] > w.retries.shape[1]:
            return True
    return False


@bare
def _deliver(w, level, now):  # type: ignore[no-untyped-def]
    """Run the delivery of a delay level: move due messages to the retry topic, and wake the pulls that wait for them."""
    line, arrived = w.levels[level], False
    while line[LEVEL_FIRST] != NONE and w.pending[line[LEVEL_FIRST], PENDING_STORED] // MS + w.delays[level] <= now // MS:
        at = line[LEVEL_FIRST]
        waiting = w.pending[at]
        line[LEVEL_FIRST] = waiting[PENDING_NEXT]
        queue = w.queues[w.cfg[QUEUES] + waiting[PENDING_INTO]]
        retry = w.retries[waiting[PENDING_INTO], queue[END] - queue[TRIMMED]]
        retry[RETRY_TIME] = now
        retry[RETRY_QUEUE] = waiting[PENDING_QUEUE]
        retry[RETRY_OFFSET] = waiting[PENDING_OFFSET]
        retry[RETRY_TRIES] = waiting[PENDING_TRIES]
        queue[END] += 1
        waiting[PENDING_NEXT] = w.counters[FREE]
        w.counters[FREE] = at
        w.counters[WAITING] -= 1
        arrived = True
    if line[LEVEL_FIRST] == NONE:
        line[LEVEL_LAST] = NONE
    else:
        expect_look(w, level)
    if arrived:
        _wake(w)


@bare
def _wake(w):  # type: ignore[no-untyped-def]
    """Recalculate when the pulls of the retry topic are answered."""
    for slot in range(w.slots.shape[0]):
        row = w.slots[slot]
        if row[IN_USE] and row[QUEUE] >= w.cfg[QUEUES] and row[ANSWERED_AT] != NONE and not row[DROPPED]:
            as_of = answered_as_of(w, row[QUEUE], row[NEXT_OFFSET], row[ASKED_AT])
            if as_of < row[AS_OF]:
                expect_answer(w, slot)


@bare
def _persist_offsets(w, client, now):  # type: ignore[no-untyped-def]
    """Commit a client's offsets: RemoteBrokerOffsetStore.persistAll, or LocalFileOffsetStore.persistAll when broadcasting."""
    slot = w.clients[client, FIRST_SLOT]
    while slot != NONE:
        row = w.slots[slot]
        if not row[DROPPED] and row[REACHED] != NONE:
            if w.cfg[BROADCAST]:
                w.local[client, row[QUEUE], STORED] = row[REACHED]
            else:
                w.queues[row[QUEUE], COMMITTED] = row[REACHED]
        slot = row[NEXT_SLOT]
    push(w.heap, w.counters, now + w.cfg[PERSIST], key_of(PERSIST_OFFSETS, client))


@bare
def _client_of(w, kind, number):  # type: ignore[no-untyped-def]
    """Return the client of an event."""
    if kind == PERSIST_OFFSETS:
        return np.int64(number)
    return w.slots[number // w.cfg[RING] if kind == WORK_END else number, CLIENT]


@bare
def _happen(w, kind, number, now):  # type: ignore[no-untyped-def]
    """Process one event of a client."""
    if kind == WORK_END:
        if w.cfg[ORDERLY]:
            end_turn(w, number // w.cfg[RING], now)
            start_work(w, w.slots[number // w.cfg[RING], CLIENT], now)
        else:
            end_work(w, number, now)
        return
    if kind == PERSIST_OFFSETS:
        if w.clients[number, ALIVE]:
            _persist_offsets(w, number, now)
        return
    row = w.slots[number]
    row[EVENTS] -= 1
    if not w.clients[row[CLIENT], ALIVE]:
        return
    if kind == PULL:
        pull(w, number, now)
    elif kind in (LOCK_ONE, FIX_OFFSET):
        w.counters[ASKING], w.counters[QUESTION] = number, kind
    elif kind == CONSUME:
        if not row[DROPPED]:
            wait_for_thread(w, number)
            start_work(w, row[CLIENT], now)
    elif take_answer(w, number, now) > 0:
        if w.cfg[ORDERLY]:
            start_consumer(w, number)
        start_work(w, row[CLIENT], now)


@bare
def run(w, until):  # type: ignore[no-untyped-def]
    """Process the events before `until` (microseconds).

    Returns:
        DONE: there are no more events before `until`. TELL: the caller must take the rows of `consumed` and `dead`. GROW: the caller must
        enlarge an array. ASK: the caller must answer the event of kind `counters[QUESTION]` for the slot `counters[ASKING]`. Call again
        after the last three.
    """
    while w.counters[HEAP] > 0 and w.heap[0, 0] < until:
        lacks = _lacks_room(w)
        if lacks != DONE:
            return lacks
        now, key = w.heap[0, 0], w.heap[0, 1]
        kind, number = kind_of(key), number_of(key)
        if kind == DELIVER:
            if _lacks_retries(w):
                return GROW
            pop(w.heap, w.counters)
            _deliver(w, number, now)
        else:
            pop(w.heap, w.counters)
            if kind == ANSWER and w.slots[number, ANSWERED_AT] != now:  # an earlier answer replaced it
                w.slots[number, EVENTS] -= 1
                continue
            client = w.clients[_client_of(w, kind, number)]
            if client[ALIVE] and client[STALLED_UNTIL] > now:
                if kind == ANSWER:
                    w.slots[number, ANSWERED_AT] = client[STALLED_UNTIL]
                push(w.heap, w.counters, client[STALLED_UNTIL], key)
                continue
            _happen(w, kind, number, now)
        w.counters[EVENTS_DONE] += 1
        w.counters[NOW] = now
        if w.counters[ASKING] != NONE:
            return ASK
    return DONE
