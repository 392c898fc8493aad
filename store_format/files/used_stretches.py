"""Which stretches of a file hold anything but zeros.

Broker source (4.9.3): MappedFile, whose files have their full length from the first day on; what was never written is zeros.
Rule: pages of zeros are left out, so that a file of mostly nothing costs what is in it.
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
    """The stretches [start, end) of `content` outside of which there are zeros only.

    Args:
        content: any bytes.
        longest: length of a stretch at most.

    Returns:
        In order, each beginning and ending with a byte that is not zero.
    """
    used = np.zeros(-(-len(content) // PAGE) + 1, np.bool_)  # and one behind them that is not
    _used_pages(content, used[:-1])
    turns = np.flatnonzero(np.diff(used, prepend=False)) * PAGE
    for first, last in turns.reshape(-1, 2).tolist():
        for start in range(first, min(last, len(content)), longest):
            inside = np.flatnonzero(content[start : min(start + longest, last)])
            if len(inside):
                yield start + int(inside[0]), start + int(inside[-1]) + 1
