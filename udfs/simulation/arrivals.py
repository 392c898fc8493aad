"""The messages of each queue: when they arrive, how large they are, whether they match the group's filter.

Not the broker's own code.
Rules: messages that come at a rate have no rows. The number of messages in each time bucket is drawn once (Poisson, by `arrival_counts`),
and a message's time within the bucket follows from its offset alone. Recorded messages are rows of arrays. Messages of the retry topic are
created by the simulation.
Messages with a delay level arrive when the broker delivers their level. All have one level, so they keep their order.
Surprise: a bucket is divided into equal intervals, one for each message; each message comes at a random time within its interval.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from store_format.compiled import bare, inner
from store_format.made.made_values import between, unit
from udfs.broker.schedule_delivery import look_after
from udfs.simulation import world as at
from udfs.simulation.draws import ARRIVAL, BODY, MATCH, draw, message_stream
from udfs.simulation.world import BEFORE, MS, NEVER, NONE

MATCHES_AT_BROKER: Final = 1
MATCHES_AT_CLIENT: Final = 2
ALL_MATCH: Final = MATCHES_AT_BROKER | MATCHES_AT_CLIENT
_RECORD, _BODY = 0, 1  # columns of `sizes`


@inner
def _row(w, queue, offset):  # type: ignore[no-untyped-def]
    """Return the row of a recorded message."""
    return w.queues[queue, at.FIRST_TIME] + offset - w.queues[queue, at.BACKLOG_END]


@bare
def arrival_time(w, queue, offset):  # type: ignore[no-untyped-def]
    """Return when a message is stored, microseconds; BEFORE if it is of the backlog, NEVER if the queue has no message at this offset."""
    if queue >= w.cfg[at.QUEUES]:
        if offset >= w.queues[queue, at.END]:
            return np.int64(NEVER)
        return w.retries[queue - w.cfg[at.QUEUES], offset - w.queues[queue, at.TRIMMED], at.RETRY_TIME]
    ahead = offset - w.queues[queue, at.BACKLOG_END]
    if ahead >= w.queues[queue, at.COMING]:
        return np.int64(NEVER)
    if w.times.shape[0] > 0:
        return w.times[_row(w, queue, offset)]
    if ahead < 0:
        return np.int64(BEFORE)
    bucket = w.queues[queue, at.HINT]
    while w.cum[queue, bucket] > ahead:
        bucket -= 1
    while w.cum[queue, bucket + 1] <= ahead:
        bucket += 1
    w.queues[queue, at.HINT] = bucket
    first = w.cum[queue, bucket]
    count = w.cum[queue, bucket + 1] - first
    shift = unit(draw(message_stream(w.cfg[at.SEED], queue, offset), 0, ARRIVAL))
    stored = bucket * w.cfg[at.BUCKET] + np.int64((ahead - first + shift) / count * w.cfg[at.BUCKET])
    return stored if w.cfg[at.DELAY] == NONE else look_after(0, stored // MS + w.cfg[at.DELAY]) * MS


@bare
def matches(w, queue, offset):  # type: ignore[no-untyped-def]
    """Return the flags of a message: the sum of MATCHES_AT_BROKER and MATCHES_AT_CLIENT, each if it holds."""
    if queue >= w.cfg[at.QUEUES]:
        return np.int64(ALL_MATCH)
    if w.flags.shape[0] > 0:
        return np.int64(w.flags[_row(w, queue, offset)])
    if w.shares[at.MATCHING] >= 1.0:
        return np.int64(ALL_MATCH)
    taken = unit(draw(message_stream(w.cfg[at.SEED], queue, offset), 0, MATCH)) < w.shares[at.MATCHING]
    return np.int64(ALL_MATCH) if taken else np.int64(0)


@inner
def origin(w, queue, offset):  # type: ignore[no-untyped-def]
    """Return (queue, offset, tries) of a message: where it was first sent, and how often it was sent back since."""
    if queue < w.cfg[at.QUEUES]:
        return np.int64(queue), np.int64(offset), np.int64(0)
    row = w.retries[queue - w.cfg[at.QUEUES], offset - w.queues[queue, at.TRIMMED]]
    return row[at.RETRY_QUEUE], row[at.RETRY_OFFSET], row[at.RETRY_TRIES]


@bare
def body_size(w, queue, offset):  # type: ignore[no-untyped-def]
    """Return the bytes of a message's body; `queue` and `offset` are where it was first sent."""
    if w.sizes.shape[0] > 0:
        return np.int64(w.sizes[_row(w, queue, offset), _BODY])
    least, most = w.cfg[at.BODY_LEAST], w.cfg[at.BODY_MOST]
    if least == most:
        return least
    return between(least, most, draw(message_stream(w.cfg[at.SEED], queue, offset), 0, BODY))


@bare
def record_size(w, queue, offset, body):  # type: ignore[no-untyped-def]
    """Return the bytes of a message's record in the commit log; `queue` and `offset` are where it was first sent."""
    if w.sizes.shape[0] > 0:
        return np.int64(w.sizes[_row(w, queue, offset), _RECORD])
    return body + w.cfg[at.OVERHEAD]


@bare
def end_offset(w, queue, time):  # type: ignore[no-untyped-def]
    """Return the offset one past the last message that is stored by `time`."""
    if queue >= w.cfg[at.QUEUES]:
        low, high = w.queues[queue, at.TRIMMED], w.queues[queue, at.END]
    else:
        low = w.queues[queue, at.BACKLOG_END]
        high = low + w.queues[queue, at.COMING]
        if w.times.shape[0] == 0:  # delays are whole seconds, so a delivery run coincides with the begin of a bucket
            stored = time if w.cfg[at.DELAY] == NONE else time - w.cfg[at.DELAY] * MS
            bucket = min(max(stored, 0) // w.cfg[at.BUCKET], w.cum.shape[1] - 2)
            high = low + w.cum[queue, bucket + 1]
            low += w.cum[queue, bucket]
    while low < high:
        middle = (low + high) >> 1
        if arrival_time(w, queue, middle) <= time:
            low = middle + 1
        else:
            high = middle
    return low
