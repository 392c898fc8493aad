"""What the files of a store are to the code that works on them: they may lie on a disk, or over a store that is only read.

Rule: a file has the path of names below the store. What is asked of files is asked of all kinds of them in the same words.
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
        """The names in a folder, sorted; empty where it does not exist."""

    def has(self, path: FilePath) -> bool:
        """Whether there is a file with this path."""

    def writable(self, path: FilePath) -> Bytes:
        """All bytes of a file, to be written to in memory alone."""

    def stored(self, path: FilePath) -> Bytes:
        """All bytes of a file, read-only."""


class Files(Protocol):
    """Files that are read and written."""

    def path_of(self, path: FilePath) -> str:
        """Path of a file or folder as people know it, for messages."""

    def entries(self, path: FilePath) -> list[Entry]:
        """The names in a folder, sorted; empty where it does not exist."""

    def has(self, path: FilePath) -> bool:
        """Whether there is a file with this path."""

    def content(self, path: FilePath) -> Bytes:
        """All bytes of a file as it is now, read-only."""

    def create(self, path: FilePath, length: int) -> None:
        """Make a file of zeros, and its folder."""

    def delete(self, path: FilePath) -> None:
        """Take a file away."""

    def is_created(self, path: FilePath) -> bool:
        """Whether the file is one that `create` made."""

    def set_length(self, path: FilePath, length: int) -> None:
        """Make a file at least `length` bytes long; zeros follow its bytes."""

    def write(self, path: FilePath, at: int, data: Bytes) -> None:
        """Put bytes over a file from position `at` on."""

    def window(self, path: FilePath, at: int, length: int) -> Bytes:
        """Bytes [at, at + length) of a file, which are written when they are assigned to."""

    def writable(self, path: FilePath) -> Bytes:
        """All bytes of a file, to be written to; what becomes of the file is seen when they are written back."""
