"""The ranges of a file that are not all zeros.

Broker source (4.9.3): MappedFile, whose files have their full length from the start; bytes that were never written are zeros.
Rule: pages of zeros are left out, so the cost of a mostly empty file is that of its used pages.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from store_format.big_endian import Bytes
from store_format.compiled import compiled
from store_format.files.changed_files import PAGE


@compiled
def _used_pages(content, used):  # type: ignore[no-untyped-def]
    for page in range(len(used)):
        bits = np.uint8(0)
        for at in range(page * PAGE, min((page + 1) * PAGE, len(content))):
            bits |= content[at]
        used[page] = bits != 0


def used_stretches(content: Bytes, longest: int) -> Iterator[tuple[int, int]]:
    """The ranges [start, end) of `content` outside of which all bytes are zero, in order.

    Args:
        content: any bytes.
        longest: greatest length of a range, bytes.

    Returns:
        The ranges; each begins and ends with a byte that is not zero.
    """
    used = np.zeros(-(-len(content) // PAGE) + 1, np.bool_)  # the last element stays False and ends the last run
    _used_pages(content, used[:-1])
    turns = np.flatnonzero(np.diff(used, prepend=False)) * PAGE
    for first, last in turns.reshape(-1, 2).tolist():
        for start in range(first, min(last, len(content)), longest):
            inside = np.flatnonzero(content[start : min(start + longest, last)])
            if len(inside):
                yield start + int(inside[0]), start + int(inside[-1]) + 1
