"""Folders of mapped files: files of one fixed length, each named by the twenty digits of its first byte's offset.

Broker source (4.9.3): MappedFileQueue.doLoad, truncateDirtyFiles, findMappedFileByOffset; UtilAll.offset2FileName.
Rule: load refuses a file of any other length. The broker skips no file because of its name; here a name that is no offset is refused.
Surprise: a missing file in the middle is no error; the offsets in the gap are not found.
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
    """Whether a mapped file may start at `from_offset`: a multiple of `file_size`, with the file's end within a Java long."""
    return file_size > 0 and from_offset % file_size == 0 and from_offset + file_size < _LONG_END


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedFile:
    """One mapped file: `from_offset` is the offset of its first byte, `length` its bytes, `wrote` the number of bytes in use."""

    name: str
    from_offset: int
    length: int
    wrote: int
    mtime_ms: int = 0

    @property
    def end(self) -> int:
        """The offset just past the file."""
        return self.from_offset + self.length


def file_size_of(lengths: Iterable[int], default: int) -> int:
    """The commonest of `lengths` (the greatest of equally common ones), or `default` without any length."""
    counts = Counter(lengths)
    if not counts:
        return default
    return max(counts.items(), key=lambda item: (item[1], item[0]))[0]


def load(folder: str, entries: Sequence[tuple[str, int, int]], file_size: int) -> tuple[MappedFile, ...]:
    """The mapped files of a folder after MappedFileQueue.load.

    Args:
        folder: path of the folder, for messages.
        entries: (name, length in bytes, modification time in ms) of each file in the folder.
        file_size: the length that each file must have, bytes.

    Returns:
        The files in order of name; `wrote` of each is its length.

    Raises:
        CorruptStoreError: a file's length or name stops the broker's load.
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
    """Raise if a file does not start at a multiple of the file size: the broker loads it, but an offset can then lie in two files.

    Raises:
        CorruptStoreError: names the file; `folder` is the path in the message.
    """
    for file in files:
        if not is_aligned(file.from_offset, file_size):
            expected = f"a file named by a multiple of its length, {file_size} bytes"
            raise CorruptStoreError(f"{folder}/{file.name}", expected, repr(file.name))


def truncate_dirty_files(files: Sequence[MappedFile], offset: int) -> tuple[MappedFile, ...]:
    """The files after MappedFileQueue.truncateDirtyFiles(offset): the files past `offset` are gone, the file with `offset` ends there."""
    kept = []
    for file in files:
        if file.end <= offset:
            kept.append(file)
        elif offset >= file.from_offset:
            kept.append(replace(file, wrote=offset % file.length))
    return tuple(kept)


def min_offset(files: Sequence[MappedFile]) -> int:
    """MappedFileQueue.getMinOffset: the first file's offset, -1 without files."""
    return files[0].from_offset if files else -1


def max_offset(files: Sequence[MappedFile]) -> int:
    """MappedFileQueue.getMaxOffset: the end of the bytes in use, 0 without files."""
    return files[-1].from_offset + files[-1].wrote if files else 0
