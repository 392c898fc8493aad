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

from store_format.compiled import inner
from udfs.consumer.consume_orderly import CONTINUE_AFTER, LOCK_AFTER_LOSS, LOCK_AFTER_START, MAX_TIME_CONSUME_CONTINUOUSLY
from udfs.consumer.process_queue import REBALANCE_LOCK_MAX_LIVE_TIME
from udfs.simulation import world as at
from udfs.simulation.arrivals import origin
from udfs.simulation.draws import message_stream
from udfs.simulation.event_heap import CONSUME, LOCK_ONE, WORK_END, key_of, push
from udfs.simulation.event_rows import write_consumed, write_dead
from udfs.simulation.passed import had_before
from udfs.simulation.pulling import expect, submit
from udfs.simulation.service_time import fails, service_time
from udfs.simulation.world import MS, NONE


@inner
def _entry(w, slot, ahead):  # type: ignore[no-untyped-def]
    """Return the place in the ring of the message `ahead` places after the slot's first one."""
    return slot * w.cfg[at.RING] + ((w.slots[slot, at.HEAD] + ahead) & (w.cfg[at.RING] - 1))


@inner
def wait_for_thread(w, slot):  # type: ignore[no-untyped-def]
    """Append the consumer to the client's line for a thread: submitConsumeRequest."""
    w.slots[slot, at.BEGAN] = NONE
    submit(w, slot, slot * w.cfg[at.RING], 0)


@inner
def start_consumer(w, slot):  # type: ignore[no-untyped-def]
    """Start a consumer of the queue, which waits for a thread, unless one exists (the result of putMessage)."""
    row = w.slots[slot]
    if not row[at.AT_WORK] and row[at.HEAD] < row[at.TAIL]:
        row[at.AT_WORK] = 1
        wait_for_thread(w, slot)


@inner
def _begin(w, slot, now):  # type: ignore[no-untyped-def]
    """Pass the taken batch to the listener."""
    row, client = w.slots[slot], w.clients[w.slots[slot, at.CLIENT]]
    taken, failed = np.int64(0), False
    for ahead in range(row[at.TAKEN]):
        entry = w.ring[_entry(w, slot, ahead)]
        first_queue, first_offset, tries = origin(w, row[at.QUEUE], entry[at.OFFSET])
        w.counters[at.DELIVERED] += 1
        if had_before(w, row[at.QUEUE], entry[at.OFFSET]) and entry[at.TRY] == tries:  # not put back and tried again in place
            w.counters[at.DUPLICATES] += 1
        stream = message_stream(w.cfg[at.SEED], first_queue, first_offset)
        taken += service_time(w.cfg, w.shares, stream, entry[at.TRY])
        failed = failed or fails(w.shares, stream, entry[at.TRY])
        entry[at.STARTED] = now
    row[at.FAILED] = failed
    row[at.ENDS] = now + taken
    client[at.BUSY] += 1
    client[at.STARTED_BATCHES] += 1
    client[at.WORKED] += taken
    row[at.WORKING] += 1
    push(w.heap, w.counters, now + taken, key_of(WORK_END, slot * w.cfg[at.RING]))


@inner
def next_turn(w, slot, now):  # type: ignore[no-untyped-def]
    """Let a consumer with a thread take its next batch, or release the thread."""
    row, cfg = w.slots[slot], w.cfg
    if row[at.DROPPED]:
        return
    if not row[at.LOCKED] or now // MS - row[at.LOCKED_AT] // MS > REBALANCE_LOCK_MAX_LIVE_TIME:
        expect(w, slot, LOCK_ONE, now + (LOCK_AFTER_START if row[at.BEGAN] == NONE else LOCK_AFTER_LOSS) * MS)
        return
    if row[at.BEGAN] != NONE and now // MS - row[at.BEGAN] // MS > MAX_TIME_CONSUME_CONTINUOUSLY:
        expect(w, slot, CONSUME, now + CONTINUE_AFTER * MS)
        return
    if row[at.BEGAN] == NONE:
        row[at.BEGAN] = now
    row[at.TAKEN] = min(cfg[at.CONSUME_BATCH], row[at.TAIL] - row[at.HEAD])
    if row[at.TAKEN] == 0:
        row[at.AT_WORK] = 0
        return
    _begin(w, slot, now)


@inner
def _tell(w, slot, result, now):  # type: ignore[no-untyped-def]
    """Write the rows of `consumed` for the batch."""
    if not w.cfg[at.TELLS]:
        return
    for ahead in range(w.slots[slot, at.TAKEN]):
        entry = w.ring[_entry(w, slot, ahead)]
        write_consumed(w, slot, entry, entry[at.TRY], entry[at.STARTED], result, now)


@inner
def _is_put_back(w, slot, now):  # type: ignore[no-untyped-def]
    """Return whether a failed batch has a message that may still be tried (checkReconsumeTimes); others become dead letters."""
    again = False
    for ahead in range(w.slots[slot, at.TAKEN]):
        entry = w.ring[_entry(w, slot, ahead)]
        if entry[at.TRY] >= w.cfg[at.MOST_TRIES]:
            first_queue, first_offset, _ = origin(w, w.slots[slot, at.QUEUE], entry[at.OFFSET])
            write_dead(w, first_queue, first_offset, entry[at.TRY] + 1, now + w.cfg[at.NETWORK])
        else:
            entry[at.TRY] += 1
            again = True
    return again


@inner
def _commit(w, slot):  # type: ignore[no-untyped-def]
    """Remove the taken messages (ProcessQueue.commit), and set the offset in the table even to a lower one, unless the queue is dropped."""
    row = w.slots[slot]
    for ahead in range(row[at.TAKEN]):
        entry = w.ring[_entry(w, slot, ahead)]
        row[at.MSG_SIZE] -= entry[at.BODY]
        if not row[at.DROPPED]:
            row[at.REACHED] = entry[at.OFFSET] + 1
            w.queues[row[at.QUEUE], at.POSITION] = row[at.REACHED]
    row[at.MSG_COUNT] -= row[at.TAKEN]
    row[at.HEAD] += row[at.TAKEN]


@inner
def end_turn(w, slot, now):  # type: ignore[no-untyped-def]
    """Apply the result of a batch, and let the consumer continue."""
    row = w.slots[slot]
    client = w.clients[row[at.CLIENT]]
    row[at.WORKING] -= 1
    if not client[at.ALIVE]:
        w.counters[at.NOT_COUNTED] += row[at.TAKEN]
        _tell(w, slot, at.LOST, now)
        return
    client[at.BUSY] -= 1
    if row[at.DROPPED]:
        w.counters[at.NOT_COUNTED] += row[at.TAKEN]
        _tell(w, slot, at.TOO_LATE, now)
    else:
        _tell(w, slot, at.RECONSUME_LATER if row[at.FAILED] else at.SUCCESS, now)
    if row[at.FAILED] and _is_put_back(w, slot, now):
        expect(w, slot, CONSUME, now + w.cfg[at.SUSPENDED])
        return
    if not row[at.FAILED] and not row[at.DROPPED]:
        w.counters[at.SUCCEEDED] += row[at.TAKEN]
        client[at.DONE_MESSAGES] += row[at.TAKEN]
    _commit(w, slot)
    next_turn(w, slot, now)
