"""The extension of a running broker's queue: its files, and the units of dispatched messages.

Broker source (4.9.3): ConsumeQueue.recover, correctMinOffset and putMessagePositionInfoWrapper, as far as they call ConsumeQueueExt.
Rule: a message gets its unit before the queue checks whether it already has the message.
Surprises: each message that is dispatched again gets another unit, to which no entry points. A queue that did not exist at load does not
know the files of its extension, if there are any, and writes over them from their beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from store_format.big_endian import Bytes
from store_format.files.files import FilePath, Files
from store_format.files.mapped_files import MappedFile
from store_format.queue import consume_queue_ext as ext


class _Written:
    """A file for ExtWriter that is only written: assigning to a slice adds a change to the store."""

    def __init__(self, store: Files, path: FilePath) -> None:
        self._store = store
        self._path = path

    def __setitem__(self, where: slice, data: Bytes | int) -> None:
        length = where.stop - where.start
        self._store.write(self._path, where.start, np.array(np.broadcast_to(np.asarray(data, np.uint8), (length,))))


def keep_files(store: Files, folder: FilePath, files: Sequence[MappedFile], kept: Sequence[MappedFile]) -> tuple[MappedFile, ...]:
    """Delete the files of a folder that are in `files` and not in `kept`; return `kept`."""
    names = {file.name for file in kept}
    for file in files:
        if file.name not in names:
            store.delete((*folder, file.name))
    return tuple(kept)


@dataclass(slots=True, kw_only=True)
class Extension:
    """The extension of one queue; `files` are its mapped files, `file_size` the length of each in bytes."""

    folder: FilePath
    file_size: int
    files: tuple[MappedFile, ...] = ()

    @property
    def min_address(self) -> int:
        """ConsumeQueueExt.getMinAddress."""
        return ext.address_of(self.files[0].from_offset if self.files else 0)

    @property
    def max_address(self) -> int:
        """ConsumeQueueExt.getMaxAddress."""
        return ext.address_of(self.files[-1].from_offset + self.files[-1].wrote if self.files else 0)

    def recover(self, store: Files, max_address: int) -> None:
        """Recover the files, and cut them after the unit at `max_address`, the last address in the queue's entries.

        Raises:
            CorruptStoreError: a unit reaches past its file's end, and the broker's load fails.
            UnitUnderflowError: the unit at `max_address` ends past the bytes in use, and the broker's load fails.
        """
        self._keep(store, ext.recover(self.files, self._reader(store)))
        self._keep(store, ext.truncate_by_max_address(self.files, max_address, self._reader(store)))

    def truncate_by_min_address(self, store: Files, address: int) -> None:
        """Delete the files before the one with `address`, the unit of the queue's first entry."""
        self._keep(store, ext.truncate_by_min_address(self.files, address))

    def destroy(self, store: Files) -> None:
        """Delete all files."""
        self._keep(store, ())

    def put(self, store: Files, tags_codes: NDArray[np.int64], stamps: NDArray[np.int64], bit_maps: Sequence[bytes | None]) -> None:
        """Write a unit for each message. If that works, the message's element of `tags_codes` becomes the unit's address, in place."""

        def create(name: str, length: int) -> Bytes:
            store.create((*self.folder, name), length)
            return cast("Bytes", _Written(store, (*self.folder, name)))

        last = {file.name: cast("Bytes", _Written(store, (*self.folder, file.name))) for file in self.files[-1:]}
        writer = ext.ExtWriter(file_size=self.file_size, files=list(self.files), contents=last, new_content=create)
        for row, bit_map in enumerate(bit_maps):
            unit = ext.ExtUnit(tags_code=int(tags_codes[row]), msg_store_time=int(stamps[row]), bit_map=bit_map)
            address = writer.put(unit)
            if ext.is_ext_address(address):
                tags_codes[row] = address
        self.files = tuple(writer.files)

    def _keep(self, store: Files, files: Sequence[MappedFile]) -> None:
        self.files = keep_files(store, self.folder, self.files, files)

    def _reader(self, store: Files) -> ext.ReadBytes:
        return lambda file: store.content((*self.folder, file.name))
