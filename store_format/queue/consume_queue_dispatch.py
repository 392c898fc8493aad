"""Dispatching messages to consume queues: which get an entry, and where.

Broker source (4.9.3): ConsumeQueue.putMessagePositionInfo, fillPreBlank; MappedFileQueue.getLastMappedFile.
Rule: an entry goes behind the queue's last one, whatever its offset; only a message that the queue has already (it ends at or before the
last one's end, or its offset is below the queue's end) is ignored.
Surprises: an offset above the queue's end is "order maybe wrong" in the log and written all the same; offset 0 is not compared at all. A
queue without files begins with the file that its first entry belongs in, the entries before it being pre-blanks.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from store_format.compiled import compiled
from store_format.errors import StoreError
from store_format.files.files import Files
from store_format.files.mapped_files import MappedFile, offset_to_file_name
from store_format.layout import CQ_STORE_UNIT_SIZE, CQ_UNIT, PRE_BLANK
from store_format.queue.consume_queue import Units
from store_format.queue.running_queue import Queue

Longs = NDArray[np.int64]

NO_FILE = -1


# what `_put` reads and leaves: maxPhysicOffset; start (NO_FILE without one) and wrote position of the last file; whether that is a new file
# and the queue's first; minLogicOffset; and where the first new file of a queue without files starts and its pre-blanks end
_MAX_PHYSIC, _FROM, _WROTE, _IS_FIRST, _MIN_LOGIC, _FIRST_FROM, _BLANK_END = range(7)


@compiled
def _put(physic_offsets, sizes, queue_offsets, file_size, state, placed):  # type: ignore[no-untyped-def]
    """putMessagePositionInfo for each message of one queue, in order; where each entry is put (bytes), -1 where it is ignored."""
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


def put_message_position_info(
    store: Files, queue: Queue, physic_offsets: Longs, sizes: Longs, tags_codes: Longs, queue_offsets: Longs
) -> None:
    """Put messages, in the order of the log, into one queue: its files, bounds and changed bytes move on.

    Raises:
        StoreError: the first message of a queue without files is so far below 0 that the broker would name a file by it.
    """
    state = _state_of(store, queue)
    placed = np.empty(len(sizes), np.int64)
    done = _put(physic_offsets, sizes, queue_offsets, np.int64(queue.file_size), state, placed)
    if done < len(sizes):
        raise StoreError("/".join(queue.folder), "queue offsets from 0 on", str(int(queue_offsets[done])))
    _, last_from, wrote, _, _, first_from, blank_end = state.tolist()
    queue.max_physic_offset, queue.min_logic_offset = int(state[_MAX_PHYSIC]), int(state[_MIN_LOGIC])
    if last_from == NO_FILE:
        return
    _extend(store, queue, first_from, last_from, wrote)
    if blank_end != NO_FILE:
        blank_from = queue.files[0].from_offset
        _append(store, queue, blank_from, np.full((blank_end - blank_from) // CQ_STORE_UNIT_SIZE, np.array(PRE_BLANK, CQ_UNIT)))
    put = placed >= 0
    if put.any():
        units = np.empty(int(put.sum()), CQ_UNIT)
        units["physicOffset"], units["size"], units["tagsCode"] = physic_offsets[put], sizes[put], tags_codes[put]
        _append(store, queue, int(placed[put][0]), units)


def _state_of(store: Files, queue: Queue) -> Longs:
    last = queue.files[-1] if queue.files else None
    is_first = last is not None and len(queue.files) == 1 and store.is_created(queue.path(last.name))
    state = np.full(7, NO_FILE, np.int64)
    state[_MAX_PHYSIC], state[_MIN_LOGIC], state[_IS_FIRST] = queue.max_physic_offset, queue.min_logic_offset, is_first
    if last is not None:
        state[_FROM], state[_WROTE] = last.from_offset, last.wrote
    return state


def _extend(store: Files, queue: Queue, first_from: int, last_from: int, wrote: int) -> None:
    """Create the files up to the one that starts at `last_from`, and note how far each is in use; `first_from` where there was none."""
    size = queue.file_size
    files = list(queue.files)
    start = files[-1].from_offset + size if files else first_from
    if files:
        files[-1] = replace(files[-1], wrote=wrote if files[-1].from_offset == last_from else size)
    for from_offset in range(start, last_from + 1, size):
        name = offset_to_file_name(from_offset)
        in_use = wrote if from_offset == last_from else size
        files.append(MappedFile(name=name, from_offset=from_offset, length=size, wrote=in_use))
        store.create(queue.path(name), size)
        queue.has_folder = True
    queue.files = tuple(files)


def _append(store: Files, queue: Queue, at: int, units: Units) -> None:
    """Write units that follow each other from byte `at` of the queue on, over as many files as they take."""
    data = units.view(np.uint8)
    done = 0
    while done < len(data):
        inside = (at + done) % queue.file_size
        part = data[done : done + queue.file_size - inside]
        store.write(queue.path(offset_to_file_name(at + done - inside)), inside, part)
        done += len(part)
