"""Finds the properties of the messages that consume queue entries point to, as a filter by expression reads them.

Broker source (4.9.3): MessageDecoder.decodeProperties(ByteBuffer), which ExpressionMessageFilter calls on the bytes of an entry.
Rule: an entry is (physicOffset, size); the bytes at that place are read as a record, and the magic code is not checked.
5.5.0 checks the magic code, and throws other exceptions: DECODE_PROPERTIES.
Surprise: if the bytes are no record, the decoder throws and getMessage fails, or the properties of another message are read. Zeros are a
message without properties.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from store_format.big_endian import Bytes, int16_at, int32_at
from store_format.broker_version import DEFAULT_VERSION, BrokerVersion, Rule, Variant
from store_format.compiled import compiled
from store_format.files.mapped_files import MappedFile
from store_format.layout import MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2, SYS_FLAG_POSITION
from store_format.queue.entry_lookup import files_of, locate
from store_format.record.message_version import MAGIC_CODE_POSITION, topic_length
from store_format.record.record_columns import copy_bytes
from store_format.record.record_length import body_length_position

# values of a length if there are no properties
NOT_THERE: Final = -1  # the broker gets no bytes to decode
INDEX_OUT_OF_BOUNDS: Final = -2  # the decoder throws an IndexOutOfBoundsException
BUFFER_UNDERFLOW: Final = -3  # the decoder throws a BufferUnderflowException
ILLEGAL_POSITION: Final = -4  # the decoder throws an IllegalArgumentException

DECODE_PROPERTIES: Final = Rule(
    term="decodeProperties",
    variants=(
        Variant(
            BrokerVersion.V4_9_3,
            False,
            "the magic code is not read; a topic length outside the bytes throws IndexOutOfBoundsException",
            "MessageDecoder.decodeProperties(ByteBuffer)",
        ),
        Variant(
            BrokerVersion.V5_5_0,
            True,
            (
                "an unknown magic code, or a topic length past the end of the bytes, throws IllegalArgumentException; a "
                "topic length just at their end throws BufferUnderflowException; a V2 record's topic length has two bytes"
            ),
            "MessageDecoder.decodeProperties(ByteBuffer), MessageVersion.valueOfMagicCode",
        ),
    ),
)

_SYS_FLAG_END = SYS_FLAG_POSITION + 4

Longs = NDArray[np.int64]


@compiled
def _find_properties(content, start, size, by_magic):  # type: ignore[no-untyped-def]
    """Start and length of the properties of the record at `start`; the length is 0 without any, negative if the decoder throws."""
    if size < _SYS_FLAG_END:
        return start, np.int64(INDEX_OUT_OF_BOUNDS)
    magic = int32_at(content, start + MAGIC_CODE_POSITION) if by_magic else np.int64(MESSAGE_MAGIC_CODE)
    if magic not in (MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2):
        return start, np.int64(ILLEGAL_POSITION)
    body_at = body_length_position(content, start) - start
    if body_at + 4 > size:
        return start, np.int64(INDEX_OUT_OF_BOUNDS)
    # Java's sum of ints wraps
    topic_at = np.int64(np.int32(body_at + 4 + int32_at(content, start + body_at)))
    width = 2 if magic == MESSAGE_MAGIC_CODE_V2 else 1
    if by_magic and (topic_at < 0 or topic_at > size):
        return start, np.int64(ILLEGAL_POSITION)
    if topic_at < 0 or topic_at + width > size:
        return start, np.int64(BUFFER_UNDERFLOW if by_magic else INDEX_OUT_OF_BOUNDS)
    length_at = topic_at + width + topic_length(content, start + topic_at, width)
    if length_at < 0 or length_at + 2 > size:
        return start, np.int64(INDEX_OUT_OF_BOUNDS)
    length = int16_at(content, start + length_at)
    if length <= 0:
        return start, np.int64(0)
    if length > size - length_at - 2:
        return start, np.int64(BUFFER_UNDERFLOW)
    return start + length_at + 2, length


@compiled
def _find_all(content, positions, sizes, rows, by_magic, starts, lengths):  # type: ignore[no-untyped-def]
    for row in rows:
        starts[row], lengths[row] = _find_properties(content, positions[row], np.int64(sizes[row]), by_magic)


@compiled
def _copy(content, starts, lengths, rows, offsets, out):  # type: ignore[no-untyped-def]
    for row in rows:
        copy_bytes(out, np.uint64(offsets[row]), content, np.uint64(starts[row]), np.uint64(lengths[row]))


@dataclass(frozen=True, slots=True)
class EntryProperties:
    """The places of the properties of entries' messages, a row for each entry.

    Attributes:
        file: index of the log file with the properties, -1 if the broker gets no bytes.
        starts: position of the properties in that file.
        lengths: bytes of the properties, 0 if the message has none; NOT_THERE, or the code of the exception that the decoder throws.
    """

    file: Longs
    starts: Longs
    lengths: Longs

    def __getitem__(self, rows: slice) -> EntryProperties:
        return EntryProperties(self.file[rows], self.starts[rows], self.lengths[rows])

    def __len__(self) -> int:
        return len(self.lengths)

    def bytes_of(self, read: Callable[[int], Bytes]) -> Bytes:
        """The bytes of all properties in the order of the entries; `read` returns the bytes of the file with an index."""
        offsets = np.cumsum(np.maximum(self.lengths, 0)) - np.maximum(self.lengths, 0)
        out = np.empty(int(np.maximum(self.lengths, 0).sum()), np.uint8)
        some = self.lengths > 0
        for index in files_of(self.file[some]):
            rows = np.flatnonzero(some & (self.file == index))
            _copy(read(index), self.starts, self.lengths, rows, offsets, out)
        return out


def find_properties(
    files: Sequence[MappedFile],
    read: Callable[[int], Bytes],
    physic_offsets: Longs,
    sizes: NDArray[np.int32],
    *,
    version: BrokerVersion = DEFAULT_VERSION,
) -> EntryProperties:
    """Find the properties of each entry.

    Args:
        files: files of the commit log.
        read: returns the bytes of the file with an index; called once for each file.
        physic_offsets: physicOffset of each entry.
        sizes: size of each entry, bytes.
        version: version of the broker that reads them.
    """
    by_magic = DECODE_PROPERTIES.of(version).value
    file, positions = locate(files, physic_offsets, sizes)
    starts, lengths = np.zeros(len(file), np.int64), np.full(len(file), NOT_THERE, np.int64)
    for index in files_of(file):
        _find_all(read(index), positions, sizes, np.flatnonzero(file == index), by_magic, starts, lengths)
    return EntryProperties(file, starts, lengths)
