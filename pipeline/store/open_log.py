"""The commit log of a store as entries of its queues are looked up in it: its files stay open from one queue to the next.

The messages of a queue lie all over the log. To map its files for each queue anew costs several times as much as to look at the messages,
for the pages have to be found again.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial

from pipeline.files.last_used import last_used
from pipeline.files.store_files import StoreFiles
from store_format.big_endian import Bytes
from store_format.files.mapped_files import MappedFile
from store_format.store_paths import COMMIT_LOG

# what is mapped takes no memory of its own, but some that watch over a task's memory count it
_MAPPED_BYTES = 2 << 30
# a file that is not mapped is in memory as a whole
_COPIED_AT_ONCE = 1


class OpenLog:
    """Files of one store's commit log, opened when they are asked for; for the use of one task."""

    def __init__(self, store: StoreFiles) -> None:
        self._store = store
        self._mapped: OrderedDict[str, Bytes] = OrderedDict()
        self._copied: OrderedDict[str, Bytes] = OrderedDict()

    def content(self, file: MappedFile) -> Bytes:
        """The bytes of a file, read-only."""
        path = (COMMIT_LOG, file.name)
        known, most = self._copied, _COPIED_AT_ONCE
        if self._store.is_mapped(*path):
            known, most = self._mapped, max(_MAPPED_BYTES // file.length, 1)
        return last_used(known, file.name, partial(self._store.content, *path), most=most)
