"""Checks entries of consume queues and of index files against the messages that they point to.

Broker source (4.9.3): CommitLog.checkMessageAndReturnSize, MessageDecoder.string2messageProperties, IndexService.buildIndex,
ConsumeQueue.putMessagePositionInfoWrapper.
Rule: a queue's entry is right if the log has a record of the entry's size at the entry's offset, the record has the queue's topic and
queueId and the entry's queue offset, and the hash code of its tag is the entry's. An index entry is right if the message at its offset has
a key or a tag with the entry's hash. Tags count because 5.5.0 indexes them, and an older broker keeps its entries.
Surprise: the last of properties with equal names counts. Texts that are no UTF-8 need Java's decoder; they are left to the caller.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from store_format.big_endian import Bytes, Positions, int16_at, int32_at, int64_at
from store_format.broker_version import DEFAULT_VERSION, BrokerVersion
from store_format.compiled import compiled
from store_format.index.index_dispatch import hash_keys, hash_tag, topic_prefix
from store_format.index.index_file import KEYS, UNIQ_KEY
from store_format.java.string_hash import hash_on
from store_format.layout import EXT_MAX_ADDRESS, RECORD_MIN_SIZE, SYS_FLAG_POSITION, TRANSACTION_ROLLBACK_TYPE
from store_format.queue.consume_queue import Units
from store_format.record.message_version import MESSAGE_VERSION, is_message
from store_format.record.record_columns import PROPERTY_TAGS, are_same, is_utf8
from store_format.record.record_length import record_length, topic_of

_TAGS, _UNIQ_KEY, _KEYS = (np.frombuffer(name, np.uint8) for name in (PROPERTY_TAGS, UNIQ_KEY.encode(), KEYS.encode()))
_NAME_VALUE_SEPARATOR, _PROPERTY_SEPARATOR = 1, 2
_QUEUE_ID, _QUEUE_OFFSET = 12, 20  # positions in a record
# a key and the blank after it take at least two bytes of the properties; the tag is one more
_KEYS_MAX = 32767 // 2 + 3


class Held(IntEnum):
    """The result of checking an entry: right, or the first thing that is wrong."""

    RIGHT = 0
    NO_RECORD = 1
    OTHER_MESSAGE = 2
    OTHER_CODE = 3  # the tagsCode or key hash is not the message's
    UNSURE = 4  # the check needs Java's decoder, or the queue extension


@compiled
def _is_record(content, at, limit, with_v2):  # type: ignore[no-untyped-def]
    if at < 0 or at + RECORD_MIN_SIZE > limit or not is_message(content, at, with_v2):
        return False
    return record_length(content, at, limit) > 0


@compiled
def _texts(content, at):  # type: ignore[no-untyped-def]
    """Start and end of the topic, and start and end of the properties, of the record at `at`."""
    topic, topic_length = topic_of(content, at)
    topic_end = topic + topic_length
    properties = topic_end + 2
    return topic, topic_end, properties, properties + max(int16_at(content, topic_end), np.int64(0))


@compiled
def _property(content, start, end, name):  # type: ignore[no-untyped-def]
    """Start and end of the value of the property `name` in the properties at `content[start:end]`, (0, -1) if there is none."""
    found, found_end = np.int64(0), np.int64(-1)
    at = start
    while at < end:
        stop = at
        while stop < end and content[stop] != _PROPERTY_SEPARATOR:
            stop += 1
        value = at + len(name)
        if value + 1 < stop and content[value] == _NAME_VALUE_SEPARATOR and are_same(content, at, len(name), name, 0, len(name)):
            found, found_end = value + 1, stop
        at = stop + 1
    return found, found_end


@compiled
def _check_units(content, limit, with_v2, positions, sizes, codes, queue_offsets, topic, queue_id, is_lmq, out):  # type: ignore[no-untyped-def]
    for i in range(len(positions)):
        at = positions[i]
        if not _is_record(content, at, limit, with_v2) or int32_at(content, at) != sizes[i]:
            out[i] = 1
            continue
        start, end, properties, properties_end = _texts(content, at)
        if not is_lmq:
            same = int32_at(content, at + _QUEUE_ID) == queue_id and int64_at(content, at + _QUEUE_OFFSET) == queue_offsets[i]
            if not same or not are_same(content, start, end - start, topic, 0, len(topic)):
                out[i] = 2
                continue
        tag, tag_end = _property(content, properties, properties_end, _TAGS)
        if codes[i] <= EXT_MAX_ADDRESS or not is_utf8(content, tag, tag_end):
            out[i] = 4
            continue
        code = hash_on(content, tag, tag_end, np.int64(0))
        code = code - (np.int64(1) << 32) if code >= (np.int64(1) << 31) else code
        out[i] = 0 if code == codes[i] else 3


def check_units(
    content: Bytes,
    limit: int,
    positions: Positions,
    units: Units,
    queue_offsets: NDArray[np.int64],
    queue: tuple[str, int],
    *,
    is_lmq: bool,
    version: BrokerVersion = DEFAULT_VERSION,
) -> NDArray[np.int8]:
    """Check entries of a queue against the messages in one file of the commit log; return a `Held` for each entry.

    `content` are the bytes of the log file, whose records end at `limit`; `positions` has the position in it of each entry's message.
    `queue` is the queue's topic and queueId; messages of a light message queue (`is_lmq`) belong to other queues.
    `version` is that of the broker whose records count.
    """
    out = np.empty(len(units), np.int8)
    sizes, codes = units["size"].astype(np.int64), units["tagsCode"].astype(np.int64)
    topic = np.frombuffer(queue[0].encode(), np.uint8)
    with_v2 = MESSAGE_VERSION.of(version).value
    _check_units(content, limit, with_v2, positions, sizes, codes, queue_offsets, topic, queue[1], is_lmq, out)
    return out


@compiled
def _key_hashes(content, at, known):  # type: ignore[no-untyped-def]
    """The hashes of a message's keys and tag, and their number, -1 if a text is no UTF-8."""
    if int32_at(content, at + SYS_FLAG_POSITION) & TRANSACTION_ROLLBACK_TYPE == TRANSACTION_ROLLBACK_TYPE:
        return 0
    topic, topic_end, properties, properties_end = _texts(content, at)
    uniq_key, uniq_key_end = _property(content, properties, properties_end, _UNIQ_KEY)
    key, keys_end = _property(content, properties, properties_end, _KEYS)
    tag, tag_end = _property(content, properties, properties_end, _TAGS)
    if not (is_utf8(content, topic, topic_end) and is_utf8(content, uniq_key, uniq_key_end)):
        return -1
    if not (is_utf8(content, key, keys_end) and is_utf8(content, tag, tag_end)):
        return -1
    prefix = topic_prefix(content, topic, topic_end)
    count = hash_keys(content, prefix, uniq_key, uniq_key_end, key, keys_end, known, 0)
    if tag_end > tag:
        known[count] = hash_tag(content, prefix, tag, tag_end)
        count += 1
    return count


@compiled
def _check_keys(content, limit, with_v2, positions, hashes, known, out):  # type: ignore[no-untyped-def]
    last = np.int64(-1)
    count = 0
    is_record = False
    for i in range(len(positions)):
        if i == 0 or positions[i] != last:
            last = positions[i]
            is_record = _is_record(content, last, limit, with_v2)
            count = _key_hashes(content, last, known) if is_record else 0
        if not is_record:
            out[i] = 1
            continue
        out[i] = 4 if count < 0 else 3
        for k in range(count):
            if known[k] == hashes[i]:
                out[i] = 0
                break


def check_keys(
    content: Bytes, limit: int, positions: Positions, hashes: NDArray[np.int64], version: BrokerVersion = DEFAULT_VERSION
) -> NDArray[np.int8]:
    """Check entries of an index file against the messages in one file of the commit log; return a `Held` for each entry.

    `content`, `limit`, `positions` and `version` are as in `check_units`; `hashes` has the key hash of each entry.
    """
    out = np.empty(len(positions), np.int8)
    _check_keys(content, limit, MESSAGE_VERSION.of(version).value, positions, hashes, np.empty(_KEYS_MAX, np.int64), out)
    return out
