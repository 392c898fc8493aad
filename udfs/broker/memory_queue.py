"""One consume queue of a store in memory.

Broker source (4.9.3): ConsumeQueue.putMessagePositionInfo, fillPreBlank, getIndexBuffer; MappedFileQueue.getLastMappedFile.
Rule: `entry_placement` says where an entry goes, as for a queue on disk.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from store_format.files.mapped_files import MappedFile, offset_to_file_name
from store_format.layout import CQ_STORE_UNIT_SIZE, PRE_BLANK
from store_format.queue.consume_queue import encode_units
from store_format.queue.entry_placement import IGNORED, NO_FILE, QueueEnd, put_entries
from store_format.store.lookup import MappedFiles, QueueLookup
from udfs.pull.get_message import Block


@dataclass(slots=True)
class _File:
    """A queue file: entries (physicOffset, size, tagsCode) from `first` on, and when the last one was written, ms."""

    first: int
    entries: list[tuple[int, int, int]] = field(default_factory=list)
    written: int = 0


@dataclass(slots=True, kw_only=True)
class MemoryQueue:
    """A consume queue. `put` sets `min_offset` with the first entry; a step of a scenario may set it; deleting a file does not."""

    entries_a_file: int
    min_offset: int = 0
    _files: list[_File] = field(default_factory=list)
    _max_physic_offset: int = -1

    @property
    def max_offset(self) -> int:
        """Return the queue's maxOffset: ConsumeQueue.getMaxOffsetInQueue."""
        return self._files[-1].first + len(self._files[-1].entries) if self._files else 0

    def put(self, queue_offset: int, physic_offset: int, size: int, tags_code: int, now: int) -> None:
        """Add the entry of a message, after pre-blanks if the queue is empty; ignore a message that the queue already has. `now` in ms."""
        physic_offsets, sizes, queue_offsets = np.array([[physic_offset], [size], [queue_offset]], np.int64)
        file_size = self.entries_a_file * CQ_STORE_UNIT_SIZE
        last = self._files[-1] if self._files else None
        end = QueueEnd(
            max_physic_offset=self._max_physic_offset,
            last_from=last.first * CQ_STORE_UNIT_SIZE if last else NO_FILE,
            wrote=len(last.entries) * CQ_STORE_UNIT_SIZE if last else 0,
        )
        done = put_entries(end, physic_offsets, sizes, queue_offsets, file_size, "a queue in memory")
        self._max_physic_offset = done.end.max_physic_offset
        if done.min_logic_offset is not None:
            self.min_offset = done.min_logic_offset // CQ_STORE_UNIT_SIZE
        first = done.end.last_from // CQ_STORE_UNIT_SIZE
        if done.end.last_from != NO_FILE and (not self._files or self._files[-1].first != first):
            self._files.append(_File(first, [PRE_BLANK] * done.blanks))
        if done.placed[0] != IGNORED:
            self._files[-1].entries.append((physic_offset, size, tags_code))
            self._files[-1].written = now

    def delete_first_file(self) -> None:
        """Delete the queue's first file."""
        del self._files[:1]

    def block(self, offset: int) -> Block:
        """Return the entries of the file that contains a queue offset; an empty block if no file does."""
        file = next((file for file in self._files if file.first <= offset < file.first + self.entries_a_file), _File(0))
        columns = np.array(file.entries or np.empty((0, 3)), np.int64)
        physic, sizes, codes = (np.ascontiguousarray(columns[:, i]) for i in range(3))
        return Block(file.first, physic, sizes.astype(np.int32), codes)

    def entry(self, offset: int) -> tuple[int, int, int] | None:
        """Return the entry at a queue offset, None if there is none: ConsumeQueue.getIndexBuffer."""
        for file in self._files:
            if self.min_offset <= offset and file.first <= offset < file.first + len(file.entries):
                return file.entries[offset - file.first]
        return None

    def lookup(self) -> QueueLookup:
        """Return the queue in the form that look-ups by time need."""
        contents = {offset_to_file_name(file.first * CQ_STORE_UNIT_SIZE): file for file in self._files}
        length = self.entries_a_file * CQ_STORE_UNIT_SIZE
        files = [
            MappedFile(
                name=name,
                from_offset=file.first * CQ_STORE_UNIT_SIZE,
                length=length,
                wrote=len(file.entries) * CQ_STORE_UNIT_SIZE,
                mtime_ms=file.written,
            )
            for name, file in contents.items()
        ]
        bytes_of = {name: encode_units(*zip(*file.entries, strict=True)) if file.entries else b"" for name, file in contents.items()}
        mapped = MappedFiles(files, lambda file: np.frombuffer(bytes_of[file.name], np.uint8))
        return QueueLookup(mapped=mapped, min_logic_offset=self.min_offset * CQ_STORE_UNIT_SIZE)
