"""Bytes of records, compared and counted: what a check of tables or of files written again asks."""

from __future__ import annotations

import numpy as np

from store_format.big_endian import Bytes, Positions
from store_format.compiled import compiled


@compiled
def _first_difference(one, positions, other, other_positions, sizes):  # type: ignore[no-untyped-def]
    for i in range(len(positions)):
        at, other_at, size = np.uint64(positions[i]), np.uint64(other_positions[i]), np.uint64(sizes[i])
        differ = False
        for k in range(size):  # without a way out the compiler takes many bytes at once
            differ |= one[at + k] != other[other_at + k]
        if differ:
            first = np.uint64(0)
            while first + np.uint64(1) < size and one[at + first] == other[other_at + first]:  # a file may be written to meanwhile
                first += np.uint64(1)
            return np.int64(other_at + first)
    return np.int64(-1)


def first_difference(one: Bytes, positions: Positions, other: Bytes, other_positions: Positions, sizes: Positions) -> int:
    """Position in the other buffer of the first byte in which ranges of two buffers differ, -1 where they are the same."""
    return int(_first_difference(one, positions, other, other_positions, sizes))


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
