"""Walks over the commit log: records one after the other, each whole in one file.

Broker source (4.9.3): CommitLog.checkMessageAndReturnSize, calMsgLength, rollNextFile; DefaultAppendMessageCallback.
Which magic codes begin a record differs between versions: MESSAGE_VERSION.
Rule: a record goes into a file only if eight bytes are left after it; else a BLANK (size of the rest, magic code) ends the file.
Surprise: the bytes after a BLANK are arbitrary, and the bytes after the last record of the last file need not be zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from store_format.big_endian import Bytes, Positions, int32_at
from store_format.broker_version import DEFAULT_VERSION, BrokerVersion
from store_format.compiled import compiled
from store_format.layout import BLANK_MAGIC_CODE, MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2
from store_format.record.crc32 import crc32_of_ranges
from store_format.record.message_version import MESSAGE_VERSION
from store_format.record.record_length import body_length_position, record_length


class WalkEnd(IntEnum):
    """Why a walk over records ended."""

    LIMIT = 0  # the bytes given are used up
    BLANK = 1  # the BLANK at the file's end
    NO_RECORD = 2  # no magic code of a record: zeros, or other bytes
    BAD_RECORD = 3  # a record's magic code, but lengths that do not add up
    BAD_CRC = 4  # a record whose body does not have the stored CRC


@compiled
def _walk(buffer, start, limit, with_v2, positions):  # type: ignore[no-untyped-def]
    count = 0
    at = start
    while count < len(positions):
        if at + 8 > limit:
            return count, at, np.int64(0)
        magic = int32_at(buffer, at + 4)
        if magic == BLANK_MAGIC_CODE:
            return count, at, np.int64(1)
        if magic != MESSAGE_MAGIC_CODE and not (with_v2 and magic == MESSAGE_MAGIC_CODE_V2):
            return count, at, np.int64(2)
        size = record_length(buffer, at, limit)
        if size < 0:
            return count, at, np.int64(3)
        positions[count] = at
        count += 1
        at += size
    return count, at, np.int64(-1)


@dataclass(frozen=True, slots=True)
class Walk:
    """Consecutive records: their positions in the buffer, the position past the last one, why the walk ended (None: more may follow)."""

    positions: Positions
    end: int
    ended: WalkEnd | None


def walk(buffer: Bytes, start: int, limit: int, max_records: int, version: BrokerVersion = DEFAULT_VERSION) -> Walk:
    """Find at most `max_records` records in `buffer[start:limit]`, as a version of the broker knows them, without decoding them."""
    positions = np.empty(max_records, np.int64)
    count, end, ended = _walk(buffer, start, limit, MESSAGE_VERSION.of(version).value, positions)
    return Walk(positions[:count], int(end), None if ended < 0 else WalkEnd(ended))


@compiled
def _bodies(buffer, positions, starts, lengths, crcs):  # type: ignore[no-untyped-def]
    for i in range(len(positions)):
        at = body_length_position(buffer, positions[i])
        starts[i] = at + 4
        lengths[i] = max(int32_at(buffer, at), np.int64(0))
        crcs[i] = int32_at(buffer, positions[i] + 8)


def first_bad_body(buffer: Bytes, positions: Positions) -> int:
    """Index of the first record whose body does not have the stored CRC, or len(positions). An empty body is not checked."""
    starts, lengths, crcs = (np.empty(len(positions), np.int64) for _ in range(3))
    _bodies(buffer, positions, starts, lengths, crcs)
    actual = crc32_of_ranges(buffer, starts, lengths).astype(np.int64) & 0x7FFFFFFF
    bad = (actual != crcs) & (lengths > 0)
    return int(bad.argmax()) if bad.any() else len(positions)


WALK_BATCH = 65_536


def walk_checked(buffer: Bytes, limit: int, *, check_crc: bool, version: BrokerVersion = DEFAULT_VERSION) -> tuple[int, WalkEnd]:
    """Walk a whole file as recovery does (CommitLog.checkMessageAndReturnSize): the position at which the walk ends, and why."""
    at = 0
    while True:
        part = walk(buffer, at, limit, WALK_BATCH, version)
        if check_crc:
            bad = first_bad_body(buffer, part.positions)
            if bad < len(part.positions):
                return int(part.positions[bad]), WalkEnd.BAD_CRC
        if part.ended is not None:
            return part.end, part.ended
        at = part.end
