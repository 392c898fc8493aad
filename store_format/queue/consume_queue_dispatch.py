"""Dispatching messages to consume queues: the files and bytes of the entries that they get.

Broker source (4.9.3): ConsumeQueue.putMessagePositionInfo, fillPreBlank; MappedFileQueue.getLastMappedFile.
Rule: `entry_placement` says where entries go; files that are missing before an entry are created. A queue without files
begins with the file of its first entry.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from store_format.files.files import Files
from store_format.files.mapped_files import MappedFile, offset_to_file_name
from store_format.layout import CQ_UNIT, PRE_BLANK
from store_format.queue.consume_queue import Units
from store_format.queue.entry_placement import NO_FILE, QueueEnd, put_entries
from store_format.queue.running_queue import Queue

Longs = NDArray[np.int64]


def put_message_position_info(
    store: Files, queue: Queue, physic_offsets: Longs, sizes: Longs, tags_codes: Longs, queue_offsets: Longs
) -> None:
    """Put the entries of messages, in the order of the log, into `queue`; changes the queue's files and bounds, and `store`.

    Raises:
        StoreError: the queue has no files, and its first message has a negative queue offset for which the broker would create a file.
    """
    done = put_entries(_end_of(store, queue), physic_offsets, sizes, queue_offsets, queue.file_size, "/".join(queue.folder))
    end, placed = done.end, done.placed
    queue.max_physic_offset = end.max_physic_offset
    if done.min_logic_offset is not None:
        queue.min_logic_offset = done.min_logic_offset
    if end.last_from == NO_FILE:
        return
    _extend(store, queue, done.first_from, end.last_from, end.wrote)
    if done.blanks:
        _append(store, queue, queue.files[0].from_offset, np.full(done.blanks, np.array(PRE_BLANK, CQ_UNIT)))
    put = placed >= 0
    if put.any():
        units = np.empty(int(put.sum()), CQ_UNIT)
        units["physicOffset"], units["size"], units["tagsCode"] = physic_offsets[put], sizes[put], tags_codes[put]
        _append(store, queue, int(placed[put][0]), units)


def _end_of(store: Files, queue: Queue) -> QueueEnd:
    last = queue.files[-1] if queue.files else None
    return QueueEnd(
        max_physic_offset=queue.max_physic_offset,
        last_from=NO_FILE if last is None else last.from_offset,
        wrote=0 if last is None else last.wrote,
        is_first=last is not None and len(queue.files) == 1 and store.is_created(queue.path(last.name)),
    )


def _extend(store: Files, queue: Queue, first_from: int, last_from: int, wrote: int) -> None:
    """Create the files up to the one that starts at `last_from`, note their bytes in use; a queue's first file starts at `first_from`."""
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
