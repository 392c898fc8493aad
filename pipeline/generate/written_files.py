"""Writes the files of a new store directly to disk, through windows that are mapped while they are written.

Broker source (4.9.3): MappedFile.init, AllocateMappedFileService, MappedFileQueue.tryCreateMappedFile.
Rule: a file has its full length from the start. Bytes that were never written are zeros, which use no disk space on a file system with
sparse files.
Surprise: the broker creates the commit log's next file in advance and deletes it when it shuts down, so the file is not in the store.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from store_format.big_endian import Bytes
from store_format.errors import StoreError
from store_format.files.files import Entry, FilePath


@contextmanager
def _writing(path: str) -> Iterator[None]:
    """Turn errors of the system into `cannot_write`."""
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error) from error


class WrittenFiles:
    """A new store's files, which are on the disk as soon as they are written."""

    def __init__(self, root: str) -> None:
        """Begin a store below `root`, a folder that is empty or not there yet."""
        self.root = root
        self._created: set[FilePath] = set()

    def path_of(self, path: FilePath) -> str:
        """The path on disk of a file of the store."""
        return os.path.join(self.root, *path)

    def has(self, path: FilePath) -> bool:
        """Whether there is a file with this path."""
        return os.path.isfile(self.path_of(path))

    def entries(self, path: FilePath) -> list[Entry]:
        """The names in a folder, sorted; empty if the folder does not exist."""
        try:
            with os.scandir(self.path_of(path)) as names:
                found = [(name.name, name.is_dir(), name.stat()) for name in names]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(
            (Entry(name, is_folder, stat.st_size, stat.st_mtime_ns // 1_000_000) for name, is_folder, stat in found),
            key=lambda entry: entry.name,
        )

    def create(self, path: FilePath, length: int) -> None:
        """Create a file of `length` zeros, and its folder."""
        with _writing(name := self.path_of(path)):
            os.makedirs(os.path.dirname(name), exist_ok=True)
            with open(name, "xb") as file:
                file.truncate(length)
        self._created.add(path)

    def delete(self, path: FilePath) -> None:
        """Delete a file."""
        with _writing(name := self.path_of(path)):
            os.unlink(name)
        self._created.discard(path)

    def is_created(self, path: FilePath) -> bool:
        """Whether the file is one that `create` made."""
        return path in self._created

    def set_length(self, path: FilePath, length: int) -> None:
        """Make a file at least `length` bytes long; zeros follow its bytes."""
        with _writing(name := self.path_of(path)):
            os.truncate(name, max(os.path.getsize(name), length))

    def write(self, path: FilePath, at: int, data: Bytes) -> None:
        """Write `data` to an existing file at position `at`."""
        with _writing(name := self.path_of(path)), open(name, "r+b") as file:
            file.seek(at)
            file.write(np.ascontiguousarray(data).data)

    def window(self, path: FilePath, at: int, length: int) -> Bytes:
        """The mapped bytes [at, at + length) of a file; assigning to them writes to the file.

        This allocates their disk space, since an assignment on a full disk would kill the process. All pages are mapped at once, which
        takes half the time of one fault for each page.
        """
        name = self.path_of(path)
        before = at % mmap.ALLOCATIONGRANULARITY
        with _writing(name), open(name, "r+b") as file:
            os.posix_fallocate(file.fileno(), at, length)
            flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
            mapped = mmap.mmap(file.fileno(), before + length, flags=flags, offset=at - before)
        return np.frombuffer(mapped, np.uint8, length, before)

    def writable(self, path: FilePath) -> Bytes:
        """All bytes of a file, mapped; assigning to them writes to the file."""
        return np.frombuffer(self.map_whole(path), np.uint8)

    def map_whole(self, path: FilePath) -> mmap.mmap:
        """The mapping of a whole file for writes in any order; its madvise drops the pages from memory."""
        with _writing(name := self.path_of(path)), open(name, "r+b") as file:
            return mmap.mmap(file.fileno(), 0)

    def require_room(self, length: int) -> None:
        """Raise StoreError, which names the free bytes, if the disk has fewer than `length`."""
        disk = os.statvfs(self.root)
        if disk.f_bavail * disk.f_frsize < length:
            raise StoreError(self.root, f"a disk with {length} bytes left", f"{disk.f_bavail * disk.f_frsize}")

    def content(self, path: FilePath) -> Bytes:
        """All bytes of a file, mapped and read-only."""
        name = self.path_of(path)
        if os.path.getsize(name) == 0:
            return np.empty(0, np.uint8)
        return np.memmap(name, np.uint8, mode="r").view(np.ndarray)

    def set_time(self, path: FilePath, time_ms: int) -> None:
        """Set a file's modification time, ms."""
        os.utime(self.path_of(path), ns=(time_ms * 1_000_000, time_ms * 1_000_000))


def cannot_write(path: str, error: OSError) -> StoreError:
    """The error for a file that cannot be written because of `error`."""
    return StoreError(path, "a file that can be written", error.strerror or repr(error), hint="is there room on the disk?")
