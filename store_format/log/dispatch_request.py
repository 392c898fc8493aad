"""The dispatch requests of many messages at once: what the consume queues and the index get of each message.

Broker source (4.9.3): CommitLog.checkMessageAndReturnSize (the part after the lengths), DispatchRequest.
Rule: every field comes from the record itself, also the message's offset in the commit log.
Surprises: when load dispatches a delayed message, the delay levels are not read yet, so its tagsCode is the hash of its tag. When start
dispatches it, its tagsCode is the time of its delivery. A delayed message whose level is no number counts as a bad record.
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
from store_format.record import record_columns as rc
from store_format.record.message import decode_properties, decode_text

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
    """DispatchRequest of consecutive messages of the log, as columns.

    Attributes:
        buffer: the bytes that the slices point into.
        physic_offset: getCommitLogOffset, as the record has it.
        size: bytes of the whole record.
        tags_code: hash of the tag, or the time of delivery of a delayed message, or 0.
        keys: property KEYS, a missing slice for a message without it.
        uniq_key: property UNIQ_KEY, a missing slice for a message without it.
        has_properties: whether getPropertiesMap is not null.
        properties: the text of all properties, for filters.
        multi_dispatch: property INNER_MULTI_DISPATCH, the names of further queues.
        multi_queue_offset: property INNER_MULTI_QUEUE_OFFSET, an offset for each further queue.
    """

    buffer: Bytes
    physic_offset: Longs
    size: Longs
    queue_id: Longs
    queue_offset: Longs
    sys_flag: Longs
    store_timestamp: Longs
    tags_code: Longs
    topic: rc.Slices
    keys: rc.Slices
    uniq_key: rc.Slices
    has_properties: NDArray[np.bool_]
    properties: rc.Slices
    multi_dispatch: rc.Slices
    multi_queue_offset: rc.Slices

    def __len__(self) -> int:
        return len(self.size)

    def text(self, slices: rc.Slices, row: int) -> str | None:
        """The text of one row of `slices`, None if it is missing."""
        start, length = int(slices.starts[row]), int(slices.lengths[row])
        return None if length < 0 else decode_text(self.buffer[start : start + length].tobytes())

    def properties_map(self, row: int) -> dict[str, str]:
        """getPropertiesMap of the message in a row."""
        start, length = int(self.properties.starts[row]), int(self.properties.lengths[row])
        return decode_properties(self.buffer[start : start + length].tobytes())

    def first(self, count: int) -> DispatchRequests:
        """The requests of the first `count` messages."""
        return self.where(np.arange(len(self)) < count)

    def where(self, chosen: NDArray[np.bool_]) -> DispatchRequests:
        """The requests of the messages whose element of `chosen` is true."""
        rows = np.flatnonzero(chosen)
        taken = {name: getattr(self, name)[rows] for name in self.__slots__ if name != "buffer"}
        return DispatchRequests(buffer=self.buffer, **taken)


@compiled
def _equals(buffer, starts, lengths, wanted, out):  # type: ignore[no-untyped-def]
    for i in range(len(starts)):
        out[i] = rc.are_same(buffer, starts[i], lengths[i], wanted, 0, len(wanted))


def _is_text(buffer: Bytes, slices: rc.Slices, wanted: bytes) -> NDArray[np.bool_]:
    out = np.zeros(len(slices.starts), np.bool_)
    _equals(buffer, slices.starts, slices.lengths, np.frombuffer(wanted, np.uint8), out)
    return out


def read_requests(buffer: Bytes, positions: Positions, deliver_timestamp: DeliverTimestamp | None) -> DispatchRequests:
    """The dispatch requests of the records at `positions`, up to the first record with a bad delay level.

    `deliver_timestamp`: (delay level, store time in ms) -> time at which the message is due, ms; None while no delay levels are read.
    """
    parts = rc.locate(buffer, positions)
    prefix = rc.prefixes(buffer, positions)
    has_properties = parts.properties.lengths > 0
    stored = rc.Slices(parts.properties.starts, np.maximum(parts.properties.lengths, 0))
    properties = rc.parse_properties(buffer, stored)
    tags = rc.pick_property(buffer, properties, rc.PROPERTY_TAGS)
    # for a message without properties the broker's keys is "", not null; the index treats both alike
    requests = DispatchRequests(
        buffer=buffer,
        physic_offset=prefix["physicOffset"].astype(np.int64),
        size=prefix["storeSize"].astype(np.int64),
        queue_id=prefix["queueId"].astype(np.int64),
        queue_offset=prefix["queueOffset"].astype(np.int64),
        sys_flag=prefix["sysFlag"].astype(np.int64),
        store_timestamp=rc.store_timestamps(buffer, parts),
        tags_code=string_hashes(buffer, tags),
        topic=parts.topic,
        keys=rc.pick_property(buffer, properties, rc.PROPERTY_KEYS),
        uniq_key=rc.pick_property(buffer, properties, PROPERTY_UNIQ_KEY),
        has_properties=has_properties,
        properties=stored,
        multi_dispatch=rc.pick_property(buffer, properties, PROPERTY_MULTI_DISPATCH),
        multi_queue_offset=rc.pick_property(buffer, properties, PROPERTY_MULTI_QUEUE_OFFSET),
    )
    return _with_delivery(requests, properties, deliver_timestamp)


def first_bad_level(buffer: Bytes, positions: Positions) -> int:
    """Index of the first of the records at `positions` with a bad delay level, or len(positions); cheaper than `read_requests`."""
    delayed = np.flatnonzero(_is_text(buffer, rc.locate(buffer, positions).topic, SCHEDULE_TOPIC))
    requests = read_requests(buffer, positions[delayed], None)
    return len(positions) if len(requests) == len(delayed) else int(delayed[len(requests)])


def _with_delivery(requests: DispatchRequests, properties: rc.Properties, deliver_timestamp: DeliverTimestamp | None) -> DispatchRequests:
    """The requests with the time of delivery as tagsCode of the delayed messages."""
    levels = rc.pick_property(requests.buffer, properties, PROPERTY_DELAY)
    delayed = _is_text(requests.buffer, requests.topic, SCHEDULE_TOPIC) & (levels.lengths >= 0)
    for row in np.flatnonzero(delayed).tolist():
        text = requests.text(levels, row) or ""
        if not _INT.fullmatch(text) or not -(2**31) <= int(text) < 2**31:
            return requests.first(row)
        if deliver_timestamp is not None and int(text) > 0:
            requests.tags_code[row] = deliver_timestamp(int(text), int(requests.store_timestamp[row]))
    return requests
