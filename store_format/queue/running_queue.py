"""One consume queue of a running broker: its files and bounds, and how load and start change them.

Broker source (4.9.3): ConsumeQueue.recover, truncateDirtyLogicFiles, correctMinOffset, getLastOffset, destroy.
Rule: the rules of consume_queue; a file that the broker deletes is deleted in the given `Files`.
Surprise: getLastOffset reads past the queue's end, over entries that were truncated and never cleared.
"""

from __future__ import annotations

from dataclasses import dataclass

from store_format.files.files import FilePath, Files
from store_format.files.mapped_files import MappedFile, max_offset
from store_format.layout import CQ_STORE_UNIT_SIZE
from store_format.queue import consume_queue as cq
from store_format.queue.consume_queue_ext import NO_ADDRESS, last_address
from store_format.queue.extension_dispatch import Extension, keep_files


@dataclass(slots=True, kw_only=True)
class Queue:
    """A consume queue of a running broker, in `folder` of the store; `wrote` of each file is the bytes in use.

    `max_physic_offset` and `min_logic_offset` (bytes) are fields of ConsumeQueue. The folder may be there and empty (`has_folder`).
    `extension` is None if the setting enableConsumeQueueExt is off.
    """

    topic: str
    queue_id: int
    folder: FilePath
    file_size: int
    files: tuple[MappedFile, ...] = ()
    max_physic_offset: int = -1
    min_logic_offset: int = 0
    has_folder: bool = False
    extension: Extension | None = None
    min_by_search: bool = False

    @property
    def max_offset(self) -> int:
        """ConsumeQueue.getMaxOffsetInQueue."""
        return max_offset(self.files) // CQ_STORE_UNIT_SIZE

    def path(self, name: str) -> FilePath:
        """The path of the queue's file `name`."""
        return (*self.folder, name)

    def units(self, store: Files, file: MappedFile) -> cq.Units:
        """All units of one of the queue's files, also those past the bytes in use."""
        return cq.units_of(store.content(self.path(file.name)))

    def recover(self, store: Files) -> None:
        """ConsumeQueue.recover.

        Raises:
            CorruptStoreError: a unit of the extension reaches past its file's end, and the broker's load fails.
            UnitUnderflowError: the last entry's unit ends past the bytes in use, and the broker's load fails.
        """
        if not self.files:
            return
        looked_at = self.files[-cq.RECOVERED_FILES].from_offset if len(self.files) > cq.RECOVERED_FILES else 0
        recovered = cq.recover(self.files, self._reader(store))
        self._keep(store, recovered.files)
        self.max_physic_offset = recovered.max_physic_offset
        if self.extension is not None:
            self.extension.recover(store, self._last_address(store, looked_at))

    def _last_address(self, store: Files, first: int) -> int:
        """The last address of a unit among the entries that `recover` looks at, which lie in the files from `first` on."""
        address = NO_ADDRESS
        for file in (file for file in self.files if file.from_offset >= first):
            address = last_address(self.units(store, file)["tagsCode"][: file.wrote // CQ_STORE_UNIT_SIZE], address)
        return address

    def truncate_dirty_logic_files(self, store: Files, log_end: int) -> None:
        """ConsumeQueue.truncateDirtyLogicFiles; it never reaches the line that would cut the extension."""
        before = cq.RecoveredQueue(files=self.files, max_physic_offset=self.max_physic_offset)
        after = cq.truncate_dirty_logic_files(before, log_end, self._reader(store))
        self._keep(store, after.files)
        self.max_physic_offset = after.max_physic_offset

    def correct_min_offset(self, store: Files, log_min: int) -> None:
        """ConsumeQueue.correctMinOffset, which also deletes the files of the extension before the first entry's unit."""
        former = self.min_logic_offset // CQ_STORE_UNIT_SIZE
        least, found = cq.min_and_found(self.files, log_min, self._reader(store), former, by_search=self.min_by_search)
        self.min_logic_offset = CQ_STORE_UNIT_SIZE * least
        if self.extension is not None and found:
            unit = self.units(store, self.files[0])[least - self.files[0].from_offset // CQ_STORE_UNIT_SIZE]
            self.extension.truncate_by_min_address(store, int(unit["tagsCode"]))

    def destroy(self, store: Files) -> None:
        """ConsumeQueue.destroy: no files and no folder."""
        self._keep(store, ())
        self.max_physic_offset, self.min_logic_offset, self.has_folder = -1, 0, False
        if self.extension is not None:
            self.extension.destroy(store)

    def _reader(self, store: Files) -> cq.ReadUnits:
        return lambda file: self.units(store, file)

    def _keep(self, store: Files, files: tuple[MappedFile, ...]) -> None:
        self.files = keep_files(store, self.folder, self.files, files)

    def last_offset(self, store: Files) -> int | None:
        """ConsumeQueue.getLastOffset: -1 without an entry, None if it throws BufferUnderflowException, as on a full file."""
        if not self.files:
            return -1
        units = self.units(store, self.files[-1])
        first = max(self.files[-1].wrote // CQ_STORE_UNIT_SIZE - 1, 0)
        valid = cq.first_true(cq.are_bad(units[first:]))
        if valid == len(units) - first and first > 0:
            return None
        if not valid:
            return -1
        return cq.message_end(units[first + valid - 1])
