"""Builds the index of a new store in a thread, while the log is written.

Broker source (4.9.3): IndexService, IndexFile; CommitLogDispatcherBuildIndex.
Rule: messages are indexed in the order of the log, part by part.
Surprise: writes go to hash slots all over a file of 420 MB, so its mapped pages would fill the memory; after each part its pages are
dropped from memory, and the system writes them to disk.
"""

from __future__ import annotations

import mmap
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from pipeline.generate.written_files import WrittenFiles
from store_format.big_endian import Bytes
from store_format.errors import StoreError
from store_format.files.changed_files import PAGE
from store_format.index.index_dispatch import messages_to_index
from store_format.index.index_file import INDEX_ENTRY, IndexedMessages, IndexFile, IndexSizes
from store_format.index.index_service import IndexService
from store_format.log.dispatch_request import DispatchRequests
from store_format.store_paths import INDEX


class WrittenIndex:
    """The index files of a store; they are complete after `settle`."""

    def __init__(self, files: WrittenFiles, sizes: IndexSizes, *, with_tags: bool = False) -> None:
        """`with_tags` is the value of BUILD_INDEX in the broker's version."""
        self._files = files
        self._with_tags = with_tags
        self._sizes = sizes
        self._service = IndexService(sizes=sizes, new_content=self._new_content)
        self._map: mmap.mmap | None = None
        self._beside = ThreadPoolExecutor(1)
        self._building: Future[None] | None = None

    @property
    def files(self) -> list[IndexFile]:
        """All index files."""
        return self._service.files

    @property
    def index_msg_timestamp(self) -> int:
        """The checkpoint's index time: the end time of the last full file in ms, 0 without one."""
        return self._service.index_msg_timestamp or 0

    def load(self, *, last_exit_ok: bool, index_msg_timestamp: int) -> None:
        """Raise StoreError if there is an index already, however the store was left: nothing is added to an existing index."""
        if found := self._files.entries((INDEX,)):
            raise StoreError(self._files.path_of((INDEX,)), "no index", f"{found[0].name!r} in it", hint="a store is never written over")

    def build_index(self, requests: DispatchRequests) -> None:
        """IndexService.buildIndex for each message, in a thread; waits only for the messages of the last call.

        Raises:
            StoreError: the index of the last call's messages could not be written, for example on a full disk.
        """
        messages = messages_to_index(requests, with_tags=self._with_tags)
        self.settle()
        self._building = self._beside.submit(self._build, messages)

    def settle(self) -> None:
        """Wait until the messages of the last `build_index` are indexed."""
        if self._building is not None:
            self._building.result()

    def _build(self, messages: IndexedMessages) -> None:
        # a key may need a new page for its slot, and without disk space for the page the process would be killed
        self._files.require_room(min(len(messages.hashes) * (PAGE + INDEX_ENTRY.itemsize), self._sizes.file_length))
        self._service.build_index(messages)
        self._let_go()

    def _new_content(self, name: str, length: int) -> Bytes:
        self._let_go()
        self._files.create((INDEX, name), length)
        self._map = self._files.map_whole((INDEX, name))
        return np.frombuffer(self._map, np.uint8)

    def _let_go(self) -> None:
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)
