"""The protocols of a store's files: files on a disk, or changes laid over a store that is only read.

Rule: a file's path is the tuple of names below the store. All kinds of files have the same methods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from store_format.big_endian import Bytes  # with numba, which takes 0.3 s

FilePath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a folder of the store; `length` in bytes, `mtime_ms` since 1970."""

    name: str
    is_folder: bool
    length: int
    mtime_ms: int


class StoredFiles(Protocol):
    """Files that are only read."""

    def name_of(self, path: FilePath) -> str:
        """Path of a file or folder as people know it, for messages."""

    def entries(self, path: FilePath) -> list[Entry]:
        """The names in a folder, sorted; empty if the folder does not exist."""

    def has(self, path: FilePath) -> bool:
        """Whether there is a file with this path."""

    def writable(self, path: FilePath) -> Bytes:
        """All bytes of a file, writable in memory; the file does not change."""

    def stored(self, path: FilePath) -> Bytes:
        """All bytes of a file, read-only."""


class Files(Protocol):
    """Files that are read and written."""

    def path_of(self, path: FilePath) -> str:
        """Path of a file or folder as people know it, for messages."""

    def entries(self, path: FilePath) -> list[Entry]:
        """The names in a folder, sorted; empty if the folder does not exist."""

    def has(self, path: FilePath) -> bool:
        """Whether there is a file with this path."""

    def content(self, path: FilePath) -> Bytes:
        """All bytes of a file as it is now, read-only."""

    def create(self, path: FilePath, length: int) -> None:
        """Make a file of zeros, and its folder."""

    def delete(self, path: FilePath) -> None:
        """Delete a file."""

    def is_created(self, path: FilePath) -> bool:
        """Whether the file is one that `create` made."""

    def set_length(self, path: FilePath, length: int) -> None:
        """Make a file at least `length` bytes long; zeros follow its bytes."""

    def write(self, path: FilePath, at: int, data: Bytes) -> None:
        """Write `data` over a file's bytes from position `at` on."""

    def window(self, path: FilePath, at: int, length: int) -> Bytes:
        """Bytes [at, at + length) of a file; assigning to them changes the file."""

    def writable(self, path: FilePath) -> Bytes:
        """All bytes of a file, writable; only `write` makes sure that the file changes."""
