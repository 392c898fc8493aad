"""A queue of mapped files: files of one fixed length, each named by the twenty digits of its first byte's offset.

Broker source (4.9.3): MappedFileQueue.doLoad, truncateDirtyFiles, findMappedFileByOffset; UtilAll.offset2FileName.
Rule: load refuses a file of any other length, and takes every name in the folder.
Surprise: a missing file in the middle is no error; offsets in the hole are simply not found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from store_format.errors import CorruptStoreError

FILE_NAME_DIGITS = 20
_LONG_END = 2**63


def offset_to_file_name(offset: int) -> str:
    """Name of the mapped file that starts at `offset` (UtilAll.offset2FileName)."""
    return f"{offset:0{FILE_NAME_DIGITS}d}"


def is_mapped_file_name(name: str) -> bool:
    """Whether a name is the 20 ASCII digits of an offset."""
    return len(name) == FILE_NAME_DIGITS and name.isascii() and name.isdigit()


def is_aligned(from_offset: int, file_size: int) -> bool:
    """Whether a mapped file may start at `from_offset`: at a multiple of the file size, and so that it ends within a Java long."""
    return file_size > 0 and from_offset % file_size == 0 and from_offset + file_size < _LONG_END


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedFile:
    """One file of a queue: `from_offset` is the offset of its first byte, `wrote` the bytes in use."""

    name: str
    from_offset: int
    length: int
    wrote: int
    mtime_ms: int = 0

    @property
    def end(self) -> int:
        """Offset just past the file."""
        return self.from_offset + self.length


def file_size_of(lengths: Iterable[int], default: int) -> int:
    """The file size of a queue of mapped files: the commonest length, the greater one of equals, else `default`."""
    counts = Counter(lengths)
    if not counts:
        return default
    return max(counts.items(), key=lambda item: (item[1], item[0]))[0]


def load(folder: str, entries: Sequence[tuple[str, int, int]], file_size: int) -> tuple[MappedFile, ...]:
    """The mapped files of a folder after MappedFileQueue.load.

    Args:
        folder: its path, for messages.
        entries: (name, length in bytes, modification time in ms) of each file in it.
        file_size: length that each of them must have.

    Returns:
        The files in order of name, each taken as full.

    Raises:
        CorruptStoreError: a length or a name with which the broker does not start.
    """
    files = []
    for name, length, mtime_ms in sorted(entries):
        if length != file_size:
            raise CorruptStoreError(
                f"{folder}/{name}",
                f"a mapped file of {file_size} bytes",
                f"{length} bytes",
                hint="the broker refuses to start on such a file; give the size with --set if the store was written with another one",
            )
        if not is_mapped_file_name(name):
            raise CorruptStoreError(f"{folder}/{name}", "a file named by the 20 digits of its first offset", repr(name))
        files.append(MappedFile(name=name, from_offset=int(name), length=length, wrote=length, mtime_ms=mtime_ms))
    return tuple(files)


def check_aligned(folder: str, files: Iterable[MappedFile], file_size: int) -> None:
    """Refuse files that do not start at a multiple of the file size: the broker loads them, but its offsets have no one place in them.

    Raises:
        CorruptStoreError: such a file of `folder`, a path for messages.
    """
    for file in files:
        if not is_aligned(file.from_offset, file_size):
            expected = f"a file named by a multiple of its length, {file_size} bytes"
            raise CorruptStoreError(f"{folder}/{file.name}", expected, repr(file.name))


def truncate_dirty_files(files: Sequence[MappedFile], offset: int) -> tuple[MappedFile, ...]:
    """The files after MappedFileQueue.truncateDirtyFiles(offset): those past it are gone, the one that holds it ends there."""
    kept = []
    for file in files:
        if file.end <= offset:
            kept.append(file)
        elif offset >= file.from_offset:
            kept.append(replace(file, wrote=offset % file.length))
    return tuple(kept)


def min_offset(files: Sequence[MappedFile]) -> int:
    """MappedFileQueue.getMinOffset: -1 where there is no file."""
    return files[0].from_offset if files else -1


def max_offset(files: Sequence[MappedFile]) -> int:
    """MappedFileQueue.getMaxOffset: 0 where there is no file."""
    return files[-1].from_offset + files[-1].wrote if files else 0
