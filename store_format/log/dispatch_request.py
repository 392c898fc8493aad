"""What the dispatchers are told of a message, for many messages at once.

Broker source (4.9.3): CommitLog.checkMessageAndReturnSize (the part behind the lengths), DispatchRequest.
Rule: everything comes from the record itself, its place in the commit log too.
Surprises: load has not read the delay levels when it recovers, so a delayed message that it dispatches gets the hash of its tag and not the
time of its delivery; start has. A delayed message whose level is no number counts as a bad record.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from store_format.big_endian import Bytes, Positions
from store_format.compiled import compiled
from store_format.java.string_hash import string_hashes
from store_format.record.message import decode_properties, decode_text
from store_format.record.record_columns import (
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    Properties,
    Slices,
    locate,
    parse_properties,
    pick_property,
    prefixes,
    store_timestamps,
)

SCHEDULE_TOPIC = b"SCHEDULE_TOPIC_XXXX"
PROPERTY_DELAY = b"DELAY"
PROPERTY_UNIQ_KEY = b"UNIQ_KEY"
PROPERTY_MULTI_DISPATCH = b"INNER_MULTI_DISPATCH"
PROPERTY_MULTI_QUEUE_OFFSET = b"INNER_MULTI_QUEUE_OFFSET"

Longs = NDArray[np.int64]
DeliverTimestamp = Callable[[int, int], int]

_INT = re.compile(r"[+-]?(?:(?![\U00010000-\U0010ffff])\d)+")


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchRequests:
    """DispatchRequest of each message of a stretch, in the order of the log.

    Attributes:
        buffer: the bytes that the slices point into.
        physic_offset: getCommitLogOffset, as the record says.
        size: whole record, bytes.
        tags_code: hash of the tag, or the time of delivery, or 0.
        keys: property KEYS, missing where there is none.
        uniq_key: property UNIQ_KEY, likewise.
        has_properties: whether getPropertiesMap is not null.
        properties: all of them, for filters.
        multi_dispatch: property INNER_MULTI_DISPATCH, the names of further queues.
        multi_queue_offset: property INNER_MULTI_QUEUE_OFFSET, an offset for each of them.
    """

    buffer: Bytes
    physic_offset: Longs
    size: Longs
    queue_id: Longs
    queue_offset: Longs
    sys_flag: Longs
    store_timestamp: Longs
    tags_code: Longs
    topic: Slices
    keys: Slices
    uniq_key: Slices
    has_properties: NDArray[np.bool_]
    properties: Slices
    multi_dispatch: Slices
    multi_queue_offset: Slices

    def __len__(self) -> int:
        return len(self.size)

    def text(self, slices: Slices, row: int) -> str | None:
        """A text of one message, None where it is missing."""
        start, length = int(slices.starts[row]), int(slices.lengths[row])
        return None if length < 0 else decode_text(self.buffer[start : start + length].tobytes())

    def properties_map(self, row: int) -> dict[str, str]:
        """getPropertiesMap of one message."""
        start, length = int(self.properties.starts[row]), int(self.properties.lengths[row])
        return decode_properties(self.buffer[start : start + length].tobytes())

    def first(self, count: int) -> DispatchRequests:
        """The first `count` of them."""
        rows = np.arange(min(count, len(self)))
        taken = {name: getattr(self, name)[rows] for name in self.__slots__ if name != "buffer"}
        return DispatchRequests(buffer=self.buffer, **taken)


@compiled
def _equals(buffer, starts, lengths, wanted, out):  # type: ignore[no-untyped-def]
    for i in range(len(starts)):
        same = lengths[i] == len(wanted)
        for k in range(len(wanted)):
            same = same and buffer[starts[i] + k] == wanted[k]
        out[i] = same


def _is_text(buffer: Bytes, slices: Slices, wanted: bytes) -> NDArray[np.bool_]:
    out = np.zeros(len(slices.starts), np.bool_)
    _equals(buffer, slices.starts, slices.lengths, np.frombuffer(wanted, np.uint8), out)
    return out


def read_requests(buffer: Bytes, positions: Positions, deliver_timestamp: DeliverTimestamp | None) -> DispatchRequests:
    """The requests of walked records.

    Args:
        buffer: bytes of their file.
        positions: where they start in it.
        deliver_timestamp: (delay level, store time in ms) -> when such a message is due; None while the delay levels are not read.

    Returns:
        Their requests, fewer than `positions` where one of them is a bad record for its delay level.
    """
    parts = locate(buffer, positions)
    prefix = prefixes(buffer, positions)
    has_properties = parts.properties.lengths > 0
    stored = Slices(parts.properties.starts, np.maximum(parts.properties.lengths, 0))
    properties = parse_properties(buffer, stored)
    tags = pick_property(buffer, properties, PROPERTY_TAGS)
    # without properties keys is "" and not null, which means the same to the index
    requests = DispatchRequests(
        buffer=buffer,
        physic_offset=prefix["physicOffset"].astype(np.int64),
        size=prefix["storeSize"].astype(np.int64),
        queue_id=prefix["queueId"].astype(np.int64),
        queue_offset=prefix["queueOffset"].astype(np.int64),
        sys_flag=prefix["sysFlag"].astype(np.int64),
        store_timestamp=store_timestamps(buffer, parts),
        tags_code=string_hashes(buffer, tags),
        topic=parts.topic,
        keys=pick_property(buffer, properties, PROPERTY_KEYS),
        uniq_key=pick_property(buffer, properties, PROPERTY_UNIQ_KEY),
        has_properties=has_properties,
        properties=stored,
        multi_dispatch=pick_property(buffer, properties, PROPERTY_MULTI_DISPATCH),
        multi_queue_offset=pick_property(buffer, properties, PROPERTY_MULTI_QUEUE_OFFSET),
    )
    return _with_delivery(requests, properties, deliver_timestamp)


def first_bad_level(buffer: Bytes, positions: Positions) -> int:
    """Index of the first walked record that is bad for its delay level, or len(positions); cheaper than `read_requests`."""
    delayed = np.flatnonzero(_is_text(buffer, locate(buffer, positions).topic, SCHEDULE_TOPIC))
    requests = read_requests(buffer, positions[delayed], None)
    return len(positions) if len(requests) == len(delayed) else int(delayed[len(requests)])


def _with_delivery(requests: DispatchRequests, properties: Properties, deliver_timestamp: DeliverTimestamp | None) -> DispatchRequests:
    """Delayed messages get the time of their delivery as tagsCode."""
    levels = pick_property(requests.buffer, properties, PROPERTY_DELAY)
    delayed = _is_text(requests.buffer, requests.topic, SCHEDULE_TOPIC) & (levels.lengths >= 0)
    for row in np.flatnonzero(delayed).tolist():
        text = requests.text(levels, row) or ""
        if not _INT.fullmatch(text) or not -(2**31) <= int(text) < 2**31:
            return requests.first(row)
        if deliver_timestamp is not None and int(text) > 0:
            requests.tags_code[row] = deliver_timestamp(int(text), int(requests.store_timestamp[row]))
    return requests
