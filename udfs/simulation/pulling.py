"""The pull loop of one queue, from the client's decision to the messages in its process queue.

Broker source (4.9.3): DefaultMQPushConsumerImpl.pullMessage and its PullCallback, PullMessageProcessor, PullRequestHoldService,
DefaultMessageStore.getMessage; the rules are those of udfs.consumer.pull_message, udfs.pull.pull_request_hold and
udfs.pull.get_message, in a compiled form; tests run both.
Rules: all arrivals in the topic are known, so when a pull begins to wait, the time of its wake-up is calculated. A pull of the retry topic
is woken when a message is delivered. The offset that a pull commits is committed at the time when the client sends the pull.
"""

from __future__ import annotations

import numpy as np

from store_format.compiled import bare
from udfs.pull.batch_caps import is_the_batch_full, scan_window_entries
from udfs.simulation.arrivals import ALL_MATCH, MATCHES_AT_BROKER, arrival_time, body_size, matches, origin, record_size
from udfs.simulation.event_heap import ANSWER, FIX_OFFSET, PULL, key_of, push
from udfs.simulation.world import (
    ANSWERED_AT,
    AS_OF,
    ASKED_AT,
    BATCH,
    BODY,
    BROADCAST,
    BYTES_MEMORY,
    CLIENT,
    COMMITTED,
    CONSUME_BATCH,
    COUNT_MEMORY,
    DISPATCH,
    DROPPED,
    ENTRIES_A_FILE,
    EVENTS,
    EXCEPTION_DELAY,
    FIFO_HEAD,
    FIFO_TAIL,
    FIXED,
    FLOW_CONTROL,
    FLOW_DELAY,
    HEAD,
    IS_DONE,
    LAST_PULL,
    LOCAL_POSITION,
    LOCKED,
    MOST_MESSAGES,
    MOST_MIB,
    MOST_SPAN,
    MSG_COUNT,
    MSG_SIZE,
    NETWORK,
    NEVER,
    NEXT_IN_FIFO,
    NEXT_OFFSET,
    NONE,
    OFFSET,
    ORDERLY,
    POSITION,
    PULL_BATCH,
    PULL_INTERVAL,
    PULLED,
    PULLS,
    PULLS_FOUND,
    QUEUE,
    QUEUE_OFFSET_MAX,
    QUEUED,
    REACHED,
    RING,
    SUSPEND,
    SWEEP,
    TAIL,
    TRY,
)

_MIB = 1024 * 1024


@bare
def visible_at(w, queue, offset):  # type: ignore[no-untyped-def]
    """Return when pulls can see a message: after its dispatch."""
    arrived = arrival_time(w, queue, offset)
    return arrived if arrived >= NEVER else arrived + w.cfg[DISPATCH]


@bare
def answered_as_of(w, queue, offset, asked):  # type: ignore[no-untyped-def]
    """Return the time at which the broker answers a pull: when it arrives, or when it is woken (`woken_at`).

    Args:
        w: the world.
        queue: the pull's queue.
        offset: the pull's offset.
        asked: when the pull reached the broker.
    """
    time = visible_at(w, queue, offset)
    if time <= asked:
        return asked
    patience = asked + w.cfg[SUSPEND]
    sweep = w.cfg[SWEEP]
    since = min(patience, time)
    next_sweep = since + (-since) % sweep
    while time < next_sweep:
        if time >= patience or matches(w, queue, offset) & MATCHES_AT_BROKER:
            return time
        offset += 1
        time = visible_at(w, queue, offset)
    return next_sweep


@bare
def note_position(w, row, offset):  # type: ignore[no-untyped-def]
    """Record the offset that the client of a slot has reached in its queue."""
    if w.cfg[BROADCAST]:
        w.local[row[CLIENT], row[QUEUE], LOCAL_POSITION] = offset
    else:
        w.queues[row[QUEUE], POSITION] = offset


@bare
def _is_full(w, slot):  # type: ignore[no-untyped-def]
    """Return whether the client holds too many messages of the queue to pull."""
    row, cfg, begin, mask = w.slots[slot], w.cfg, slot * w.cfg[RING], w.cfg[RING] - 1
    # The span ends at the last message that is not consumed; if all after the first one are consumed, the span does not stop the pull.
    while row[TAIL] > row[HEAD] and w.ring[begin + ((row[TAIL] - 1) & mask), IS_DONE] == 1:
        row[TAIL] -= 1
    if row[MSG_COUNT] > cfg[MOST_MESSAGES] or row[MSG_SIZE] // _MIB > cfg[MOST_MIB]:
        return True
    if cfg[ORDERLY] or row[HEAD] == row[TAIL]:
        return False
    first, last = w.ring[begin + (row[HEAD] & mask), OFFSET], w.ring[begin + ((row[TAIL] - 1) & mask), OFFSET]
    return last - first > cfg[MOST_SPAN]


@bare
def expect(w, slot, kind, time):  # type: ignore[no-untyped-def]
    """Push an event of a slot."""
    w.slots[slot, EVENTS] += 1
    push(w.heap, w.counters, time, key_of(kind, slot))


@bare
def pull(w, slot, now):  # type: ignore[no-untyped-def]
    """Pull a queue, or test again later if the client may not pull now."""
    row, cfg = w.slots[slot], w.cfg
    row[ANSWERED_AT] = NONE
    if row[DROPPED]:
        return
    row[LAST_PULL] = now
    if _is_full(w, slot):
        w.counters[FLOW_CONTROL] += 1
        expect(w, slot, PULL, now + cfg[FLOW_DELAY])
        return
    if cfg[ORDERLY] and not row[LOCKED]:
        expect(w, slot, PULL, now + cfg[EXCEPTION_DELAY])
        return
    if cfg[ORDERLY] and not row[FIXED]:
        expect(w, slot, FIX_OFFSET, now)
        return
    if row[REACHED] > 0 and not cfg[BROADCAST]:
        w.queues[row[QUEUE], COMMITTED] = row[REACHED]
    row[ASKED_AT] = now + cfg[NETWORK]
    expect_answer(w, slot)


@bare
def expect_answer(w, slot):  # type: ignore[no-untyped-def]
    """Calculate when the pull in progress is answered, as far as known now; a redelivered message may wake it earlier."""
    row = w.slots[slot]
    row[AS_OF] = answered_as_of(w, row[QUEUE], row[NEXT_OFFSET], row[ASKED_AT])
    row[ANSWERED_AT] = row[AS_OF] + w.cfg[NETWORK]
    expect(w, slot, ANSWER, row[ANSWERED_AT])


@bare
def _put(w, slot, offset, body, tries, now):  # type: ignore[no-untyped-def]
    """Add one message to the slot's ring (ProcessQueue.putMessage); return its place."""
    row = w.slots[slot]
    place = slot * w.cfg[RING] + (row[TAIL] & (w.cfg[RING] - 1))
    entry = w.ring[place]
    entry[OFFSET] = offset
    entry[PULLED] = now
    entry[IS_DONE] = 0
    entry[BODY] = body
    entry[TRY] = tries
    row[TAIL] += 1
    row[MSG_COUNT] += 1
    row[MSG_SIZE] += body
    row[QUEUE_OFFSET_MAX] = offset
    return place


@bare
def submit(w, slot, place, count):  # type: ignore[no-untyped-def]
    """Append a batch to the client's line for a thread: `count` messages from `place` in the ring on."""
    client = w.clients[w.slots[slot, CLIENT]]
    w.ring[place, BATCH] = count
    w.ring[place, NEXT_IN_FIFO] = NONE
    if client[FIFO_TAIL] == NONE:
        client[FIFO_HEAD] = place
    else:
        w.ring[client[FIFO_TAIL], NEXT_IN_FIFO] = place
    client[FIFO_TAIL] = place
    w.slots[slot, QUEUED] += 1


@bare
def _scan(w, slot, as_of, now):  # type: ignore[no-untyped-def]
    """Scan (getMessage), filter again as the client does, and add the messages; return how many the broker sent and how many were added."""
    row, cfg = w.slots[slot], w.cfg
    queue, offset = row[QUEUE], row[NEXT_OFFSET]
    file = cfg[ENTRIES_A_FILE]
    stop = min(offset + scan_window_entries(cfg[PULL_BATCH]), offset - offset % file + file)
    sent, total, put, in_batch, first = 0, 0, 0, 0, np.int64(NONE)
    while offset < stop and visible_at(w, queue, offset) <= as_of:
        first_queue, first_offset, tries = origin(w, queue, offset)
        body = body_size(w, first_queue, first_offset)
        record = record_size(w, first_queue, first_offset, body)
        most, bytes_most = cfg[COUNT_MEMORY], cfg[BYTES_MEMORY]
        if is_the_batch_full(record, cfg[PULL_BATCH], total, sent, False, bytes_most, most, bytes_most, most):
            break
        verdict = matches(w, queue, offset)
        if verdict & MATCHES_AT_BROKER:
            sent += 1
            total += record
        if verdict == ALL_MATCH:
            place = _put(w, slot, offset, body, tries, now)
            first = place if in_batch == 0 else first
            in_batch += 1
            put += 1
            if in_batch == cfg[CONSUME_BATCH] and not cfg[ORDERLY]:
                submit(w, slot, first, in_batch)
                in_batch = 0
        offset += 1
    if in_batch > 0 and not cfg[ORDERLY]:
        submit(w, slot, first, in_batch)
    row[NEXT_OFFSET] = offset
    return sent, put


@bare
def take_answer(w, slot, now):  # type: ignore[no-untyped-def]
    """Process the broker's answer, and pull again; return how many messages were added."""
    row, cfg = w.slots[slot], w.cfg
    row[ANSWERED_AT] = NONE
    if row[DROPPED]:
        return 0
    w.counters[PULLS] += 1
    sent, put = _scan(w, slot, row[AS_OF], now)
    if sent > 0:
        w.counters[PULLS_FOUND] += 1
    elif row[MSG_COUNT] == 0:
        row[REACHED] = max(row[REACHED], row[NEXT_OFFSET])
        note_position(w, row, row[REACHED])
    if put > 0 and cfg[PULL_INTERVAL] > 0:
        expect(w, slot, PULL, now + cfg[PULL_INTERVAL])
    else:
        pull(w, slot, now)
    return put
