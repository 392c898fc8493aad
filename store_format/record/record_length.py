"""The length of a commit log record: as the record says, and computed from the lengths of its parts.

Broker source (4.9.3): CommitLog.checkMessageAndReturnSize, calMsgLength; (5.5.0) MessageExtEncoder.calMsgLength.
"""

from __future__ import annotations

import numpy as np

from store_format.big_endian import Bytes, int16_at, int32_at
from store_format.compiled import compiled, inner
from store_format.layout import BORNHOST_V6_FLAG, RECORD_MIN_SIZE, STOREHOSTADDRESS_V6_FLAG
from store_format.record.message_version import topic_length, topic_length_size


def stored_length(content: Bytes, position: int) -> int:
    """Length of the record at a position, as the record says."""
    return int(int32_at(content, position))


@compiled
def body_length_position(buffer, start):  # type: ignore[no-untyped-def]
    """The position of the body's length in the record at `start`; it depends on the lengths of the two hosts."""
    sys_flag = int32_at(buffer, start + 36)
    born = 20 if sys_flag & BORNHOST_V6_FLAG else 8
    store = 20 if sys_flag & STOREHOSTADDRESS_V6_FLAG else 8
    return start + 48 + born + 8 + store + 12


@compiled
def record_length(buffer, start, limit):  # type: ignore[no-untyped-def]
    """The length of the record at `start`, or -1 if it reaches past `limit` or the lengths of its parts do not add up to its size."""
    size = int32_at(buffer, start)
    if size < RECORD_MIN_SIZE or start + size > limit:
        return np.int64(-1)
    end = start + size
    at = body_length_position(buffer, start)
    if at + 4 > end:
        return np.int64(-1)
    at += 4 + max(int32_at(buffer, at), np.int64(0))
    width = topic_length_size(buffer, start)
    if at + width > end:
        return np.int64(-1)
    topic = topic_length(buffer, at, width)
    if topic < 0:
        return np.int64(-1)
    at += width + topic
    if at + 2 > end:
        return np.int64(-1)
    at += 2 + max(int16_at(buffer, at), np.int64(0))
    return size if at == end else np.int64(-1)


@inner
def topic_of(buffer, start):  # type: ignore[no-untyped-def]
    """Start and length of the topic of the record at `start`, whose lengths a walk has checked."""
    body = body_length_position(buffer, start)
    at = body + 4 + max(int32_at(buffer, body), np.int64(0))
    width = topic_length_size(buffer, start)
    return at + width, topic_length(buffer, at, width)
