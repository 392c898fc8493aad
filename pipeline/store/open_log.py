"""Opens the commit log's files of a store and keeps them open from one queue to the next, for looking entries up.

A queue's messages are spread over the whole log. Mapping the log's files again for each queue costs several times as much as reading the
messages, because of the page faults.
"""

from __future__ import annotations

from cachetools import LRUCache

from pipeline.files.store_files import StoreFiles
from store_format.big_endian import Bytes
from store_format.files.mapped_files import MappedFile
from store_format.store_paths import COMMIT_LOG

# bytes of mapped files; they take no memory of their own, but some limits on a task's memory count them; one file may be larger
_MAPPED_BYTES = 2 << 30


class OpenLog:
    """The files of one store's commit log, each opened when it is first used; for one task."""

    def __init__(self, store: StoreFiles) -> None:
        self._store = store
        self._mapped: LRUCache[str, Bytes] = LRUCache(_MAPPED_BYTES, getsizeof=lambda content: min(content.nbytes, _MAPPED_BYTES))
        self._copied: dict[str, Bytes] = {}

    def content(self, file: MappedFile) -> Bytes:
        """The read-only bytes of a file."""
        path = (COMMIT_LOG, file.name)
        mapped = self._store.is_mapped(*path)
        known = self._mapped if mapped else self._copied
        if file.name not in known:
            if not mapped:
                known.clear()  # a remote file is in memory as a whole, so the last one is dropped before the next one is read
            known[file.name] = self._store.content(*path)
        return known[file.name]
