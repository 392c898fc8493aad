"""The threads of a client: they pass batches to the listener, acknowledge messages and send them back to the broker.

Broker source (4.9.3): ConsumeMessageConcurrentlyService (ConsumeRequest.run, processConsumeResult, sendMessageBack),
ProcessQueue.removeMessage, SendMessageProcessor.asyncConsumerSendMsgBack; the rules are those of `udfs.consumer.consume_concurrently`,
`udfs.consumer.process_queue` and `udfs.broker.send_message`, in a compiled form; tests run both.
Rules: batches of all queues of a client wait in one unbounded line, so a client never has more threads than consumeThreadMin. A batch of
a dropped queue is skipped when a thread takes it. If the queue is dropped while the listener runs, the result does not count.
Surprises: after a failure the thread stays occupied until the broker has taken back the whole batch, message by message. A broadcast client
sends no message back: a message that fails is dropped, and counts as consumed.
"""

from __future__ import annotations

import numpy as np

from store_format.compiled import bare, inner
from udfs.broker.schedule_delivery import look_after
from udfs.simulation import world as at
from udfs.simulation.arrivals import origin
from udfs.simulation.consuming_orderly import next_turn
from udfs.simulation.draws import RETRY_QUEUE, draw, message_stream
from udfs.simulation.event_heap import DELIVER, WORK_END, key_of, push
from udfs.simulation.event_rows import write_consumed, write_dead
from udfs.simulation.passed import had_before
from udfs.simulation.pulling import note_position
from udfs.simulation.service_time import fails, service_time
from udfs.simulation.world import MS, NONE


@inner
def _place(w, slot, place, ahead):  # type: ignore[no-untyped-def]
    """Return the place in a slot's ring that is `ahead` messages after `place`."""
    first = slot * w.cfg[at.RING]
    return first + ((place - first + ahead) & (w.cfg[at.RING] - 1))


@inner
def note_started(w, row, offset):  # type: ignore[no-untyped-def]
    """Record that a listener gets a message; count a duplicate if one of the group (when broadcasting: of the client) had it before."""
    w.counters[at.DELIVERED] += 1
    if w.cfg[at.BROADCAST]:
        most = w.local[row[at.CLIENT], row[at.QUEUE], at.LOCAL_STARTED]
        w.local[row[at.CLIENT], row[at.QUEUE], at.LOCAL_STARTED] = max(most, offset)
        again = offset <= most
    else:
        again = had_before(w, row[at.QUEUE], offset)
    w.counters[at.DUPLICATES] += again


@inner
def _try(w, row, offset):  # type: ignore[no-untyped-def]
    """Return how long the listener takes for a message, and whether it fails; in a broadcasting group each client has its own draws."""
    first_queue, first_offset, tries = origin(w, row[at.QUEUE], offset)
    tries = row[at.CLIENT] if w.cfg[at.BROADCAST] else tries
    stream = message_stream(w.cfg[at.SEED], first_queue, first_offset)
    return service_time(w.cfg, w.shares, stream, tries), fails(w.shares, stream, tries)


@inner
def begin_batch(w, slot, place, now):  # type: ignore[no-untyped-def]
    """Pass a batch to the listener. The result is drawn now and applied when the batch ends."""
    row, client = w.slots[slot], w.clients[w.slots[slot, at.CLIENT]]
    taken, failed, count = np.int64(0), False, w.ring[place, at.BATCH]
    for ahead in range(count):
        offset = w.ring[_place(w, slot, place, ahead), at.OFFSET]
        note_started(w, row, offset)
        one, fails_too = _try(w, row, offset)
        taken += one
        failed = failed or fails_too
    if failed and not w.cfg[at.BROADCAST]:
        taken += 2 * w.cfg[at.NETWORK] * count
    w.ring[place, at.STARTED] = now
    w.ring[place, at.IS_DONE] = -1 if failed else 0
    client[at.BUSY] += 1
    client[at.STARTED_BATCHES] += 1
    client[at.WORKED] += taken
    row[at.WORKING] += 1
    push(w.heap, w.counters, now + taken, key_of(WORK_END, place))


@inner
def start_work(w, client, now):  # type: ignore[no-untyped-def]
    """Pass waiting batches to the client's free threads."""
    row = w.clients[client]
    while row[at.BUSY] < row[at.THREADS] and row[at.FIFO_HEAD] != NONE:
        place = row[at.FIFO_HEAD]
        row[at.FIFO_HEAD] = w.ring[place, at.NEXT_IN_FIFO]
        if row[at.FIFO_HEAD] == NONE:
            row[at.FIFO_TAIL] = NONE
        slot = place // w.cfg[at.RING]
        w.slots[slot, at.QUEUED] -= 1
        if w.slots[slot, at.DROPPED]:
            continue
        if w.cfg[at.ORDERLY]:
            next_turn(w, slot, now)
        else:
            begin_batch(w, slot, place, now)


@bare
def tell(w, slot, place, count, result, now):  # type: ignore[no-untyped-def]
    """Write the rows of `consumed` for a batch."""
    if not w.cfg[at.TELLS]:
        return
    started = w.ring[place, at.STARTED]
    for ahead in range(count):
        write_consumed(w, slot, w.ring[_place(w, slot, place, ahead)], NONE, started, result, now)


@inner
def expect_look(w, level):  # type: ignore[no-untyped-def]
    """Push the event of the delivery run that delivers the first message of a delay level (counted from 0)."""
    stored = w.pending[w.levels[level, at.LEVEL_FIRST], at.PENDING_STORED]
    look = look_after(0, stored // MS + w.delays[level]) * MS
    push(w.heap, w.counters, look, key_of(DELIVER, level))


@inner
def keep_for_level(w, level, stored, queue, offset, tries, into):  # type: ignore[no-untyped-def]
    """Append a message to the line of its delay level."""
    free = w.counters[at.FREE]
    row = w.pending[free]
    w.counters[at.FREE] = row[at.PENDING_NEXT]
    w.counters[at.WAITING] += 1
    row[at.PENDING_STORED] = stored
    row[at.PENDING_QUEUE] = queue
    row[at.PENDING_OFFSET] = offset
    row[at.PENDING_TRIES] = tries
    row[at.PENDING_INTO] = into
    row[at.PENDING_NEXT] = NONE
    line = w.levels[level - 1]
    if line[at.LEVEL_LAST] == NONE:
        line[at.LEVEL_FIRST] = free
        expect_look(w, level - 1)
    else:
        w.pending[line[at.LEVEL_LAST], at.PENDING_NEXT] = free
    line[at.LEVEL_LAST] = free


@inner
def send_back(w, queue, offset, now):  # type: ignore[no-untyped-def]
    """Send one message back to the broker, which stores it in the queue of its delay level or as a dead letter."""
    first_queue, first_offset, tries = origin(w, queue, offset)
    level = w.level_of_try[min(tries, len(w.level_of_try) - 1)]
    stored = now - w.cfg[at.NETWORK]
    if level == NONE:
        write_dead(w, first_queue, first_offset, tries + 1, stored)
        return
    stream = message_stream(w.cfg[at.SEED], first_queue, first_offset)
    into = w.queues[first_queue, at.RETRY_BASE] + np.int64(draw(stream, tries, RETRY_QUEUE) % np.uint64(w.cfg[at.RETRY_NUMS]))
    keep_for_level(w, level, stored, first_queue, first_offset, tries + 1, into)
    w.counters[at.SENT_BACK] += 1


@inner
def _remove(w, slot, place, count):  # type: ignore[no-untyped-def]
    """Remove a batch from the slot's ring (ProcessQueue.removeMessage); return the offset to commit."""
    row, mask = w.slots[slot], w.cfg[at.RING] - 1
    for ahead in range(count):
        entry = w.ring[_place(w, slot, place, ahead)]
        entry[at.IS_DONE] = 1
        row[at.MSG_COUNT] -= 1
        row[at.MSG_SIZE] -= entry[at.BODY]
    while row[at.HEAD] < row[at.TAIL] and w.ring[slot * w.cfg[at.RING] + (row[at.HEAD] & mask), at.IS_DONE] == 1:
        row[at.HEAD] += 1
    if row[at.HEAD] < row[at.TAIL]:
        return w.ring[slot * w.cfg[at.RING] + (row[at.HEAD] & mask), at.OFFSET]
    return row[at.QUEUE_OFFSET_MAX] + 1


@inner
def end_work(w, place, now):  # type: ignore[no-untyped-def]
    """Apply the result of a batch, and pass the next batch to its thread."""
    slot = place // w.cfg[at.RING]
    row, count, failed = w.slots[slot], w.ring[place, at.BATCH], w.ring[place, at.IS_DONE] == -1
    row[at.WORKING] -= 1
    if not w.clients[row[at.CLIENT], at.ALIVE]:
        w.counters[at.NOT_COUNTED] += count
        tell(w, slot, place, count, at.LOST, now)
        return
    w.clients[row[at.CLIENT], at.BUSY] -= 1
    if row[at.DROPPED]:
        w.counters[at.NOT_COUNTED] += count
        tell(w, slot, place, count, at.TOO_LATE, now)
    else:
        tell(w, slot, place, count, at.RECONSUME_LATER if failed else at.SUCCESS, now)
        if not failed:
            w.counters[at.SUCCEEDED] += count
            w.clients[row[at.CLIENT], at.DONE_MESSAGES] += count
        elif w.cfg[at.BROADCAST]:
            w.counters[at.DEAD] += count
        else:
            for ahead in range(count):
                send_back(w, row[at.QUEUE], w.ring[_place(w, slot, place, ahead), at.OFFSET], now)
        row[at.REACHED] = max(row[at.REACHED], _remove(w, slot, place, count))
        note_position(w, row, row[at.REACHED])
    start_work(w, row[at.CLIENT], now)
