"""Opens the commit log's files of a store and keeps them open from one queue to the next, for looking entries up.

A queue's messages are spread over the whole log. Mapping the log's files again for each queue costs several times as much as reading the
messages, because of the page faults. A remote file is fetched once, into a temporary file that is mapped: a store of 8 log files and 35
queues on S3 was read 104 times by its import when each queue fetched the files again.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress

import numpy as np
from cachetools import LRUCache

from pipeline.files.store_files import StoreFiles, is_uri
from store_format.big_endian import Bytes
from store_format.files.mapped_files import MappedFile
from store_format.store_paths import COMMIT_LOG

# bytes of mapped files; they take no memory of their own, but some limits on a task's memory count them; one file may be larger
_MAPPED_BYTES = 2 << 30
# most bytes of the copies of remote files, and the part of the free temporary space that they may take: several tasks run at once
COPIED_BYTES, FREE_PART = 8 << 30, 8


class OpenLog:
    """The files of one store's commit log, each opened when it is first used; for one task."""

    def __init__(self, store: StoreFiles) -> None:
        self._store = store
        self._mapped: LRUCache[str, Bytes] = LRUCache(_MAPPED_BYTES, getsizeof=lambda content: min(content.nbytes, _MAPPED_BYTES))
        self._copies: LRUCache[str, Bytes] | None = None
        # the last file that was read into memory as a whole
        self._last: tuple[str, Bytes] | None = None

    def content(self, file: MappedFile) -> Bytes:
        """The read-only bytes of a file."""
        path = (COMMIT_LOG, file.name)
        if self._store.is_mapped(*path):
            if file.name not in self._mapped:
                self._mapped[file.name] = self._store.content(*path)
            return self._mapped[file.name]
        if self._copies is not None and file.name in self._copies:
            return self._copies[file.name]
        if self._last is None or self._last[0] != file.name:
            self._last = None  # dropped before the next file is read, so that only one is in memory
            content = self._store.content(*path)
            if is_uri(self._store.root) and self._copied(file.name, content):
                return self.content(file)
            self._last = file.name, content
        return self._last[1]

    def _copied(self, name: str, content: Bytes) -> bool:
        """Copy a remote file to temporary space if there is room; return whether there is a copy."""
        if self._copies is None:
            free = 0
            with suppress(OSError):  # no folder for temporary files can be written to
                free = shutil.disk_usage(tempfile.gettempdir()).free // FREE_PART
            self._copies = LRUCache(min(COPIED_BYTES, free), getsizeof=lambda copy: copy.nbytes)
        if not 0 < content.nbytes <= self._copies.maxsize:
            return False
        with suppress(OSError), tempfile.TemporaryFile(prefix="pullsim-") as file:  # a full disk: the file stays in memory
            file.write(content.data)
            file.flush()
            self._copies[name] = np.memmap(file, np.uint8, mode="r").view(np.ndarray)
        return name in self._copies
