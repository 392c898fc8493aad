"""Reads many records of the commit log at once into columns.

Broker source (4.9.3): CommitLog.calMsgLength for the position of each field, MessageDecoder.string2messageProperties for the properties.
Rule: a record becomes a row only if the same bytes can be written from the row; `representable` finds these records.
Variable-length columns are `Slices`: (start, length) pairs into the buffer, whose bytes are copied by `gather` only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from store_format.big_endian import Bytes, Positions, int16_at, int32_at, int64_at
from store_format.compiled import compiled
from store_format.layout import BORNHOST_V6_FLAG, RECORD_MIDDLE, RECORD_PREFIX, STOREHOSTADDRESS_V6_FLAG
from store_format.record.message_version import BYTE_MAX, topic_length, topic_length_size
from store_format.record.record_length import body_length_position, topic_of

_NAME_VALUE_SEPARATOR = 1
_PROPERTY_SEPARATOR = 2

# columns that one loop fills start this far apart, so that they do not evict each other from the processor's cache: 3 times as fast
_ROWS_APART, _ROWS_PAST = 512, 8

# names of the properties that have their own column
PROPERTY_TAGS = b"TAGS"
PROPERTY_KEYS = b"KEYS"


@dataclass(frozen=True, slots=True)
class Slices:
    """Byte ranges of a buffer; a negative length stands for a missing value."""

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def __getitem__(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> Slices:
        return Slices(self.starts[rows], self.lengths[rows])


@dataclass(frozen=True, slots=True)
class RecordParts:
    """The positions in the buffer of each record's parts that have no fixed place in the record."""

    born_host: Slices
    store_timestamp: Positions
    store_host: Slices
    middle: Positions
    body: Slices
    topic: Slices
    properties: Slices


@compiled
def _locate(buffer, positions, out):  # type: ignore[no-untyped-def]
    for i in range(len(positions)):
        start = positions[i]
        sys_flag = int32_at(buffer, start + 36)
        born = 20 if sys_flag & BORNHOST_V6_FLAG else 8
        at = body_length_position(buffer, start)
        out[0, i] = born
        out[1, i] = start + 48 + born
        out[2, i] = 20 if sys_flag & STOREHOSTADDRESS_V6_FLAG else 8
        out[3, i] = at - 12
        body = max(int32_at(buffer, at), np.int64(0))
        width = topic_length_size(buffer, start)
        topic = at + 4 + body + width
        length = topic_length(buffer, topic - width, width)
        properties = topic + length
        out[4, i] = at + 4
        out[5, i] = body
        out[6, i] = topic
        out[7, i] = length
        out[8, i] = properties + 2
        out[9, i] = int16_at(buffer, properties)


def locate(buffer: Bytes, positions: Positions) -> RecordParts:
    """The parts of the records at `positions`, whose lengths a walk has checked."""
    rows = -(-len(positions) // _ROWS_APART) * _ROWS_APART + _ROWS_PAST
    out = np.empty((10, rows), np.int64)[:, : len(positions)]
    _locate(buffer, positions, out)
    born, stored_at, store, middle, body_at, body, topic_at, topic, properties_at, properties = out
    return RecordParts(
        born_host=Slices(positions + 48, born),
        store_timestamp=stored_at,
        store_host=Slices(stored_at + 8, store),
        middle=middle,
        body=Slices(body_at, body),
        topic=Slices(topic_at, topic),
        properties=Slices(properties_at, properties),
    )


@compiled
def copy_bytes(out, at, buffer, start, length):  # type: ignore[no-untyped-def]
    """Copy `length` bytes; numbers must be np.uint64, since indexing with signed numbers takes five times as long."""
    for k in range(length):
        out[at + k] = buffer[start + k]


@compiled
def are_same(one, at, length, other, other_at, other_length):  # type: ignore[no-untyped-def]
    """Whether the `length` bytes at `at` of `one` equal the `other_length` bytes at `other_at` of `other`."""
    if length != other_length:
        return False
    for k in range(length):  # noqa: SIM110 (compiled)
        if one[at + k] != other[other_at + k]:
            return False
    return True


@compiled
def _gather(buffer, starts, lengths, offsets, out):  # type: ignore[no-untyped-def]
    for i in range(len(starts)):
        if lengths[i] > 0:
            copy_bytes(out, np.uint64(offsets[i]), buffer, np.uint64(starts[i]), np.uint64(lengths[i]))


def gather(buffer: Bytes, slices: Slices) -> tuple[NDArray[np.int32], Bytes]:
    """Copy the slices one after the other: (n + 1 offsets, bytes), the layout of Arrow's binary columns.

    The slices together must be smaller than 2 GiB.
    """
    offsets = np.zeros(len(slices.starts) + 1, np.int64)
    np.cumsum(np.maximum(slices.lengths, 0), out=offsets[1:])
    out = np.empty(int(offsets[-1]), np.uint8)
    _gather(buffer, slices.starts, slices.lengths, offsets, out)
    return offsets.astype(np.int32), out


@compiled
def _fixed(buffer, positions, width, out):  # type: ignore[no-untyped-def]
    for i in range(len(positions)):
        copy_bytes(out, np.uint64(i * width), buffer, np.uint64(positions[i]), np.uint64(width))


def fixed(buffer: Bytes, positions: Positions, dtype: np.dtype[np.void]) -> NDArray[np.void]:
    """The rows of layout `dtype` that start at `positions`.

    Raises:
        IndexError: a row does not lie in the buffer.
    """
    if len(positions) and not 0 <= positions.min() <= positions.max() <= len(buffer) - dtype.itemsize:
        raise IndexError(f"rows of {dtype.itemsize} bytes at {positions.min()} to {positions.max()} in a buffer of {len(buffer)}")
    out = np.empty(len(positions) * dtype.itemsize, np.uint8)
    _fixed(buffer, positions, dtype.itemsize, out)
    return out.view(dtype)


def prefixes(buffer: Bytes, positions: Positions) -> NDArray[np.void]:
    """RECORD_PREFIX of each record."""
    return fixed(buffer, positions, RECORD_PREFIX)


def middles(buffer: Bytes, parts: RecordParts) -> NDArray[np.void]:
    """RECORD_MIDDLE of each record."""
    return fixed(buffer, parts.middle, RECORD_MIDDLE)


def store_timestamps(buffer: Bytes, parts: RecordParts) -> NDArray[np.int64]:
    """storeTimestamp of each record, ms."""
    return fixed(buffer, parts.store_timestamp, np.dtype([("at", ">i8")]))["at"].astype(np.int64)


@compiled
def _parse_properties(buffer, starts, lengths, counts, out):  # type: ignore[no-untyped-def]
    """Write (name start, name length, value start, value length) of each property to `out`; the last of equal names counts."""
    total = 0
    for i in range(len(starts)):
        first = total
        at = starts[i]
        end = at + lengths[i]
        while at < end:
            stop = at
            separator = np.int64(-1)
            while stop < end and buffer[stop] != _PROPERTY_SEPARATOR:
                if separator < 0 and buffer[stop] == _NAME_VALUE_SEPARATOR:
                    separator = stop
                stop += 1
            if separator > at and separator < stop - 1:
                slot = total
                for known in range(first, total):
                    if are_same(buffer, out[known, 0], out[known, 1], buffer, at, separator - at):
                        slot = known
                if slot == total:
                    total += 1
                out[slot, 0] = at
                out[slot, 1] = separator - at
                out[slot, 2] = separator + 1
                out[slot, 3] = stop - separator - 1
            at = stop + 1
        counts[i] = total - first
    return total


@dataclass(frozen=True, slots=True)
class Properties:
    """The properties of many records: the number of properties of each record, and all names and values in the order of the records."""

    counts: NDArray[np.int64]
    names: Slices
    values: Slices


def parse_properties(buffer: Bytes, properties: Slices) -> Properties:
    """Split the properties of each record as MessageDecoder.string2messageProperties does."""
    counts = np.empty(len(properties.starts), np.int64)
    # a property has at least three bytes, and each but the last one a separator
    bound = int((np.maximum(properties.lengths, 0) // 4 + 1).sum())
    out = np.empty((bound, 4), np.int64)
    total = _parse_properties(buffer, properties.starts, properties.lengths, counts, out)
    out = out[:total]
    return Properties(counts, Slices(out[:, 0], out[:, 1]), Slices(out[:, 2], out[:, 3]))


@compiled
def _pick(buffer, counts, names, name_lengths, values, value_lengths, wanted, starts, lengths):  # type: ignore[no-untyped-def]
    at = 0
    for i in range(len(counts)):
        starts[i] = 0
        lengths[i] = -1
        for j in range(at, at + counts[i]):
            if are_same(buffer, names[j], name_lengths[j], wanted, 0, len(wanted)):
                starts[i] = values[j]
                lengths[i] = value_lengths[j]
        at += counts[i]


def pick_property(buffer: Bytes, properties: Properties, name: bytes) -> Slices:
    """The value of the property `name` of each record, a missing slice if the record has none."""
    starts, lengths = (np.empty(len(properties.counts), np.int64) for _ in range(2))
    wanted = np.frombuffer(name, np.uint8)
    names, values = properties.names, properties.values
    _pick(buffer, properties.counts, names.starts, names.lengths, values.starts, values.lengths, wanted, starts, lengths)
    return Slices(starts, lengths)


_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)


@compiled
def _put_hex(out, at, value):  # type: ignore[no-untyped-def]
    out[at] = _HEX[value >> 4]
    out[at + np.uint64(1)] = _HEX[value & 15]


@compiled
def _message_ids(buffer, starts, lengths, physic_offsets, offsets, out):  # type: ignore[no-untyped-def]
    for i in range(len(starts)):
        at = np.uint64(offsets[i])
        for k in range(lengths[i]):
            _put_hex(out, at, buffer[starts[i] + k])
            at += np.uint64(2)
        for shift in range(56, -8, -8):
            _put_hex(out, at, (physic_offsets[i] >> shift) & 0xFF)
            at += np.uint64(2)


def message_ids(buffer: Bytes, hosts: Slices, physic_offsets: NDArray[np.int64]) -> tuple[NDArray[np.int32], Bytes]:
    """MessageDecoder.createMessageId: the upper case hex of each host and offset, in the form that `gather` gives."""
    offsets = np.zeros(len(hosts.starts) + 1, np.int64)
    np.cumsum(2 * (hosts.lengths + 8), out=offsets[1:])
    out = np.empty(int(offsets[-1]), np.uint8)
    _message_ids(buffer, hosts.starts, hosts.lengths, physic_offsets, offsets, out)
    return offsets.astype(np.int32), out


@compiled
def _is_ascii(buffer, at, end):  # type: ignore[no-untyped-def]
    """Whether no byte of `buffer[at:end]` is above 127; without a branch in the loop, so that it takes many bytes at once."""
    seen = np.uint8(0)
    first = np.uint64(at)
    for i in range(np.uint64(max(end - at, 0))):
        seen |= buffer[first + i]
    return seen < 0x80


@compiled
def is_utf8(buffer, at, end):  # type: ignore[no-untyped-def]
    """Whether `buffer[at:end]` is valid UTF-8."""
    if _is_ascii(buffer, at, end):
        return True
    while at < end:
        lead = buffer[at]
        low, high = np.uint8(0x80), np.uint8(0xBF)
        if lead < 0x80:
            at += 1
            continue
        if 0xC2 <= lead <= 0xDF:
            more = 1
        elif 0xE0 <= lead <= 0xEF:
            more = 2
            low = np.uint8(0xA0) if lead == 0xE0 else low  # no overlong forms
            high = np.uint8(0x9F) if lead == 0xED else high  # no surrogates
        elif 0xF0 <= lead <= 0xF4:
            more = 3
            low = np.uint8(0x90) if lead == 0xF0 else low
            high = np.uint8(0x8F) if lead == 0xF4 else high  # nothing above U+10FFFF
        else:
            return False
        if at + more >= end or buffer[at + 1] < low or buffer[at + 1] > high:
            return False
        for i in range(2, more + 1):
            if buffer[at + i] < 0x80 or buffer[at + i] > 0xBF:
                return False
        at += more + 1
    return True


@compiled
def _are_utf8(buffer, starts, lengths, out):  # type: ignore[no-untyped-def]
    for i in range(len(starts)):
        out[i] = is_utf8(buffer, starts[i], starts[i] + max(lengths[i], np.int64(0)))


def are_utf8(buffer: Bytes, slices: Slices) -> NDArray[np.bool_]:
    """For each slice whether it is valid UTF-8; True for a missing slice."""
    out = np.empty(len(slices.starts), np.bool_)
    _are_utf8(buffer, slices.starts, slices.lengths, out)
    return out


@compiled
def is_representable(buffer, at, from_offset):  # type: ignore[no-untyped-def]
    """Whether a row can represent the record at `at`: right offset, no negative length, a UTF-8 topic of a length for its version."""
    if int64_at(buffer, at + 28) != from_offset + at:
        return False
    topic, length = topic_of(buffer, at)
    if int32_at(buffer, body_length_position(buffer, at)) < 0 or int16_at(buffer, topic + length) < 0:
        return False
    # a row has no magic code: it is that of the version which brokers write for the topic
    if length <= (BYTE_MAX if topic_length_size(buffer, at) == 2 else 0):
        return False
    return is_utf8(buffer, topic, topic + length)


@compiled
def representable(buffer: Bytes, positions: Positions, from_offset: int) -> NDArray[np.bool_]:
    """For each walked record at `positions` of a file that starts at `from_offset` whether a row can represent it."""
    out = np.empty(len(positions), np.bool_)
    for i in range(len(positions)):
        out[i] = is_representable(buffer, positions[i], from_offset)
    return out
