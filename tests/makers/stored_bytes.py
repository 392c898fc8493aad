"""Files that are only read, as functions give them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from store_format.big_endian import Bytes
from store_format.files.files import Entry, FilePath


@dataclass(frozen=True)
class StoredBytes:
    """Files whose bytes `read` gives; `is_there` says whether there is one."""

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
