"""A store directory that is being written: many tasks write to files of full length at once, each byte once.

A task writes records through a mapping of their file, since they are many and not in order. The first task that opens a commit log file
fills the file's used part with zeros. So a full disk raises an error; without the zeros, writing to a mapped page without space would kill
the process. The zeros also allocate the pages in large pieces, not by one fault each. A file's state is in a small file, which has the
number of bytes to fill and, once they are filled, a second word. The small file is in a folder next to the store, so that no task, however
late, leaves a state in the store.

A task may run twice at once. Both write the same bytes to the same places, except zeros. Why zeros never replace a record:
- A state is written once, under a lock, before its file is made, and stays until the export ends. A late second run finds it and changes
  nothing; a state that a crash cut short is written again, by the run that Spark starts instead.
- Zeros are written under the same lock, only while the state does not say "filled", and are on the disk before it does.
- A task opens or maps a file only after it saw "filled". So whoever can write a record knows that no zeros follow; if a task dies while it
  writes zeros, nobody has written a record, and the next task writes all of them again.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from urllib.parse import quote, unquote

import numpy as np
from cachetools import LRUCache

from store_format.big_endian import Bytes
from store_format.errors import StoreError
from store_format.store_paths import COMMIT_LOG

_OPEN_AT_ONCE = 64
# larger buffers need contiguous memory; when memory is fragmented, they are ten times slower
_ZEROS = bytes(256 << 10)
_FILLED = b"filled\n"
# a state: a number of bytes, and whether they are filled; a crash may cut off the second line, or leave a part of it
_STATE = re.compile(rb"([0-9]+)\n(filled\n)?")


class StoreFolder:
    """The directory `root`, seen by driver and workers; can be sent to Spark's workers."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._states = f"{root}.states"

    def path_of(self, path: str) -> str:
        """The place of a file by its path below the store; raises if the path leads out of the store."""
        if any(part in {"", ".", ".."} for part in path.split("/")) or "\0" in path:
            raise StoreError("store_file", "a path below the store", repr(path))
        return f"{self.root}/{path}"

    def create_folder(self, path: str) -> None:
        """Create a folder and the folders above it."""
        with _as_store_error(self.path_of(path)):
            self._check_root()
            os.makedirs(self.path_of(path), exist_ok=True)

    def create(self, path: str, length: int, used: int) -> None:
        """Create a file of `length` zeros; its first `used` bytes get space on the disk when the file is first opened."""
        place = self.path_of(path)
        with _as_store_error(place):
            self._check_root()
            os.makedirs(os.path.dirname(place), exist_ok=True)
            if used:
                self._write_state(path, used)
            with open(place, "ab"):  # a task may run twice, and other tasks may already write to the file of the first run
                pass
            if os.path.getsize(place) != length:  # a needless truncate of a late run would change the file's time
                os.truncate(place, length)

    def close(self, path: str, mtime_ms: int) -> None:
        """Set a file's modification time (0 leaves it) after all writes to it."""
        place = self.path_of(path)
        with _as_store_error(place):
            if mtime_ms:
                os.utime(place, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))

    def fill(self, path: str) -> None:
        """Write zeros to a file's used part, unless another task did; the next task does it again if a task dies while it writes them.

        Raises:
            StoreError: the file's state cannot be read.
            OSError: the file or its state cannot be opened, or the disk is full.
        """
        if not os.path.exists(self._state_of(path)):
            return  # the file has no used part
        # some file systems lock only files that are open for writing
        with open(self._state_of(path), "r+b", buffering=0) as state:
            if self._left(state):
                try:
                    fcntl.flock(state, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    self._fill_next(state.name)
                    fcntl.flock(state, fcntl.LOCK_EX)
                if left := self._left(state):
                    _write_zeros(self.path_of(path), left)
                    state.write(_FILLED)

    def _fill_next(self, state: str) -> None:
        """Fill the next unfilled file, which is needed soon, while another task fills the file of `state`."""
        folder, name = os.path.split(state)
        for other in sorted(other for other in os.listdir(folder) if other > name):
            with open(f"{folder}/{other}", "rb", buffering=0) as later:
                is_next = bool(self._left(later))
            if is_next:
                self.fill(unquote(other))
                break

    def _state_of(self, path: str) -> str:
        return f"{self._states}/{quote(path, safe='')}"

    def _write_state(self, path: str, used: int) -> None:
        os.makedirs(self._states, exist_ok=True)
        with open(self._state_of(path), "a+b", buffering=0) as state:
            fcntl.flock(state, fcntl.LOCK_EX)
            state.seek(0)
            if not _STATE.match(state.readall()):
                state.truncate(0)
                state.write(b"%d\n" % used)

    @staticmethod
    def _left(state: FileIO) -> int:
        """The number of bytes to fill, 0 if they are filled; `state` is then at the place of its second line."""
        state.seek(0)
        found = _STATE.match(state.readall())
        if found is None:
            raise StoreError(state.name, "a number of bytes to fill", "none", hint="export again")
        state.seek(found.end(1) + 1)
        return 0 if found[2] else int(found[1])

    def _check_root(self) -> None:
        if not os.path.isdir(self.root):
            raise StoreError(self.root, "a directory that every executor sees", "none", hint="export to a local or a shared file system")


@contextmanager
def _as_store_error(place: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(place, "a file that can be written", str(error.strerror or error)) from error


def _write_zeros(place: str, count: int) -> None:
    with open(place, "r+b", buffering=0) as file:
        while count:
            count -= file.write(_ZEROS[:count]) or 0


class _Descriptors(LRUCache[str, int]):
    """Descriptors of open files by path; a descriptor that leaves the cache is closed."""

    def popitem(self) -> tuple[str, int]:
        path, file = super().popitem()
        os.close(file)
        return path, file


class OpenFiles:
    """The files of a StoreFolder to which one task writes; at most _OPEN_AT_ONCE, the most recently used, stay open."""

    def __init__(self, folder: StoreFolder) -> None:
        self.folder = folder
        self._files = _Descriptors(_OPEN_AT_ONCE)
        self._mapped: LRUCache[str, Bytes] = LRUCache(_OPEN_AT_ONCE)

    def __enter__(self) -> OpenFiles:
        return self

    def __exit__(self, *_: object) -> None:
        while self._files:
            self._files.popitem()
        self._mapped.clear()

    def write(self, path: str, position: int, data: bytes) -> int:
        """Write bytes at a position of a created file that is long enough; returns their number."""
        place = self.folder.path_of(path)
        if path not in self._files:
            self._files[path] = self._open(path)
        file = self._files[path]
        length = os.fstat(file).st_size
        if position < 0 or position + len(data) > length:
            raise StoreError(place, f"bytes inside the file's {length}", f"{len(data)} bytes", position=position)
        left = memoryview(data)
        with _as_store_error(place):
            while left:
                done = os.pwrite(file, left, position)
                left, position = left[done:], position + done
        return len(data)

    def log_file(self, name: str, length: int) -> Bytes:
        """The mapped bytes of a commit log file."""
        if name not in self._mapped:
            self._mapped[name] = self._map(f"{COMMIT_LOG}/{name}", length)
        return self._mapped[name]

    def _open(self, path: str) -> int:
        place = self.folder.path_of(path)
        with _as_store_error(place):
            self.folder.fill(path)
            return os.open(place, os.O_RDWR)

    def _map(self, path: str, length: int) -> Bytes:
        place = self.folder.path_of(path)
        with _as_store_error(place):
            self.folder.fill(path)
            found = os.path.getsize(place)
            if found != length:
                raise StoreError(place, f"a file of {length} bytes in store_file", f"{found} bytes")
            return np.memmap(place, np.uint8, mode="r+").view(np.ndarray)
