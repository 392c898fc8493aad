"""The commit log of a store as entries of its queues are looked up in it: its files stay open from one queue to the next.

The messages of a queue lie all over the log. To map its files anew for each queue costs several times as much as to look at the messages,
because the system has to find the pages again.
"""

from __future__ import annotations

from cachetools import LRUCache

from pipeline.files.store_files import StoreFiles
from store_format.big_endian import Bytes
from store_format.files.mapped_files import MappedFile
from store_format.store_paths import COMMIT_LOG

# mapped files take no memory of their own, but some that watch over a task's memory count them; one file may be larger
_MAPPED_BYTES = 2 << 30


class OpenLog:
    """Files of one store's commit log, opened when they are asked for; for the use of one task."""

    def __init__(self, store: StoreFiles) -> None:
        self._store = store
        self._mapped: LRUCache[str, Bytes] = LRUCache(_MAPPED_BYTES, getsizeof=lambda content: min(content.nbytes, _MAPPED_BYTES))
        self._copied: dict[str, Bytes] = {}

    def content(self, file: MappedFile) -> Bytes:
        """The bytes of a file, read-only."""
        path = (COMMIT_LOG, file.name)
        mapped = self._store.is_mapped(*path)
        known = self._mapped if mapped else self._copied
        if file.name not in known:
            if not mapped:
                known.clear()  # such a file is in memory as a whole: the former one goes before the next one is read
            known[file.name] = self._store.content(*path)
        return known[file.name]
