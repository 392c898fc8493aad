"""Dispatching messages to consume queues: which messages get an entry, and at which position.

Broker source (4.9.3): ConsumeQueue.putMessagePositionInfo, fillPreBlank; MappedFileQueue.getLastMappedFile.
Rule: an entry follows the queue's last one, whatever its queue offset. The queue ignores a message that it already has: its end in the log
is at or before the end of the last entry's message, or its queue offset is below the queue's end.
Surprises: a queue offset above the queue's end is written too; the broker's log then says "order maybe wrong". Queue offset 0 is not
compared with the queue's end. A queue without files begins with the file of its first entry; the entries before it in that file are
pre-blanks.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from store_format.compiled import compiled
from store_format.errors import StoreError
from store_format.files.changed_files import ChangedFiles
from store_format.files.mapped_files import MappedFile, offset_to_file_name
from store_format.layout import CQ_STORE_UNIT_SIZE, CQ_UNIT, PRE_BLANK
from store_format.queue.consume_queue import Units
from store_format.queue.running_queue import Queue

Longs = NDArray[np.int64]

NO_FILE = -1


# The state that `_put` reads and writes: maxPhysicOffset; the last file's start (NO_FILE without a file) and bytes in use; whether the last
# file is new and the queue's first; minLogicOffset; the start of the first new file of a queue without files, the end of its pre-blanks.
_MAX_PHYSIC, _FROM, _WROTE, _IS_FIRST, _MIN_LOGIC, _FIRST_FROM, _BLANK_END = range(7)


@compiled
def _put(physic_offsets, sizes, queue_offsets, file_size, state, placed):  # type: ignore[no-untyped-def]
    """putMessagePositionInfo for each message of one queue: write the byte position of each entry to `placed`, -1 if ignored."""
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
    store: ChangedFiles, queue: Queue, physic_offsets: Longs, sizes: Longs, tags_codes: Longs, queue_offsets: Longs
) -> None:
    """Put the entries of messages, in the order of the log, into `queue`; changes the queue's files and bounds, and `store`.

    Raises:
        StoreError: the queue has no files, and its first message has a negative queue offset for which the broker would create a file.
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


def _state_of(store: ChangedFiles, queue: Queue) -> Longs:
    last = queue.files[-1] if queue.files else None
    is_first = last is not None and len(queue.files) == 1 and store.is_created(queue.path(last.name))
    state = np.full(7, NO_FILE, np.int64)
    state[_MAX_PHYSIC], state[_MIN_LOGIC], state[_IS_FIRST] = queue.max_physic_offset, queue.min_logic_offset, is_first
    if last is not None:
        state[_FROM], state[_WROTE] = last.from_offset, last.wrote
    return state


def _extend(store: ChangedFiles, queue: Queue, first_from: int, last_from: int, wrote: int) -> None:
    """Create the files up to the one at `last_from` and set the bytes in use of each; a queue without files begins at `first_from`."""
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


def _append(store: ChangedFiles, queue: Queue, at: int, units: Units) -> None:
    """Write consecutive units from byte `at` of the queue on, into as many files as needed."""
    data = units.view(np.uint8)
    done = 0
    while done < len(data):
        inside = (at + done) % queue.file_size
        part = data[done : done + queue.file_size - inside]
        store.write(queue.path(offset_to_file_name(at + done - inside)), inside, part)
        done += len(part)
