"""Finds the places of dispatched messages' entries in a consume queue, the messages without an entry, and the pre-blanks before the first.

Broker source (4.9.3): ConsumeQueue.putMessagePositionInfo, fillPreBlank; MappedFileQueue.getLastMappedFile.
Rule: an entry goes after the queue's last entry, whatever its queue offset. Only a message that the queue has already is ignored: one that
ends in the log at or before the last entry's message, or whose queue offset is below the queue's end.
Surprises: an offset above the queue's end is "order maybe wrong" in the log and written all the same; offset 0 is not compared at all. A
queue without files begins with the file that its first entry belongs in; pre-blanks fill that file up to the entry.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from store_format.compiled import compiled
from store_format.errors import StoreError
from store_format.layout import CQ_STORE_UNIT_SIZE

Longs = NDArray[np.int64]

NO_FILE = -1
IGNORED = -1
_STAYS = -1  # no place of an entry

# the state that `_put` reads and changes: maxPhysicOffset; start (NO_FILE without files) and wrote position of the last file; whether that
# file is new and the queue's first; minLogicOffset; start of the first new file of a queue without files; end of the pre-blanks
_MAX_PHYSIC, _FROM, _WROTE, _IS_FIRST, _MIN_LOGIC, _FIRST_FROM, _BLANK_END = range(7)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEnd:
    """The state of a queue that decides the place of its next entry.

    Attributes:
        max_physic_offset: ConsumeQueue.maxPhysicOffset.
        last_from: start of the last file in the queue, bytes; NO_FILE if the queue has no files.
        wrote: bytes in use of the last file.
        is_first: whether the last file is new and the queue's first.
    """

    max_physic_offset: int = -1
    last_from: int = NO_FILE
    wrote: int = 0
    is_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PutEntries:
    """The places of entries that were put into a queue.

    Attributes:
        end: the queue afterwards.
        min_logic_offset: ConsumeQueue.minLogicOffset afterwards, bytes; None if it stays as it was.
        placed: place of each message's entry in the queue, bytes; IGNORED if the message gets none.
        first_from: start of the first new file of a queue that had no files, NO_FILE if it had files.
        blanks: number of pre-blanks to write at the beginning of the queue's first file.
    """

    end: QueueEnd
    min_logic_offset: int | None
    placed: Longs
    first_from: int
    blanks: int


def put_entries(end: QueueEnd, physic_offsets: Longs, sizes: Longs, queue_offsets: Longs, file_size: int, where: str) -> PutEntries:
    """Place the entries of messages, in the order of the log, in a queue that ends at `end` and has files of `file_size` bytes.

    Raises:
        StoreError: the first queue offset of a queue without files is so far below 0 that the broker would name a file by it; the error
        names `where`.
    """
    state = np.full(7, NO_FILE, np.int64)
    state[_MAX_PHYSIC], state[_IS_FIRST] = end.max_physic_offset, end.is_first
    if end.last_from != NO_FILE:
        state[_FROM], state[_WROTE] = end.last_from, end.wrote
    placed = np.empty(len(sizes), np.int64)
    done = _put(physic_offsets, sizes, queue_offsets, np.int64(file_size), state, placed)
    if done < len(sizes):
        raise StoreError(where, "queue offsets from 0 on", str(int(queue_offsets[done])))
    max_physic, last_from, wrote, is_first, min_logic, first_from, blank_end = state.tolist()
    after = QueueEnd(max_physic_offset=max_physic, last_from=last_from, wrote=max(wrote, 0), is_first=is_first == 1)
    blanks = 0 if blank_end == NO_FILE else (blank_end - (end.last_from if first_from == NO_FILE else first_from)) // CQ_STORE_UNIT_SIZE
    return PutEntries(
        end=after, min_logic_offset=None if min_logic == _STAYS else min_logic, placed=placed, first_from=first_from, blanks=blanks
    )


@compiled
def _put(physic_offsets, sizes, queue_offsets, file_size, state, placed):  # type: ignore[no-untyped-def]
    """putMessagePositionInfo for each message of one queue, in order: write each entry's place (bytes) to `placed`, -1 if it is ignored."""
    for i in range(len(sizes)):
        placed[i] = -1
        end = physic_offsets[i] + sizes[i]
        if end <= state[_MAX_PHYSIC]:
            continue
        expected = queue_offsets[i] * 20
        inside = max(expected, np.int64(0)) % file_size
        if state[_FROM] == NO_FILE:
            if expected <= -file_size:
                return i
            state[_FROM] = max(expected, np.int64(0)) - inside
            state[_WROTE] = 0
            state[_IS_FIRST] = 1
            state[_FIRST_FROM] = state[_FROM]
        elif state[_WROTE] == file_size:
            state[_FROM] += file_size
            state[_WROTE] = 0
            state[_IS_FIRST] = 0
        if state[_IS_FIRST] and state[_WROTE] == 0 and queue_offsets[i] != 0:
            state[_MIN_LOGIC] = expected
            state[_WROTE] = inside
            state[_BLANK_END] = state[_FROM] + inside
        current = state[_FROM] + state[_WROTE]
        if queue_offsets[i] != 0 and expected < current:
            continue
        state[_MAX_PHYSIC] = end
        state[_WROTE] += 20
        placed[i] = current
    return len(sizes)
