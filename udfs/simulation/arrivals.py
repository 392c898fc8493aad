"""The messages of each queue: when they arrive, how large they are, whether they match the group's filter.

Not the broker's own code.
Rules: messages of a rate are not stored. The number of messages in each time bucket is drawn once (Poisson, by `arrival_counts`), and a
message's time within the bucket follows from its offset alone. Recorded messages are rows of arrays. Messages of the retry topic are
created by the simulation.
Messages with a delay level arrive when the broker delivers their level. All have one level, so they keep their order.
Surprise: a bucket is divided into equal intervals, one for each message; each message comes at a random time within its interval.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from store_format.compiled import bare
from store_format.made.made_values import between, unit
from udfs.broker.schedule_delivery import look_after
from udfs.simulation.draws import ARRIVAL, BODY, MATCH, draw, message_stream
from udfs.simulation.world import (
    BACKLOG_END,
    BEFORE,
    BODY_LEAST,
    BODY_MOST,
    BUCKET,
    COMING,
    DELAY,
    END,
    FIRST_TIME,
    HINT,
    MATCHING,
    MS,
    NEVER,
    NONE,
    OVERHEAD,
    QUEUES,
    RETRY_OFFSET,
    RETRY_QUEUE,
    RETRY_TIME,
    RETRY_TRIES,
    SEED,
    TRIMMED,
)

MATCHES_AT_BROKER: Final = 1
MATCHES_AT_CLIENT: Final = 2
ALL_MATCH: Final = MATCHES_AT_BROKER | MATCHES_AT_CLIENT
_RECORD, _BODY = 0, 1  # columns of `sizes`


@bare
def _row(w, queue, offset):  # type: ignore[no-untyped-def]
    """Return the row of a recorded message."""
    return w.queues[queue, FIRST_TIME] + offset - w.queues[queue, BACKLOG_END]


@bare
def arrival_time(w, queue, offset):  # type: ignore[no-untyped-def]
    """Return when a message is stored, microseconds; BEFORE if it is of the backlog, NEVER if the queue gets no such offset."""
    if queue >= w.cfg[QUEUES]:
        if offset >= w.queues[queue, END]:
            return np.int64(NEVER)
        return w.retries[queue - w.cfg[QUEUES], offset - w.queues[queue, TRIMMED], RETRY_TIME]
    at = offset - w.queues[queue, BACKLOG_END]
    if at >= w.queues[queue, COMING]:
        return np.int64(NEVER)
    if w.times.shape[0] > 0:
        return w.times[_row(w, queue, offset)]
    if at < 0:
        return np.int64(BEFORE)
    bucket = w.queues[queue, HINT]
    while w.cum[queue, bucket] > at:
        bucket -= 1
    while w.cum[queue, bucket + 1] <= at:
        bucket += 1
    w.queues[queue, HINT] = bucket
    first = w.cum[queue, bucket]
    count = w.cum[queue, bucket + 1] - first
    shift = unit(draw(message_stream(w.cfg[SEED], queue, offset), 0, ARRIVAL))
    stored = bucket * w.cfg[BUCKET] + np.int64((at - first + shift) / count * w.cfg[BUCKET])
    return stored if w.cfg[DELAY] == NONE else look_after(0, stored // MS + w.cfg[DELAY]) * MS


@bare
def matches(w, queue, offset):  # type: ignore[no-untyped-def]
    """Return the flags MATCHES_AT_BROKER and MATCHES_AT_CLIENT of a message, added."""
    if queue >= w.cfg[QUEUES]:
        return np.int64(ALL_MATCH)
    if w.flags.shape[0] > 0:
        return np.int64(w.flags[_row(w, queue, offset)])
    if w.shares[MATCHING] >= 1.0:
        return np.int64(ALL_MATCH)
    taken = unit(draw(message_stream(w.cfg[SEED], queue, offset), 0, MATCH)) < w.shares[MATCHING]
    return np.int64(ALL_MATCH) if taken else np.int64(0)


@bare
def origin(w, queue, offset):  # type: ignore[no-untyped-def]
    """Return (queue, offset, tries) of a message: where it was first sent, and how often it was sent back since."""
    if queue < w.cfg[QUEUES]:
        return np.int64(queue), np.int64(offset), np.int64(0)
    row = w.retries[queue - w.cfg[QUEUES], offset - w.queues[queue, TRIMMED]]
    return row[RETRY_QUEUE], row[RETRY_OFFSET], row[RETRY_TRIES]


@bare
def body_size(w, queue, offset):  # type: ignore[no-untyped-def]
    """Return the bytes of a message's body; `queue` and `offset` are where it was first sent."""
    if w.sizes.shape[0] > 0:
        return np.int64(w.sizes[_row(w, queue, offset), _BODY])
    least, most = w.cfg[BODY_LEAST], w.cfg[BODY_MOST]
    if least == most:
        return least
    return between(least, most, draw(message_stream(w.cfg[SEED], queue, offset), 0, BODY))


@bare
def record_size(w, queue, offset, body):  # type: ignore[no-untyped-def]
    """Return the bytes of a message's record in the commit log; `queue` and `offset` are where it was first sent."""
    if w.sizes.shape[0] > 0:
        return np.int64(w.sizes[_row(w, queue, offset), _RECORD])
    return body + w.cfg[OVERHEAD]


@bare
def end_offset(w, queue, time):  # type: ignore[no-untyped-def]
    """Return the offset one past the last message that is stored by `time`."""
    if queue >= w.cfg[QUEUES]:
        low, high = w.queues[queue, TRIMMED], w.queues[queue, END]
    else:
        low = w.queues[queue, BACKLOG_END]
        high = low + w.queues[queue, COMING]
        if w.times.shape[0] == 0:  # delays are whole seconds, so a delivery run coincides with the begin of a bucket
            stored = time if w.cfg[DELAY] == NONE else time - w.cfg[DELAY] * MS
            bucket = min(max(stored, 0) // w.cfg[BUCKET], w.cum.shape[1] - 2)
            high = low + w.cum[queue, bucket + 1]
            low += w.cum[queue, bucket]
    while low < high:
        middle = (low + high) >> 1
        if arrival_time(w, queue, middle) <= time:
            low = middle + 1
        else:
            high = middle
    return low
