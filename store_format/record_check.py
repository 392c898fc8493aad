"""Whether bytes are the records that somebody takes them for.

Broker source (4.9.3): CommitLog.checkMessageAndReturnSize, for records that are not reached by a walk but by their offset.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from store_format.commit_log import Bytes, Positions, int32_at, record_length
from store_format.compiled import compiled
from store_format.layout import MESSAGE_MAGIC_CODE, RECORD_MIN_SIZE
from store_format.record_columns import Slices


@compiled
def _are_records(content, positions, limit, out):  # type: ignore[no-untyped-def]
    for i in range(len(positions)):
        at = positions[i]
        there = at >= 0 and at + RECORD_MIN_SIZE <= limit
        out[i] = there and int32_at(content, at + 4) == MESSAGE_MAGIC_CODE and record_length(content, at, limit) > 0


def are_records(content: Bytes, positions: Positions, limit: int) -> NDArray[np.bool_]:
    """Which of the positions are those of a record that ends before `limit`."""
    out = np.zeros(len(positions), np.bool_)
    _are_records(content, positions, limit, out)
    return out


@compiled
def _first_difference(one, other, positions, sizes):  # type: ignore[no-untyped-def]
    for i in range(len(positions)):
        for at in range(positions[i], positions[i] + sizes[i]):
            if one[at] != other[at]:
                return np.int64(at)
    return np.int64(-1)


def first_difference(one: Bytes, other: Bytes, positions: Positions, sizes: Positions) -> int:
    """Position of the first byte in which two buffers differ within the ranges given, -1 where they are the same."""
    return int(_first_difference(one, other, positions, sizes))


@compiled
def _used_bytes(content, positions, sizes):  # type: ignore[no-untyped-def]
    used = np.int64(0)
    for i in range(len(positions)):
        for at in range(positions[i], positions[i] + sizes[i]):
            used += content[at] != 0
    return used


def used_bytes(content: Bytes, positions: Positions, sizes: Positions) -> int:
    """How many bytes of the ranges are not zero."""
    return int(_used_bytes(content, positions, sizes))


@compiled
def _are_text(buffer, starts, lengths, wanted, out):  # type: ignore[no-untyped-def]
    for i in range(len(starts)):
        same = lengths[i] == len(wanted)
        k = 0
        while same and k < len(wanted):
            same = buffer[starts[i] + k] == wanted[k]
            k += 1
        out[i] = same


def are_text(buffer: Bytes, slices: Slices, wanted: bytes) -> NDArray[np.bool_]:
    """Which of the ranges hold these bytes and no more."""
    out = np.zeros(len(slices.starts), np.bool_)
    _are_text(buffer, slices.starts, slices.lengths, np.frombuffer(wanted, np.uint8), out)
    return out
