"""Compares and counts bytes of records, for the checks of tables and of rewritten files."""

from __future__ import annotations

import numpy as np

from store_format.big_endian import Bytes, Positions
from store_format.compiled import compiled


@compiled
def _first_difference(one, positions, other, other_positions, sizes):  # type: ignore[no-untyped-def]
    for i in range(len(positions)):
        at, other_at, size = np.uint64(positions[i]), np.uint64(other_positions[i]), np.uint64(sizes[i])
        differ = False
        for k in range(size):  # without an early exit the compiler compares many bytes at once
            differ |= one[at + k] != other[other_at + k]
        if differ:
            first = np.uint64(0)
            while first + np.uint64(1) < size and one[at + first] == other[other_at + first]:  # bounded: a file may change
                first += np.uint64(1)
            return np.int64(other_at + first)
    return np.int64(-1)


def first_difference(one: Bytes, positions: Positions, other: Bytes, other_positions: Positions, sizes: Positions) -> int:
    """The position in `other` of the first byte in which the ranges of `one` and `other` differ, -1 if all ranges are equal."""
    return int(_first_difference(one, positions, other, other_positions, sizes))


@compiled
def _used_bytes(content, positions, sizes):  # type: ignore[no-untyped-def]
    used = np.int64(0)
    for i in range(len(positions)):
        for at in range(positions[i], positions[i] + sizes[i]):
            used += content[at] != 0
    return used


def used_bytes(content: Bytes, positions: Positions, sizes: Positions) -> int:
    """The number of bytes in the ranges of `content` that are not zero."""
    return int(_used_bytes(content, positions, sizes))
