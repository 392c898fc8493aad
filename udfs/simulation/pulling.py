"""The pull loop of one queue, from the client's decision to the messages in its process queue.

Broker source (4.9.3): DefaultMQPushConsumerImpl.pullMessage and its PullCallback, PullMessageProcessor, PullRequestHoldService,
DefaultMessageStore.getMessage; the rules are those of udfs.consumer.pull_message, udfs.pull.pull_request_hold and
udfs.pull.get_message, in a compiled form; tests run both.
Rules: all arrivals in the topic are known, so when a pull begins to wait, the time of its wake-up is calculated. A pull of the retry topic
is woken when a message is delivered. The offset that a pull commits is committed at the time when the client sends the pull.
"""

from __future__ import annotations

import numpy as np

from store_format.compiled import bare, inner
from udfs.pull.batch_caps import is_the_batch_full, scan_window_entries
from udfs.simulation import world as at
from udfs.simulation.arrivals import ALL_MATCH, MATCHES_AT_BROKER, arrival_time, body_size, matches, origin, record_size
from udfs.simulation.event_heap import ANSWER, FIX_OFFSET, PULL, key_of, push
from udfs.simulation.world import NEVER, NONE

_MIB = 1024 * 1024


@inner
def visible_at(w, queue, offset):  # type: ignore[no-untyped-def]
    """Return when pulls can see a message: after its dispatch."""
    arrived = arrival_time(w, queue, offset)
    return arrived if arrived >= NEVER else arrived + w.cfg[at.DISPATCH]


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
    patience = asked + w.cfg[at.SUSPEND]
    sweep = w.cfg[at.SWEEP]
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
    if w.cfg[at.BROADCAST]:
        w.local[row[at.CLIENT], row[at.QUEUE], at.LOCAL_POSITION] = offset
    else:
        w.queues[row[at.QUEUE], at.POSITION] = offset


@inner
def _is_full(w, slot):  # type: ignore[no-untyped-def]
    """Return whether the client holds too many messages of the queue to pull."""
    row, cfg, begin, mask = w.slots[slot], w.cfg, slot * w.cfg[at.RING], w.cfg[at.RING] - 1
    # The span ends at the last message that is not consumed; if all after the first one are consumed, the span does not stop the pull.
    while row[at.TAIL] > row[at.HEAD] and w.ring[begin + ((row[at.TAIL] - 1) & mask), at.IS_DONE] == 1:
        row[at.TAIL] -= 1
    if row[at.MSG_COUNT] > cfg[at.MOST_MESSAGES] or row[at.MSG_SIZE] // _MIB > cfg[at.MOST_MIB]:
        return True
    if cfg[at.ORDERLY] or row[at.HEAD] == row[at.TAIL]:
        return False
    first, last = w.ring[begin + (row[at.HEAD] & mask), at.OFFSET], w.ring[begin + ((row[at.TAIL] - 1) & mask), at.OFFSET]
    return last - first > cfg[at.MOST_SPAN]


@bare
def expect(w, slot, kind, time):  # type: ignore[no-untyped-def]
    """Push an event of a slot."""
    w.slots[slot, at.EVENTS] += 1
    push(w.heap, w.counters, time, key_of(kind, slot))


@inner
def expect_answer(w, slot):  # type: ignore[no-untyped-def]
    """Calculate when the pull in progress is answered, as far as known now; a redelivered message may wake it earlier."""
    row = w.slots[slot]
    row[at.AS_OF] = answered_as_of(w, row[at.QUEUE], row[at.NEXT_OFFSET], row[at.ASKED_AT])
    row[at.ANSWERED_AT] = row[at.AS_OF] + w.cfg[at.NETWORK]
    expect(w, slot, ANSWER, row[at.ANSWERED_AT])


@bare
def pull(w, slot, now):  # type: ignore[no-untyped-def]
    """Pull a queue, or test again later if the client may not pull now."""
    row, cfg = w.slots[slot], w.cfg
    row[at.ANSWERED_AT] = NONE
    if row[at.DROPPED]:
        return
    row[at.LAST_PULL] = now
    if _is_full(w, slot):
        w.counters[at.FLOW_CONTROL] += 1
        expect(w, slot, PULL, now + cfg[at.FLOW_DELAY])
        return
    if cfg[at.ORDERLY] and not row[at.LOCKED]:
        expect(w, slot, PULL, now + cfg[at.EXCEPTION_DELAY])
        return
    if cfg[at.ORDERLY] and not row[at.FIXED]:
        expect(w, slot, FIX_OFFSET, now)
        return
    if row[at.REACHED] > 0 and not cfg[at.BROADCAST]:
        w.queues[row[at.QUEUE], at.COMMITTED] = row[at.REACHED]
    row[at.ASKED_AT] = now + cfg[at.NETWORK]
    expect_answer(w, slot)


@inner
def _put(w, slot, offset, body, tries, now):  # type: ignore[no-untyped-def]
    """Add one message to the slot's ring (ProcessQueue.putMessage); return its place."""
    row = w.slots[slot]
    place = slot * w.cfg[at.RING] + (row[at.TAIL] & (w.cfg[at.RING] - 1))
    entry = w.ring[place]
    entry[at.OFFSET] = offset
    entry[at.PULLED] = now
    entry[at.IS_DONE] = 0
    entry[at.BODY] = body
    entry[at.TRY] = tries
    row[at.TAIL] += 1
    row[at.MSG_COUNT] += 1
    row[at.MSG_SIZE] += body
    row[at.QUEUE_OFFSET_MAX] = offset
    return place


@inner
def submit(w, slot, place, count):  # type: ignore[no-untyped-def]
    """Append a batch to the client's line for a thread: `count` messages from `place` in the ring on."""
    client = w.clients[w.slots[slot, at.CLIENT]]
    w.ring[place, at.BATCH] = count
    w.ring[place, at.NEXT_IN_FIFO] = NONE
    if client[at.FIFO_TAIL] == NONE:
        client[at.FIFO_HEAD] = place
    else:
        w.ring[client[at.FIFO_TAIL], at.NEXT_IN_FIFO] = place
    client[at.FIFO_TAIL] = place
    w.slots[slot, at.QUEUED] += 1


@inner
def _scan(w, slot, as_of, now):  # type: ignore[no-untyped-def]
    """Scan (getMessage), filter again as the client does, and add the messages; return how many the broker sent and how many were added."""
    row, cfg = w.slots[slot], w.cfg
    queue, offset = row[at.QUEUE], row[at.NEXT_OFFSET]
    file = cfg[at.ENTRIES_A_FILE]
    stop = min(offset + scan_window_entries(cfg[at.PULL_BATCH]), offset - offset % file + file)
    sent, total, put, in_batch, first = 0, 0, 0, 0, np.int64(NONE)
    while offset < stop and visible_at(w, queue, offset) <= as_of:
        first_queue, first_offset, tries = origin(w, queue, offset)
        body = body_size(w, first_queue, first_offset)
        record = record_size(w, first_queue, first_offset, body)
        most, bytes_most = cfg[at.COUNT_MEMORY], cfg[at.BYTES_MEMORY]
        if is_the_batch_full(record, cfg[at.PULL_BATCH], total, sent, False, bytes_most, most, bytes_most, most):
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
            if in_batch == cfg[at.CONSUME_BATCH] and not cfg[at.ORDERLY]:
                submit(w, slot, first, in_batch)
                in_batch = 0
        offset += 1
    if in_batch > 0 and not cfg[at.ORDERLY]:
        submit(w, slot, first, in_batch)
    row[at.NEXT_OFFSET] = offset
    return sent, put


@inner
def take_answer(w, slot, now):  # type: ignore[no-untyped-def]
    """Process the broker's answer, and pull again; return how many messages were added."""
    row, cfg = w.slots[slot], w.cfg
    row[at.ANSWERED_AT] = NONE
    if row[at.DROPPED]:
        return 0
    w.counters[at.PULLS] += 1
    sent, put = _scan(w, slot, row[at.AS_OF], now)
    if sent > 0:
        w.counters[at.PULLS_FOUND] += 1
    elif row[at.MSG_COUNT] == 0:
        row[at.REACHED] = max(row[at.REACHED], row[at.NEXT_OFFSET])
        note_position(w, row, row[at.REACHED])
    if put > 0 and cfg[at.PULL_INTERVAL] > 0:
        expect(w, slot, PULL, now + cfg[at.PULL_INTERVAL])
    else:
        pull(w, slot, now)
    return put
