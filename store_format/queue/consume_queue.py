"""The files of a consume queue: one 20-byte unit a message, in queue order.

Broker source (4.9.3): ConsumeQueue.recover, truncateDirtyLogicFiles, correctMinOffset, fillPreBlank.
Rule: a unit's position gives its queue offset (position = offset * 20); the unit itself does not have it.
Surprise: recover looks at the last three files only, correctMinOffset at the first one only. If no unit of the first file is at or above
the log's minimum, the queue's min offset stays as it was, 0 after a load. Units before a queue's first message are (0, 2147483647, 0) and
count as valid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from store_format.broker_version import BrokerVersion, Rule, Variant
from store_format.files.mapped_files import MappedFile, max_offset, truncate_dirty_files
from store_format.java.numbers import to_long
from store_format.layout import CQ_STORE_UNIT_SIZE, CQ_UNIT

Units = NDArray[np.void]
Numbers = Sequence[int] | NDArray[np.int64]
ReadUnits = Callable[[MappedFile], Units]

CORRECT_MIN_OFFSET: Final = Rule(
    term="correctMinOffset",
    variants=(
        Variant(
            BrokerVersion.V4_9_3,
            False,
            ("min becomes the first entry of the queue's first file that points at or after the log's min; if there is none, min stays"),
            "ConsumeQueue.correctMinOffset",
        ),
        Variant(
            BrokerVersion.V5_5_0,
            True,
            (
                "min stays while its entry is valid; else a binary search finds it in the first file, from the former min "
                "on; it is max if the last entry points before the log's min"
            ),
            "ConsumeQueue.correctMinOffset",
        ),
    ),
)

_FIRST_BLOCK = 1 << 10  # units
RECOVERED_FILES = 3  # ConsumeQueue.recover begins at the third file from the end


def units_of(content: NDArray[np.uint8]) -> Units:
    """The units in a file's bytes as CQ_UNIT rows, without a copy; bytes of an incomplete unit at the end are left out."""
    whole = len(content) // CQ_STORE_UNIT_SIZE * CQ_STORE_UNIT_SIZE
    return content[:whole].view(CQ_UNIT)


def encode_units(physic_offsets: Numbers, sizes: Numbers, tags_codes: Numbers) -> bytes:
    """The bytes of units with these offsets, sizes and tags codes, as the broker writes them."""
    units = np.empty(len(physic_offsets), CQ_UNIT)
    units["physicOffset"], units["size"], units["tagsCode"] = physic_offsets, sizes, tags_codes
    return units.tobytes()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredQueue:
    """A consume queue as ConsumeQueue.recover or truncateDirtyLogicFiles leaves it; `wrote` of each file is the bytes in use.

    `max_physic_offset` is the end in the commit log of the last entry's message, -1 without entries.
    """

    files: tuple[MappedFile, ...]
    max_physic_offset: int

    @property
    def max_offset(self) -> int:
        """ConsumeQueue.getMaxOffsetInQueue."""
        return max_offset(self.files) // CQ_STORE_UNIT_SIZE


def first_true(mask: NDArray[np.bool_]) -> int:
    """The index of the first true element of a mask; the mask's length if no element is true."""
    return int(mask.argmax()) if mask.any() else len(mask)


def are_bad(units: Units) -> NDArray[np.bool_]:
    """For each unit whether recover ends the queue at it."""
    bad: NDArray[np.bool_] = (units["physicOffset"] < 0) | (units["size"] <= 0)
    return bad


def _first_stop(units: Units, stops: Callable[[Units], NDArray[np.bool_]], first: int = 0) -> int:
    """The index of the first unit from `first` on that `stops` marks; the number of units if it marks none.

    Each block that is checked is twice as long as the one before: most of the 300,000 units of a file are zeros after a few entries.
    """
    size = _FIRST_BLOCK
    while first < len(units):
        found = first_true(stops(units[first : first + size]))
        if found < size:
            return min(first + found, len(units))
        first, size = first + size, 2 * size
    return len(units)


def message_end(unit: np.void) -> int:
    """The end of a unit's message in the log: offset + size in a Java long, which wraps."""
    return to_long(int(unit["physicOffset"]) + int(unit["size"]))


def recover(files: Sequence[MappedFile], read: ReadUnits) -> RecoveredQueue:
    """The queue after ConsumeQueue.recover; `read` returns all units of a file."""
    if not files:
        return RecoveredQueue(files=(), max_physic_offset=-1)
    max_physic_offset = -1
    process_offset = 0
    for file in files[max(len(files) - RECOVERED_FILES, 0) :]:
        units = read(file)
        valid = _first_stop(units, are_bad)
        if valid:
            max_physic_offset = message_end(units[valid - 1])
        process_offset = file.from_offset + valid * CQ_STORE_UNIT_SIZE
        if valid * CQ_STORE_UNIT_SIZE != file.length:
            break
    return RecoveredQueue(files=truncate_dirty_files(files, process_offset), max_physic_offset=max_physic_offset)


def truncate_dirty_logic_files(queue: RecoveredQueue, log_end: int, read: ReadUnits) -> RecoveredQueue:
    """The queue after ConsumeQueue.truncateDirtyLogicFiles(log_end): units of messages at or past the log's end are gone.

    The first unit of the last file is kept, whatever its bytes, unless its message lies past the log's end: a file of zeros gains one unit.
    """
    files = list(queue.files)
    max_physic_offset = log_end
    while files:
        units = read(files[-1])
        if not len(units):
            break
        if int(units["physicOffset"][0]) >= log_end:
            files.pop()
            continue
        kept = _first_stop(units, lambda block: are_bad(block) | (block["physicOffset"] >= log_end), 1)
        files[-1] = replace(files[-1], wrote=kept * CQ_STORE_UNIT_SIZE)
        max_physic_offset = message_end(units[kept - 1])
        break
    return RecoveredQueue(files=tuple(files), max_physic_offset=max_physic_offset)


def correct_min_offset(files: Sequence[MappedFile], log_min: int, read: ReadUnits, former: int = 0, *, by_search: bool = False) -> int:
    """The queue's min offset after ConsumeQueue.correctMinOffset(log_min); `former` if no unit of the first file reaches `log_min`.

    Args:
        files: the queue's mapped files.
        log_min: min offset of the commit log.
        read: returns all units of a file.
        former: the queue's min offset before.
        by_search: the value of CORRECT_MIN_OFFSET in the broker's version.
    """
    return min_and_found(files, log_min, read, former, by_search=by_search)[0]


def min_and_found(files: Sequence[MappedFile], log_min: int, read: ReadUnits, former: int, *, by_search: bool) -> tuple[int, bool]:
    """`correct_min_offset`, and whether it found the unit at that offset; only then the queue's extension is cut."""
    if by_search:
        return _search_min(files, log_min, read, former)
    if not files or not files[0].wrote:
        return former, False
    units = _in_use(files[0], read)
    first = first_true(units["physicOffset"] >= log_min)
    return (former, False) if first == len(units) else (files[0].from_offset // CQ_STORE_UNIT_SIZE + first, True)


def _search_min(files: Sequence[MappedFile], log_min: int, read: ReadUnits, former: int) -> tuple[int, bool]:
    end = max_offset(files) // CQ_STORE_UNIT_SIZE
    if not files or former >= end:
        return former, False
    last = _in_use(files[-1], read)
    if len(last) and int(last["physicOffset"][-1]) < log_min:
        return end, False
    first = files[0].from_offset // CQ_STORE_UNIT_SIZE
    start = max(former - first, 0)
    offsets = _in_use(files[0], read)["physicOffset"][start:]
    if not len(offsets) or (former >= first and int(offsets[0]) >= log_min):
        return former, False
    low, high = 0, len(offsets) - 1
    # offsets of pre-blanks and of entries dispatched again do not ascend; the result then depends on which entries are probed
    while high - low > 1:
        middle = (low + high) // 2
        found = int(offsets[middle])
        if found == log_min:
            low = high = middle
        elif found > log_min:
            high = middle
        else:
            low = middle
    for position in range(low, high + 1):
        if int(offsets[position]) >= log_min:
            return first + start + position, True
    return former, False


def _in_use(file: MappedFile, read: ReadUnits) -> Units:
    return read(file)[: file.wrote // CQ_STORE_UNIT_SIZE]
