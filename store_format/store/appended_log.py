"""The commit log of a store: its mapped files, and the messages that are appended to them.

Broker source (4.9.3): CommitLog.putMessage, putMessages; MappedFileQueue.getLastMappedFile.
Rule: messages that are appended at once and lie in one file are written as one stretch, which is dispatched before the next is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from store_format.big_endian import Bytes
from store_format.files.files import FilePath, Files
from store_format.files.mapped_files import MappedFile, max_offset, offset_to_file_name
from store_format.log.append import NOT_APPENDED, MessageColumns, encode, encode_blank, number, place
from store_format.store_paths import COMMIT_LOG

Longs = NDArray[np.int64]


@dataclass(slots=True, kw_only=True)
class AppendedLog:
    """The commit log in `store`, with files of `file_size` bytes.

    `dispatch` receives the bytes of each stretch that is written, and the positions of the messages in it. `times` has the store timestamp
    (ms) of the last message that was appended to each file.
    """

    store: Files
    file_size: int
    dispatch: Callable[[Bytes, Longs], None]
    files: tuple[MappedFile, ...] = ()
    times: dict[str, int] = field(default_factory=dict)

    def read(self, file: MappedFile) -> Bytes:
        """All bytes of a file of the log."""
        return self.store.content((COMMIT_LOG, file.name))

    def path_at(self, offset: int) -> FilePath:
        """Path of the file that holds `offset`."""
        return (COMMIT_LOG, offset_to_file_name(offset - offset % self.file_size))

    def append(self, messages: MessageColumns, topic_queue_table: Longs) -> tuple[Longs, Longs]:
        """Write messages and dispatch them; `topic_queue_table`, the next offset of each queue, advances.

        Returns each message's offset in the log (NOT_APPENDED if no file has room for it) and in its queue.
        """
        placed = place(messages.record_sizes(), messages.batch, self.file_size, max_offset(self.files))
        queue_offsets = number(messages, placed.offsets, topic_queue_table)
        self._extend(placed.log_end)
        rows = np.flatnonzero(placed.offsets != NOT_APPENDED)
        # a part that is written at once lies in one file, and has no message without room in between
        turns = (np.diff(placed.offsets[rows] // self.file_size) > 0) | (np.diff(rows) > 1)
        for part in np.split(rows, np.flatnonzero(turns) + 1):
            if len(part):
                self._write(messages, slice(int(part[0]), int(part[-1]) + 1), placed.offsets, queue_offsets)
        for (at, length), row in zip(placed.blanks.tolist(), placed.blank_rows.tolist(), strict=True):
            path = self.path_at(at)
            self.store.write(path, at % self.file_size, np.frombuffer(encode_blank(length), np.uint8))
            self.times.setdefault(path[-1], int(messages.store_timestamp[row]))
        return placed.offsets, queue_offsets

    def _extend(self, log_end: int) -> None:
        """Create the files up to the log's new end, and note the bytes in use of each."""
        files = list(self.files)
        start = files[-1].end if files else 0
        if files:
            files[-1] = replace(files[-1], wrote=min(log_end - files[-1].from_offset, self.file_size))
        for from_offset in range(start, log_end, self.file_size):
            name = offset_to_file_name(from_offset)
            self.store.create((COMMIT_LOG, name), self.file_size)
            wrote = min(log_end - from_offset, self.file_size)
            files.append(MappedFile(name=name, from_offset=from_offset, length=self.file_size, wrote=wrote))
        self.files = tuple(files)

    def _write(self, messages: MessageColumns, rows: slice, offsets: Longs, queue_offsets: Longs) -> None:
        """Write messages that lie in one file, and dispatch them."""
        first, last = int(offsets[rows.start]), rows.stop - 1
        path, length = self.path_at(first), int(offsets[last] + messages.record_sizes()[last]) - first
        window = self.store.window(path, first % self.file_size, length)
        positions = encode(messages, rows, offsets, queue_offsets, window, first)
        self.times[path[-1]] = int(messages.store_timestamp[last])
        self.dispatch(window, positions)
