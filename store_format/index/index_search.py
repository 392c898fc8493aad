"""The search of one index file for the messages of a key.

Broker source (4.9.3): IndexFile.selectPhyOffset.
Rule: the search follows the chain of the key hash's slot from the newest entry to the oldest.
Surprises: entries have whole seconds, so exact bounds can miss the message itself. Keys are not compared, so messages of other keys with
the same hash are found too. The search ends at the first entry older than `begin`, and at an entry number outside of the file.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from store_format.big_endian import int32_at, int64_at
from store_format.compiled import compiled
from store_format.errors import CorruptStoreError
from store_format.index.index_file import BEGIN_TIMESTAMP_AT, INDEX_COUNT_AT, INDEX_ENTRY, INDEX_HEADER, IndexFile
from store_format.java.numbers import to_int

_HEADER: Final = INDEX_HEADER.itemsize
_ENTRY: Final = INDEX_ENTRY.itemsize


@compiled
def _select(content, slots, key_hash, begin, end, found, count):  # type: ignore[no-untyped-def]
    index_count = max(int32_at(content, INDEX_COUNT_AT), np.int64(1))
    file_begin = int64_at(content, BEGIN_TIMESTAMP_AT)
    entry = int32_at(content, _HEADER + key_hash % slots * 4)
    if entry <= 0 or entry > index_count or index_count <= 1:
        return count, False
    steps = np.int64(0)  # steps since the last found entry; more steps than entries mean a cycle
    while count < len(found):
        at = to_int(_HEADER + slots * 4 + entry * _ENTRY)
        if at < 0 or at + _ENTRY > len(content):
            break  # the broker logs an IndexOutOfBoundsException
        diff = int32_at(content, at + 12)
        if diff < 0:
            break
        time = np.int64(np.uint64(file_begin) + np.uint64(diff * 1000))  # Java's longs wrap
        steps += 1
        if int32_at(content, at) == key_hash and begin <= time <= end:
            found[count] = int64_at(content, at + 4)
            count += 1
            steps = np.int64(0)
        previous = int32_at(content, at + 16)
        if previous <= 0 or previous > index_count or previous == entry or time < begin:
            break
        if steps > len(content) // _ENTRY:
            return count, True
        entry = previous
    return count, False


def select_phy_offsets(file: IndexFile, key_hash: int, begin: int, end: int, found: NDArray[np.int64], count: int) -> int:
    """IndexFile.selectPhyOffset: write the offsets of messages with the hash of "topic#key" to `found`, newest first.

    The messages were stored from `begin` to `end`, ms. `count` offsets are in `found` already, which has room for all; returns the new
    count.

    Raises:
        CorruptStoreError: a chain is a cycle, and the broker would search for ever.
    """
    count, endless = _select(file.content, file.sizes.hash_slot_num, key_hash, begin, end, found, count)
    if endless:
        raise CorruptStoreError(
            f"index/{file.name}",
            "chains of index entries that end",
            f"one that goes round, for the key hash {key_hash}",
            hint="the broker would search for ever; delete the file, it is built from the commit log",
        )
    return int(count)
