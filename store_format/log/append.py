"""Appends many messages to the commit log at once: the offset in the log, the queue offset and the bytes of each.

Broker source (4.9.3): CommitLog.DefaultAppendMessageCallback.doAppend (both), MappedFile.appendMessagesInner, calMsgLength.
The version of a record (5.5.0: MessageVersion) follows from its topic.
Rule: a message follows the last one if at least eight bytes of the file remain after it. Else a BLANK fills the file, and the message goes
to the next file. The messages of a batch stay together in one file.
Surprises: only eight bytes of a BLANK are written, but the whole rest of the file counts as used. A message larger than a file leaves a
BLANK in two files and is answered PUT_OK, though it is not stored. A prepared or rolled back message has queue offset 0 and does not
advance its queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from store_format import layout
from store_format.big_endian import Bytes, put_int32, put_int64
from store_format.compiled import compiled
from store_format.record.crc32 import crc32_of_ranges
from store_format.record.message import Host, Message
from store_format.record.message_version import BYTE_MAX
from store_format.record.record_columns import Slices, copy_bytes

Longs = NDArray[np.int64]

NOT_APPENDED = -1
NO_BATCH = -1
_FIXED = layout.RECORD_MIN_SIZE - 2 * layout.IPV4_HOST


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageColumns:
    """Messages to be appended, in order, as columns.

    Attributes:
        buffer: the bytes that all slices but `body` point into.
        bodies: the bytes that the slices of `body` point into; may be `buffer`.
        queue: row of each message's topic and queueId in the table of queue offsets.
        batch: number of each message's batch, NO_BATCH for a message outside a batch; the messages of a batch are neighbours.
        born_host: address and port of each message's producer, 8 or 20 bytes, as sysFlag says.
        store_host: address and port of the broker, likewise.
        body_crc: CRC-32 of each body as stored, top bit cleared.
    """

    buffer: Bytes
    bodies: Bytes
    queue: Longs
    batch: Longs
    body_crc: Longs
    queue_id: Longs
    flag: Longs
    sys_flag: Longs
    born_timestamp: Longs
    store_timestamp: Longs
    reconsume_times: Longs
    prepared_transaction_offset: Longs
    born_host: Slices
    store_host: Slices
    body: Slices
    topic: Slices
    properties: Slices

    def __len__(self) -> int:
        return len(self.queue)

    def record_sizes(self) -> Longs:
        """CommitLog.calMsgLength of each message: the bytes of its record, which is V2 if its topic has more than 127 bytes."""
        born = np.where(self.sys_flag & layout.BORNHOST_V6_FLAG, layout.IPV6_HOST, layout.IPV4_HOST)
        store = np.where(self.sys_flag & layout.STOREHOSTADDRESS_V6_FLAG, layout.IPV6_HOST, layout.IPV4_HOST)
        topic = self.topic.lengths + (self.topic.lengths > BYTE_MAX)
        return _FIXED + born + store + self.body.lengths + topic + self.properties.lengths


def body_crcs(buffer: Bytes, body: Slices) -> Longs:
    """UtilAll.crc32 of each body in `buffer`."""
    return crc32_of_ranges(buffer, body.starts, body.lengths).astype(np.int64) & 0x7FFFFFFF


def columns_of(messages: Sequence[Message], queues: Sequence[int], batches: Sequence[int]) -> MessageColumns:
    """The columns of `messages`, whose own offsets are ignored; `queues` and `batches` are as in MessageColumns."""
    parts: list[bytes] = []
    for one in messages:
        parts += [host_bytes(one.born_host), host_bytes(one.store_host), one.body, one.topic, one.properties]
    lengths = np.array([len(part) for part in parts], np.int64)
    starts = np.cumsum(lengths) - lengths
    slices = [Slices(starts[column::5], lengths[column::5]) for column in range(5)]

    def numbers(name: str) -> Longs:
        return np.array([getattr(one, name) for one in messages], np.int64)

    buffer = np.frombuffer(b"".join(parts), np.uint8)
    return MessageColumns(
        buffer=buffer,
        bodies=buffer,
        queue=np.array(queues, np.int64),
        batch=np.array(batches, np.int64),
        body_crc=numbers("body_crc"),
        queue_id=numbers("queue_id"),
        flag=numbers("flag"),
        sys_flag=numbers("sys_flag"),
        born_timestamp=numbers("born_timestamp"),
        store_timestamp=numbers("store_timestamp"),
        reconsume_times=numbers("reconsume_times"),
        prepared_transaction_offset=numbers("prepared_transaction_offset"),
        born_host=slices[0],
        store_host=slices[1],
        body=slices[2],
        topic=slices[3],
        properties=slices[4],
    )


def host_bytes(host: Host) -> bytes:
    """The bytes of a host's address and port in a record."""
    return host.address + host.port.to_bytes(4, "big")


@compiled
def _put_hosts(table, widths, codes, ports, out):  # type: ignore[no-untyped-def]
    for i in range(len(codes)):
        to, width = i * layout.IPV6_HOST, widths[codes[i]]
        for k in range(width):
            out[to + k] = table[codes[i], k]
        put_int32(out, to + width, ports[i])


def hosts_bytes(addresses: Sequence[bytes], codes: Longs, ports: Longs) -> tuple[Longs, Bytes]:
    """The length of each host in a record, 8 or 20, and a buffer with twenty bytes for each host.

    `addresses` are the distinct addresses, each of 4 or 16 bytes; `codes` has for each host the index of its address.
    """
    table = np.zeros((len(addresses), layout.IPV6_HOST - 4), np.uint8)
    for row, address in zip(table, addresses, strict=True):
        row[: len(address)] = np.frombuffer(address, np.uint8)
    widths = np.array([len(address) for address in addresses], np.int64)
    hosts = np.zeros(len(codes) * layout.IPV6_HOST, np.uint8)
    _put_hosts(table, widths, codes, ports, hosts)
    return widths[codes] + 4, hosts


@compiled
def _place(sizes, batches, file_size, end, offsets, blanks):  # type: ignore[no-untyped-def]
    """Write `offsets` and `blanks` (offset, length, message) from the log's `end` on; return the number of BLANKs and the log's new end."""
    count = 0
    i = 0
    while i < len(sizes):
        after = i + 1
        total = sizes[i]
        while batches[i] >= 0 and after < len(sizes) and batches[after] == batches[i]:
            total += sizes[after]
            after += 1
        fits = False
        for _ in range(2):
            rest = file_size - end % file_size
            fits = total + layout.BLANK_SIZE <= rest
            if fits:
                break
            blanks[count, 0] = end
            blanks[count, 1] = rest
            blanks[count, 2] = i
            count += 1
            end += rest
        for k in range(i, after):
            offsets[k] = end if fits else NOT_APPENDED
            end += sizes[k] if fits else 0
        i = after
    return count, end


@dataclass(frozen=True, slots=True)
class Placed:
    """The places of messages in the log: offsets, NOT_APPENDED for a message that fits no file, and the log's end after the last one.

    `blanks` has (offset, length) of each BLANK, `blank_rows` the index of the message that did not fit and made it necessary.
    """

    offsets: Longs
    blanks: Longs
    blank_rows: Longs
    log_end: int


def place(sizes: Longs, batches: Longs, file_size: int, log_end: int) -> Placed:
    """The places of messages of the given sizes and batches after `log_end`, in files of `file_size` bytes (more than eight)."""
    offsets = np.empty(len(sizes), np.int64)
    blanks = np.empty((2 * len(sizes), 3), np.int64)
    count, end = _place(sizes, batches, np.int64(file_size), np.int64(log_end), offsets, blanks)
    return Placed(offsets, blanks[:count, :2], blanks[:count, 2], int(end))


@compiled
def _number(queues, sys_flags, offsets, table, out):  # type: ignore[no-untyped-def]
    for i in range(len(queues)):
        kind = sys_flags[i] & layout.TRANSACTION_ROLLBACK_TYPE
        out[i] = 0
        if offsets[i] >= 0 and (kind == 0 or kind == layout.TRANSACTION_COMMIT_TYPE):
            out[i] = table[queues[i]]
            table[queues[i]] += 1


def number(messages: MessageColumns, offsets: Longs, topic_queue_table: Longs) -> Longs:
    """The queue offset of each message, 0 for one that was not placed; advances `topic_queue_table`, the next offset of each queue."""
    out = np.empty(len(messages), np.int64)
    _number(messages.queue, messages.sys_flag, offsets, topic_queue_table, out)
    return out


@compiled
def put_bytes(out, at, buffer, start, length):  # type: ignore[no-untyped-def]
    """Copy `length` bytes to position `at` of `out` (none if `length` is negative); returns `at + length`."""
    if length > 0:
        copy_bytes(out, np.uint64(at), buffer, np.uint64(start), np.uint64(length))
    return at + length


@compiled
def _encode(out, at, buffer, bodies, sizes, offsets, queue_offsets, numbers, starts, lengths):  # type: ignore[no-untyped-def]
    for i in range(len(sizes)):
        to = at[i]
        put_int32(out, to, sizes[i])
        is_v2 = lengths[3, i] > BYTE_MAX
        put_int32(out, to + 4, np.int64(layout.MESSAGE_MAGIC_CODE_V2 if is_v2 else layout.MESSAGE_MAGIC_CODE))
        put_int32(out, to + 8, numbers[0, i])
        put_int32(out, to + 12, numbers[1, i])
        put_int32(out, to + 16, numbers[2, i])
        put_int64(out, to + 20, queue_offsets[i])
        put_int64(out, to + 28, offsets[i])
        put_int32(out, to + 36, numbers[3, i])
        put_int64(out, to + 40, numbers[4, i])
        to = put_bytes(out, to + 48, buffer, starts[0, i], lengths[0, i])
        put_int64(out, to, numbers[5, i])
        to = put_bytes(out, to + 8, buffer, starts[1, i], lengths[1, i])
        put_int32(out, to, numbers[6, i])
        put_int64(out, to + 4, numbers[7, i])
        put_int32(out, to + 12, lengths[2, i])
        to = put_bytes(out, to + 16, bodies, starts[2, i], lengths[2, i])
        if is_v2:
            out[to] = np.uint8(lengths[3, i] >> 8)
            to += 1
        out[to] = np.uint8(lengths[3, i] & 0xFF)
        to = put_bytes(out, to + 1, buffer, starts[3, i], lengths[3, i])
        out[to] = np.uint8(lengths[4, i] >> 8)
        out[to + 1] = np.uint8(lengths[4, i] & 0xFF)
        put_bytes(out, to + 2, buffer, starts[4, i], lengths[4, i])


def encode(messages: MessageColumns, rows: slice, offsets: Longs, queue_offsets: Longs, out: Bytes, out_offset: int) -> Longs:
    """Write the records of the messages in `rows`, which all have a place, to `out`; returns where each record starts in `out`.

    `offsets` and `queue_offsets` have a value for each of `messages`; `out` are the bytes of the log from offset `out_offset` on.
    """
    positions = offsets[rows] - out_offset
    encode_at(messages, rows, positions, offsets, queue_offsets, out)
    return positions


def encode_at(messages: MessageColumns, rows: slice, positions: Longs, offsets: Longs, queue_offsets: Longs, out: Bytes) -> None:
    """Write the records of the messages in `rows` to `out`, each at its own of `positions`; the other arguments are as in `encode`."""
    names = ("body_crc", "queue_id", "flag", "sys_flag", "born_timestamp", "store_timestamp", "reconsume_times")
    numbers = np.stack([getattr(messages, name)[rows] for name in (*names, "prepared_transaction_offset")])
    slices = (messages.born_host, messages.store_host, messages.body, messages.topic, messages.properties)
    starts, lengths = np.stack([one.starts[rows] for one in slices]), np.stack([one.lengths[rows] for one in slices])
    sizes = messages.record_sizes()[rows]
    _encode(out, positions, messages.buffer, messages.bodies, sizes, offsets[rows], queue_offsets[rows], numbers, starts, lengths)


def encode_blank(length: int) -> bytes:
    """The eight bytes of a BLANK that fills the last `length` bytes of a file."""
    return length.to_bytes(4, "big") + layout.BLANK_MAGIC_CODE.to_bytes(4, "big", signed=True)
