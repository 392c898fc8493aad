"""A store directory that is being written: many tasks write to files of full length at once, each byte once.

A task writes records through a mapping of their file, since they are many and not in order. The first task that opens a commit log file
fills the file's used part with zeros. So a full disk raises an error, where a write to a mapped page without space would kill the process;
and the pages are allocated in large pieces, not by one fault each. Until then a marker file has the number of bytes to fill, and says
whether a task has begun.

A task may run twice at once. Both write the same bytes to the same places, except zeros: the first run of a task that makes files may write
its marker when others have written records already. So a file with data and a marker without a begin is left as it is.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import RawIOBase
from pathlib import Path

import numpy as np
from cachetools import LRUCache

from store_format.big_endian import Bytes
from store_format.errors import StoreError
from store_format.store_paths import COMMIT_LOG

_OPEN_AT_ONCE = 64
# larger buffers need contiguous memory; when memory is fragmented, they are ten times slower
_ZEROS = bytes(256 << 10)
# what a marker has after the number of bytes once a task writes the zeros
_BEGUN = " begun"


class StoreFolder:
    """The directory `root`, seen by driver and workers; can be sent to Spark's workers."""

    def __init__(self, root: str) -> None:
        self.root = root

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
            with suppress(FileExistsError):  # a task may run twice, and other tasks may already write to the file of the first run
                Path(place).touch(exist_ok=False)
                if used:
                    Path(_marker(place)).write_text(str(used))
            os.truncate(place, length)

    def close(self, path: str, mtime_ms: int) -> None:
        """Set a file's modification time (0 leaves it) after all writes to it."""
        place = self.path_of(path)
        with _as_store_error(place):
            with suppress(FileNotFoundError):
                os.unlink(_marker(place))  # no task opened the file
            if mtime_ms:
                os.utime(place, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))

    def _check_root(self) -> None:
        if not os.path.isdir(self.root):
            raise StoreError(self.root, "a directory that every executor sees", "none", hint="export to a local or a shared file system")


@contextmanager
def _as_store_error(place: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(place, "a file that can be written", str(error.strerror or error)) from error


def _marker(place: str) -> str:
    folder, name = os.path.split(place)
    return f"{folder}/.pullsim-{name}.unfilled"


def _fill(place: str) -> None:
    """Write zeros to a file's used part, unless another task did; if a task dies while it writes them, the next task does it."""
    marker = _marker(place)
    try:
        opened = os.open(marker, os.O_RDWR)  # some file systems lock only files that are open for writing
    except FileNotFoundError:
        return
    with os.fdopen(opened, "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _fill_next(place)
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.path.exists(marker):  # it is gone if another task filled the file while this one waited
            left, begun, _ = file.read().partition(_BEGUN)
            with open(place, "r+b", buffering=0) as filled:
                if begun or not _has_data(filled.fileno()):
                    file.write(_BEGUN)
                    file.flush()
                    _write_zeros(filled, int(left or 0))
            os.unlink(marker)


def _has_data(file: int) -> bool:
    """Whether an open file is no single hole."""
    try:
        os.lseek(file, 0, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return False
        raise
    return True


def _write_zeros(file: RawIOBase, count: int) -> None:
    while count:
        count -= file.write(_ZEROS[:count]) or 0


def _fill_next(place: str) -> None:
    """Fill the file after `place`, which is needed soon, while another task fills `place`."""
    folder, name = os.path.split(place)
    later = [other for other in os.listdir(folder) if other > name and os.path.exists(_marker(f"{folder}/{other}"))]
    if later:
        _fill(f"{folder}/{min(later)}")


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
            self._files[path] = self._open(place)
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

    def _open(self, place: str) -> int:
        with _as_store_error(place):
            _fill(place)
            return os.open(place, os.O_RDWR)

    def _map(self, path: str, length: int) -> Bytes:
        place = self.folder.path_of(path)
        with _as_store_error(place):
            _fill(place)
            found = os.path.getsize(place)
            if found != length:
                raise StoreError(place, f"a file of {length} bytes in store_file", f"{found} bytes")
            return np.memmap(place, np.uint8, mode="r+").view(np.ndarray)
