"""Bytes of records, compared and counted: what a check of tables or of files written again asks."""

from __future__ import annotations

import numpy as np

from store_format.commit_log import Bytes, Positions
from store_format.compiled import compiled


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
