"""The threads of an orderly client: they consume the batches of a queue one after the other while the client has the queue's lock.

Broker source (4.9.3): ConsumeMessageOrderlyService (ConsumeRequest.run, processConsumeResult, checkReconsumeTimes,
tryLockLaterAndReconsume); the rules are those of `udfs.consumer.consume_orderly`, in a compiled form; tests run both.
Rules: a message that a listener fails on is tried again after a while, before any later message, up to maxReconsumeTimes; without that
setting there is no limit. Then it becomes a dead letter. A consumer that has run for a minute releases its thread.
Surprise: a queue that a client has just taken is locked only by the request that locks all queues, every 20 seconds; pulls test for the
lock every three seconds.
"""

from __future__ import annotations

import numpy as np

from store_format.compiled import bare
from udfs.consumer.consume_orderly import CONTINUE_AFTER, LOCK_AFTER_LOSS, LOCK_AFTER_START, MAX_TIME_CONSUME_CONTINUOUSLY
from udfs.consumer.process_queue import REBALANCE_LOCK_MAX_LIVE_TIME
from udfs.simulation.arrivals import origin
from udfs.simulation.draws import message_stream
from udfs.simulation.event_heap import CONSUME, LOCK_ONE, WORK_END, key_of, push
from udfs.simulation.event_rows import write_consumed, write_dead
from udfs.simulation.pulling import expect, submit
from udfs.simulation.service_time import fails, service_time
from udfs.simulation.world import (
    ALIVE,
    AT_WORK,
    BEGAN,
    BODY,
    BUSY,
    CLIENT,
    CONSUME_BATCH,
    DELIVERED,
    DONE_MESSAGES,
    DROPPED,
    DUPLICATES,
    ENDS,
    FAILED,
    HEAD,
    LOCKED,
    LOCKED_AT,
    LOST,
    MOST_STARTED,
    MOST_TRIES,
    MS,
    MSG_COUNT,
    MSG_SIZE,
    NETWORK,
    NONE,
    NOT_COUNTED,
    OFFSET,
    POSITION,
    QUEUE,
    REACHED,
    RECONSUME_LATER,
    RING,
    SEED,
    STARTED,
    STARTED_BATCHES,
    SUCCEEDED,
    SUCCESS,
    SUSPENDED,
    TAIL,
    TAKEN,
    TELLS,
    TOO_LATE,
    TRY,
    WORKED,
    WORKING,
)


@bare
def _entry(w, slot, ahead):  # type: ignore[no-untyped-def]
    """Return the place in the ring of the message `ahead` places after the slot's first one."""
    return slot * w.cfg[RING] + ((w.slots[slot, HEAD] + ahead) & (w.cfg[RING] - 1))


@bare
def start_consumer(w, slot):  # type: ignore[no-untyped-def]
    """Start a consumer of the queue, which waits for a thread, unless one exists (the result of putMessage)."""
    row = w.slots[slot]
    if not row[AT_WORK] and row[HEAD] < row[TAIL]:
        row[AT_WORK] = 1
        wait_for_thread(w, slot)


@bare
def wait_for_thread(w, slot):  # type: ignore[no-untyped-def]
    """Append the consumer to the client's line for a thread: submitConsumeRequest."""
    w.slots[slot, BEGAN] = NONE
    submit(w, slot, slot * w.cfg[RING], 0)


@bare
def next_turn(w, slot, now):  # type: ignore[no-untyped-def]
    """Let a consumer with a thread take its next batch, or release the thread."""
    row, cfg = w.slots[slot], w.cfg
    if row[DROPPED]:
        return
    if not row[LOCKED] or now // MS - row[LOCKED_AT] // MS > REBALANCE_LOCK_MAX_LIVE_TIME:
        expect(w, slot, LOCK_ONE, now + (LOCK_AFTER_START if row[BEGAN] == NONE else LOCK_AFTER_LOSS) * MS)
        return
    if row[BEGAN] != NONE and now // MS - row[BEGAN] // MS > MAX_TIME_CONSUME_CONTINUOUSLY:
        expect(w, slot, CONSUME, now + CONTINUE_AFTER * MS)
        return
    if row[BEGAN] == NONE:
        row[BEGAN] = now
    row[TAKEN] = min(cfg[CONSUME_BATCH], row[TAIL] - row[HEAD])
    if row[TAKEN] == 0:
        row[AT_WORK] = 0
        return
    _begin(w, slot, now)


@bare
def _begin(w, slot, now):  # type: ignore[no-untyped-def]
    """Pass the taken batch to the listener."""
    row, client = w.slots[slot], w.clients[w.slots[slot, CLIENT]]
    taken, failed = np.int64(0), False
    for ahead in range(row[TAKEN]):
        entry = w.ring[_entry(w, slot, ahead)]
        first_queue, first_offset, tries = origin(w, row[QUEUE], entry[OFFSET])
        w.counters[DELIVERED] += 1
        if entry[OFFSET] > w.queues[row[QUEUE], MOST_STARTED]:
            w.queues[row[QUEUE], MOST_STARTED] = entry[OFFSET]
        elif entry[TRY] == tries:  # not one that was put back and is tried again in place
            w.counters[DUPLICATES] += 1
        stream = message_stream(w.cfg[SEED], first_queue, first_offset)
        taken += service_time(w.cfg, w.shares, stream, entry[TRY])
        failed = failed or fails(w.shares, stream, entry[TRY])
        entry[STARTED] = now
    row[FAILED] = failed
    row[ENDS] = now + taken
    client[BUSY] += 1
    client[STARTED_BATCHES] += 1
    client[WORKED] += taken
    row[WORKING] += 1
    push(w.heap, w.counters, now + taken, key_of(WORK_END, slot * w.cfg[RING]))


@bare
def _tell(w, slot, result, now):  # type: ignore[no-untyped-def]
    """Write the rows of `consumed` for the batch."""
    if not w.cfg[TELLS]:
        return
    for ahead in range(w.slots[slot, TAKEN]):
        entry = w.ring[_entry(w, slot, ahead)]
        write_consumed(w, slot, entry, entry[TRY], entry[STARTED], result, now)


@bare
def _give_up(w, slot, entry, now):  # type: ignore[no-untyped-def]
    """Send a message that was tried too often to the dead letters."""
    first_queue, first_offset, _ = origin(w, w.slots[slot, QUEUE], entry[OFFSET])
    write_dead(w, first_queue, first_offset, entry[TRY] + 1, now + w.cfg[NETWORK])


@bare
def _is_put_back(w, slot, now):  # type: ignore[no-untyped-def]
    """Return whether a failed batch has a message that may still be tried: checkReconsumeTimes."""
    again = False
    for ahead in range(w.slots[slot, TAKEN]):
        entry = w.ring[_entry(w, slot, ahead)]
        if entry[TRY] >= w.cfg[MOST_TRIES]:
            _give_up(w, slot, entry, now)
        else:
            entry[TRY] += 1
            again = True
    return again


@bare
def _commit(w, slot):  # type: ignore[no-untyped-def]
    """Remove the taken messages (ProcessQueue.commit), and set the offset in the table even to a lower one, unless the queue is dropped."""
    row = w.slots[slot]
    for ahead in range(row[TAKEN]):
        entry = w.ring[_entry(w, slot, ahead)]
        row[MSG_SIZE] -= entry[BODY]
        if not row[DROPPED]:
            row[REACHED] = entry[OFFSET] + 1
            w.queues[row[QUEUE], POSITION] = row[REACHED]
    row[MSG_COUNT] -= row[TAKEN]
    row[HEAD] += row[TAKEN]


@bare
def end_turn(w, slot, now):  # type: ignore[no-untyped-def]
    """Apply the result of a batch, and let the consumer continue."""
    row = w.slots[slot]
    client = w.clients[row[CLIENT]]
    row[WORKING] -= 1
    if not client[ALIVE]:
        w.counters[NOT_COUNTED] += row[TAKEN]
        _tell(w, slot, LOST, now)
        return
    client[BUSY] -= 1
    if row[DROPPED]:
        w.counters[NOT_COUNTED] += row[TAKEN]
        _tell(w, slot, TOO_LATE, now)
    else:
        _tell(w, slot, RECONSUME_LATER if row[FAILED] else SUCCESS, now)
    if row[FAILED] and _is_put_back(w, slot, now):
        expect(w, slot, CONSUME, now + w.cfg[SUSPENDED])
        return
    if not row[FAILED] and not row[DROPPED]:
        w.counters[SUCCEEDED] += row[TAKEN]
        client[DONE_MESSAGES] += row[TAKEN]
    _commit(w, slot)
    next_turn(w, slot, now)
