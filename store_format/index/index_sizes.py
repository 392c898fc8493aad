"""Finds the maxHashSlotNum and maxIndexNum with which a store's index files were written, from the files' bytes.

Broker source (4.9.3): IndexFile.putKey; under the right sizes every entry that it wrote is found again.
Rule: a file's length gives only the sum 4 * slots + 20 * entries. The entries end with the file, so each number of entries puts entry 0,
which is never written, at another position. The right sizes pass three checks: the first and the last entry have the offsets in the header,
putting all key hashes again gives every chain and every slot, and there are only zeros after the last entry.
Surprise: a file without entries fits all sizes, a damaged file fits none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from store_format.big_endian import Bytes, int32_at
from store_format.compiled import compiled
from store_format.errors import CorruptStoreError
from store_format.files.mapped_files import file_size_of
from store_format.index.index_file import DEFAULT_INDEX_SIZES, HASH_SLOT, INDEX_ENTRY, INDEX_HEADER, IndexFile, IndexHeader, IndexSizes
from store_format.index.index_service import is_index_file_name

_SCANNED_ROWS = 1 << 18
_SMALLEST = IndexSizes(hash_slot_num=1, index_num=1).file_length  # one slot and no entries


@compiled
def _chains_agree(content, slots, index_count, slot_count, last):  # type: ignore[no-untyped-def]
    base = 40 + slots * 4
    used = 0
    for entry in range(1, index_count):
        at = base + entry * 20
        key_hash = int32_at(content, at)
        if key_hash < 0:
            return False
        slot = key_hash % slots
        if int32_at(content, at + 16) != last[slot]:
            return False
        used += last[slot] == 0
        last[slot] = entry
    if used != slot_count:
        return False
    wrong = 0
    for slot in range(slots):
        wrong += int32_at(content, 40 + slot * 4) != last[slot]
    return wrong == 0


def sizes_agree(file: IndexFile) -> bool:
    """Whether putting a file's key hashes again, with its sizes, gives the slots and chains in the file."""
    header, sizes = file.header, file.sizes
    if header.index_count > sizes.index_num:
        return False
    last = np.zeros(sizes.hash_slot_num, np.int32)
    return bool(_chains_agree(file.content, sizes.hash_slot_num, header.index_count, header.hash_slot_count, last))


def infer_index_sizes(entries: Sequence[tuple[str, Bytes]]) -> IndexSizes | None:
    """The sizes with which a store's index files were written, None if no file has an entry.

    `entries` has name and bytes of each file of the folder. A file whose length is not the commonest one was cut and is not used.

    Raises:
        CorruptStoreError: no sizes, or several, agree with every chain of every file.
    """
    named = [(name, content) for name, content in entries if is_index_file_name(name)]
    length = file_size_of((len(content) for _, content in named), 0)
    whole = [content for _, content in named if len(content) == length > _SMALLEST]
    filled = [content for content in whole if _header(content).index_count > 1]
    if not filled:
        return None
    agreeing = []
    for sizes in _candidates(min(filled, key=lambda content: _header(content).index_count)):
        if all(_fits(IndexFile("", content, sizes)) for content in filled):
            agreeing.append(sizes)
            if sizes == DEFAULT_INDEX_SIZES or len(agreeing) > 1:
                break
    if len(agreeing) != 1 and DEFAULT_INDEX_SIZES not in agreeing:
        raise CorruptStoreError(
            "index",
            "index files whose chains agree with one maxHashSlotNum",
            f"{'several' if agreeing else 'none'}, the files being of {length} bytes",
            hint="give it with --set maxHashSlotNum=N (and maxIndexNum)",
        )
    return agreeing[-1]


def _fits(file: IndexFile) -> bool:
    """Whether `file.sizes` agree with the file's slots and chains, and only zeros follow its last entry."""
    sizes = file.sizes
    unused = IndexSizes(hash_slot_num=sizes.hash_slot_num, index_num=file.header.index_count).file_length
    return sizes_agree(file) and (sizes == DEFAULT_INDEX_SIZES or not file.content[unused:].any())


def _header(content: Bytes) -> IndexHeader:
    return IndexFile("", content, DEFAULT_INDEX_SIZES).header


def _candidates(content: Bytes) -> Iterator[IndexSizes]:
    """The sizes for which the first and last entry have the offsets in the header; the default sizes come first."""
    length = len(content)
    if (length - INDEX_HEADER.itemsize) % HASH_SLOT.itemsize:
        return
    if length == DEFAULT_INDEX_SIZES.file_length:
        yield DEFAULT_INDEX_SIZES
    rows = content[length % INDEX_ENTRY.itemsize :].view(INDEX_ENTRY)
    for start in range(0, len(rows), _SCANNED_ROWS):
        for base in _bases(content, rows, start):
            sizes = IndexSizes(hash_slot_num=_slots_before(base, length), index_num=len(rows) - base)
            if sizes != DEFAULT_INDEX_SIZES:
                yield sizes


def _slots_before(base: int, length: int) -> int:
    return (length % INDEX_ENTRY.itemsize + base * INDEX_ENTRY.itemsize - INDEX_HEADER.itemsize) // HASH_SLOT.itemsize


def _bases(content: Bytes, rows: NDArray[np.void], start: int) -> list[int]:
    """The rows from `start` on that can be entry 0."""
    header = _header(content)
    last_entry = header.index_count - 1
    stop = min(start + _SCANNED_ROWS, len(rows) - last_entry)
    if stop <= start:
        return []
    zero, first, last = (rows[start + shift : stop + shift] for shift in (0, 1, last_entry))
    fits = (first["phyOffset"] == header.begin_phy_offset) & (last["phyOffset"] == header.end_phy_offset) & (first["previous"] == 0)
    for name in zero.dtype.names or ():
        fits &= zero[name] == 0
    slots = content[INDEX_HEADER.itemsize :].view(HASH_SLOT)
    found = []
    for base in (start + np.flatnonzero(fits)).tolist():
        count = _slots_before(base, len(content))
        # the slot of the last entry has the last entry's number
        if count > 0 and slots[int(rows["keyHash"][base + last_entry]) % count] == last_entry:
            found.append(base)
    return found
