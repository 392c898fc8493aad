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

from store_format.compiled import bare
from udfs.broker.schedule_delivery import look_after
from udfs.simulation.arrivals import origin
from udfs.simulation.consuming_orderly import next_turn
from udfs.simulation.draws import RETRY_QUEUE as RETRY_QUEUE_DRAW
from udfs.simulation.draws import draw, message_stream
from udfs.simulation.event_heap import DELIVER, WORK_END, key_of, push
from udfs.simulation.event_rows import write_consumed, write_dead
from udfs.simulation.pulling import note_position
from udfs.simulation.service_time import fails, service_time
from udfs.simulation.world import (
    ALIVE,
    BATCH,
    BODY,
    BROADCAST,
    BUSY,
    CLIENT,
    DEAD,
    DELIVERED,
    DONE_MESSAGES,
    DROPPED,
    DUPLICATES,
    FIFO_HEAD,
    FIFO_TAIL,
    FREE,
    HEAD,
    IS_DONE,
    LEVEL_FIRST,
    LEVEL_LAST,
    LOCAL_STARTED,
    LOST,
    MOST_STARTED,
    MS,
    MSG_COUNT,
    MSG_SIZE,
    NETWORK,
    NEXT_IN_FIFO,
    NONE,
    NOT_COUNTED,
    OFFSET,
    ORDERLY,
    PENDING_INTO,
    PENDING_NEXT,
    PENDING_OFFSET,
    PENDING_QUEUE,
    PENDING_STORED,
    PENDING_TRIES,
    QUEUE,
    QUEUE_OFFSET_MAX,
    QUEUED,
    REACHED,
    RECONSUME_LATER,
    RETRY_BASE,
    RETRY_NUMS,
    RING,
    SEED,
    SENT_BACK,
    STARTED,
    STARTED_BATCHES,
    SUCCEEDED,
    SUCCESS,
    TAIL,
    TELLS,
    THREADS,
    TOO_LATE,
    WAITING,
    WORKED,
    WORKING,
)


@bare
def _place(w, slot, place, ahead):  # type: ignore[no-untyped-def]
    """Return the place in a slot's ring that is `ahead` messages after `place`."""
    first = slot * w.cfg[RING]
    return first + ((place - first + ahead) & (w.cfg[RING] - 1))


@bare
def note_started(w, row, offset):  # type: ignore[no-untyped-def]
    """Record that a listener gets a message; count a duplicate if a listener of the group (when broadcasting: of the client) had it before.

    A client begins at the group's committed offset and passes messages in order, so every message up to the greatest one was passed. Only
    if the group never committed, two clients may begin at different offsets. The messages of the one with the lower offset then count as
    duplicates, although no client had them before.
    """
    w.counters[DELIVERED] += 1
    if w.cfg[BROADCAST]:
        most = w.local[row[CLIENT], row[QUEUE], LOCAL_STARTED]
        w.local[row[CLIENT], row[QUEUE], LOCAL_STARTED] = max(most, offset)
    else:
        most = w.queues[row[QUEUE], MOST_STARTED]
        w.queues[row[QUEUE], MOST_STARTED] = max(most, offset)
    if offset <= most:
        w.counters[DUPLICATES] += 1


@bare
def _try(w, row, offset):  # type: ignore[no-untyped-def]
    """Return how long the listener takes for a message, and whether it fails; in a broadcasting group each client has its own draws."""
    first_queue, first_offset, tries = origin(w, row[QUEUE], offset)
    tries = row[CLIENT] if w.cfg[BROADCAST] else tries
    stream = message_stream(w.cfg[SEED], first_queue, first_offset)
    return service_time(w.cfg, w.shares, stream, tries), fails(w.shares, stream, tries)


@bare
def start_work(w, client, now):  # type: ignore[no-untyped-def]
    """Pass waiting batches to the client's free threads."""
    row = w.clients[client]
    while row[BUSY] < row[THREADS] and row[FIFO_HEAD] != NONE:
        place = row[FIFO_HEAD]
        row[FIFO_HEAD] = w.ring[place, NEXT_IN_FIFO]
        if row[FIFO_HEAD] == NONE:
            row[FIFO_TAIL] = NONE
        slot = place // w.cfg[RING]
        w.slots[slot, QUEUED] -= 1
        if w.slots[slot, DROPPED]:
            continue
        if w.cfg[ORDERLY]:
            next_turn(w, slot, now)
        else:
            begin_batch(w, slot, place, now)


@bare
def begin_batch(w, slot, place, now):  # type: ignore[no-untyped-def]
    """Pass a batch to the listener. The result is drawn now and applied when the batch ends."""
    row, client = w.slots[slot], w.clients[w.slots[slot, CLIENT]]
    taken, failed, count = np.int64(0), False, w.ring[place, BATCH]
    for ahead in range(count):
        offset = w.ring[_place(w, slot, place, ahead), OFFSET]
        note_started(w, row, offset)
        one, fails_too = _try(w, row, offset)
        taken += one
        failed = failed or fails_too
    if failed and not w.cfg[BROADCAST]:
        taken += 2 * w.cfg[NETWORK] * count
    w.ring[place, STARTED] = now
    w.ring[place, IS_DONE] = -1 if failed else 0
    client[BUSY] += 1
    client[STARTED_BATCHES] += 1
    client[WORKED] += taken
    row[WORKING] += 1
    push(w.heap, w.counters, now + taken, key_of(WORK_END, place))


@bare
def tell(w, slot, place, count, result, now):  # type: ignore[no-untyped-def]
    """Write the rows of `consumed` for a batch."""
    if not w.cfg[TELLS]:
        return
    started = w.ring[place, STARTED]
    for ahead in range(count):
        write_consumed(w, slot, w.ring[_place(w, slot, place, ahead)], NONE, started, result, now)


@bare
def send_back(w, queue, offset, now):  # type: ignore[no-untyped-def]
    """Send one message back to the broker, which stores it in the queue of its delay level or as a dead letter."""
    first_queue, first_offset, tries = origin(w, queue, offset)
    level = w.level_of_try[min(tries, len(w.level_of_try) - 1)]
    stored = now - w.cfg[NETWORK]
    if level == NONE:
        write_dead(w, first_queue, first_offset, tries + 1, stored)
        return
    stream = message_stream(w.cfg[SEED], first_queue, first_offset)
    into = w.queues[first_queue, RETRY_BASE] + np.int64(draw(stream, tries, RETRY_QUEUE_DRAW) % np.uint64(w.cfg[RETRY_NUMS]))
    keep_for_level(w, level, stored, first_queue, first_offset, tries + 1, into)
    w.counters[SENT_BACK] += 1


@bare
def keep_for_level(w, level, stored, queue, offset, tries, into):  # type: ignore[no-untyped-def]
    """Append a message to the line of its delay level."""
    at = w.counters[FREE]
    row = w.pending[at]
    w.counters[FREE] = row[PENDING_NEXT]
    w.counters[WAITING] += 1
    row[PENDING_STORED] = stored
    row[PENDING_QUEUE] = queue
    row[PENDING_OFFSET] = offset
    row[PENDING_TRIES] = tries
    row[PENDING_INTO] = into
    row[PENDING_NEXT] = NONE
    line = w.levels[level - 1]
    if line[LEVEL_LAST] == NONE:
        line[LEVEL_FIRST] = at
        expect_look(w, level - 1)
    else:
        w.pending[line[LEVEL_LAST], PENDING_NEXT] = at
    line[LEVEL_LAST] = at


@bare
def expect_look(w, level):  # type: ignore[no-untyped-def]
    """Push the event of the delivery run that delivers the first message of a delay level (counted from 0)."""
    stored = w.pending[w.levels[level, LEVEL_FIRST], PENDING_STORED]
    look = look_after(0, stored // MS + w.delays[level]) * MS
    push(w.heap, w.counters, look, key_of(DELIVER, level))


@bare
def _remove(w, slot, place, count):  # type: ignore[no-untyped-def]
    """Remove a batch from the slot's ring (ProcessQueue.removeMessage); return the offset to commit."""
    row, mask = w.slots[slot], w.cfg[RING] - 1
    for ahead in range(count):
        entry = w.ring[_place(w, slot, place, ahead)]
        entry[IS_DONE] = 1
        row[MSG_COUNT] -= 1
        row[MSG_SIZE] -= entry[BODY]
    while row[HEAD] < row[TAIL] and w.ring[slot * w.cfg[RING] + (row[HEAD] & mask), IS_DONE] == 1:
        row[HEAD] += 1
    if row[HEAD] < row[TAIL]:
        return w.ring[slot * w.cfg[RING] + (row[HEAD] & mask), OFFSET]
    return row[QUEUE_OFFSET_MAX] + 1


@bare
def end_work(w, place, now):  # type: ignore[no-untyped-def]
    """Apply the result of a batch, and pass the next batch to its thread."""
    slot = place // w.cfg[RING]
    row, count, failed = w.slots[slot], w.ring[place, BATCH], w.ring[place, IS_DONE] == -1
    row[WORKING] -= 1
    if not w.clients[row[CLIENT], ALIVE]:
        w.counters[NOT_COUNTED] += count
        tell(w, slot, place, count, LOST, now)
        return
    w.clients[row[CLIENT], BUSY] -= 1
    if row[DROPPED]:
        w.counters[NOT_COUNTED] += count
        tell(w, slot, place, count, TOO_LATE, now)
    else:
        tell(w, slot, place, count, RECONSUME_LATER if failed else SUCCESS, now)
        if not failed:
            w.counters[SUCCEEDED] += count
            w.clients[row[CLIENT], DONE_MESSAGES] += count
        elif w.cfg[BROADCAST]:
            w.counters[DEAD] += count
        else:
            for ahead in range(count):
                send_back(w, row[QUEUE], w.ring[_place(w, slot, place, ahead), OFFSET], now)
        row[REACHED] = max(row[REACHED], _remove(w, slot, place, count))
        note_position(w, row, row[REACHED])
    start_work(w, row[CLIENT], now)
