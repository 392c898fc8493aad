"""Read-only files whose bytes come from a function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from store_format.big_endian import Bytes
from store_format.files.files import Entry, FilePath


@dataclass(frozen=True)
class StoredBytes:
    """Read-only files: `read` returns the bytes of a path, `is_there` says whether files exist."""

    read: Callable[[FilePath], Bytes]
    is_there: bool = True

    def name_of(self, path: FilePath) -> str:
        return "/".join(path)

    def entries(self, _path: FilePath) -> list[Entry]:
        return []

    def writable(self, path: FilePath) -> Bytes:
        return self.read(path).copy()

    def has(self, _path: FilePath) -> bool:
        return self.is_there

    def stored(self, path: FilePath) -> Bytes:
        return self.read(path)
