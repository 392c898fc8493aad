"""The changes that a broker's load, start and shutdown make to a store's files, kept as byte ranges; the files stay untouched.

Broker source (4.9.3): MappedFile.appendMessage, MappedFileQueue.tryCreateMappedFile, MappedFile.destroy.
Rule: a changed file is the file in the store with the changed ranges written over it; a new file is zeros with the ranges over them.
Surprise: truncating changes no byte. The bytes past the new end stay in the file until something is written over them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from store_format.big_endian import Bytes
from store_format.compiled import compiled
from store_format.files.files import Entry, FilePath, StoredFiles


@dataclass(slots=True, kw_only=True)
class FileChange:
    """The differences between a changed file and the file in the store; can be sent to Spark's workers.

    Attributes:
        length: length of the changed file, bytes.
        is_new: the changed file has no bytes of a file in the store; bytes outside of `ranges` are zero.
        ranges: (position, bytes) of each changed range, ascending, without overlap.
    """

    length: int
    is_new: bool
    ranges: list[tuple[int, Bytes]] = field(default_factory=list)

    def write(self, at: int, data: Bytes) -> None:
        """Add the range of `data` at position `at`."""
        if not len(data):
            return
        end = at + len(data)
        if not self.ranges or self.ranges[-1][0] + len(self.ranges[-1][1]) <= at:
            self.ranges.append((at, data))
            return
        kept = [(at, data)]
        for start, old in self.ranges:
            if start < at:
                kept.append((start, old[: at - start]))
            if start + len(old) > end:
                cut = max(end - start, 0)
                kept.append((start + cut, old[cut:]))
        self.ranges = sorted(kept, key=lambda item: item[0])

    def joined(self) -> FileChange:
        """The same change with adjacent ranges joined."""
        groups: list[tuple[int, list[Bytes]]] = []
        end = -1
        for at, data in self.ranges:
            if at == end:
                groups[-1][1].append(data)
            else:
                groups.append((at, [data]))
            end = at + len(data)
        ranges = [(at, parts[0] if len(parts) == 1 else np.concatenate(parts)) for at, parts in groups]
        return FileChange(length=self.length, is_new=self.is_new, ranges=ranges)

    def lay_over(self, base: Bytes, start: int, stop: int) -> Bytes:
        """Bytes [start, stop) of the changed file.

        Args:
            base: bytes of the file in the store (not read for a new file); zeros follow its end.
            start: first position, not negative.
            stop: position past the last byte, cut to the changed file's length.

        Returns:
            A slice of `base` if it has all of [start, stop) unchanged, else a copy of these bytes.
        """
        stop = min(stop, self.length)
        touched = [item for item in self.ranges if item[0] < stop and item[0] + len(item[1]) > start]
        if not touched and not self.is_new and stop <= len(base):
            return base[start:stop]
        out = np.zeros(max(stop - start, 0), np.uint8)
        if not self.is_new:
            own = base[start:stop]
            out[: len(own)] = own
        for at, data in touched:
            first, last = max(at, start), min(at + len(data), stop)
            out[first - start : last - start] = data[first - at : last - at]
        return out


class ChangedFiles:
    """The files of a store and the changes to them; the store itself is only read."""

    def __init__(self, stored: StoredFiles) -> None:
        """`stored` are the files of the store."""
        self._stored = stored
        self.changes: dict[FilePath, FileChange] = {}
        self.deleted: set[FilePath] = set()
        self._created: set[FilePath] = set()

    def path_of(self, path: FilePath) -> str:
        """Path of a file or folder in the store, for messages."""
        return self._stored.name_of(path)

    def has(self, path: FilePath) -> bool:
        """Whether there is a file with this path now."""
        return path in self.changes or (path not in self.deleted and self._stored.has(path))

    def entries(self, path: FilePath) -> list[Entry]:
        """The names in a folder as it is now, sorted; a folder stays when its last file is deleted."""
        found = {entry.name: entry for entry in self._stored.entries(path) if (*path, entry.name) not in self.deleted}
        for changed, change in self.changes.items():
            if changed[: len(path)] == path:
                name, is_folder = changed[len(path)], len(changed) > len(path) + 1
                known = found.get(name, Entry(name, is_folder, 0, 0))
                found[name] = known if is_folder else replace(known, length=change.length)
        return sorted(found.values(), key=lambda entry: entry.name)

    def create(self, path: FilePath, length: int) -> None:
        """Create a file of `length` zeros. A file that the store has under this path keeps its bytes and is only extended."""
        if path not in self.deleted and self._stored.has(path):
            self.set_length(path, length)
            return
        self.changes[path] = FileChange(length=length, is_new=True)
        self._created.add(path)

    def delete(self, path: FilePath) -> None:
        """Delete a file."""
        self.changes.pop(path, None)
        self._created.discard(path)
        self.deleted.add(path)

    def is_created(self, path: FilePath) -> bool:
        """Whether `create` made the file."""
        return path in self._created

    def set_length(self, path: FilePath, length: int) -> None:
        """Extend a file of the store with zeros to at least `length` bytes, as mapping more than its length does."""
        self._change(path).length = max(self._change(path).length, length)

    def write(self, path: FilePath, at: int, data: Bytes) -> None:
        """Write `data` over a file's bytes from position `at` on."""
        self._change(path).write(at, data)

    def window(self, path: FilePath, at: int, length: int) -> Bytes:
        """Bytes [at, at + length) of a file; assigning to them changes the file."""
        change = self._change(path)
        data = np.array(change.lay_over(self._base(path, change), at, at + length))
        change.write(at, data)
        return data

    def writable(self, path: FilePath) -> Bytes:
        """All bytes of a file as it is now, writable in memory; the file changes only when they are given to `write`."""
        return self.content(path).copy() if path in self.changes else self._stored.writable(path)

    def _change(self, path: FilePath) -> FileChange:
        if path not in self.changes:
            self.changes[path] = FileChange(length=len(self._stored.stored(path)), is_new=False)
        return self.changes[path]

    def content(self, path: FilePath) -> Bytes:
        """All bytes of a file with its changes; a copy only if the file was changed."""
        change = self.changes.get(path)
        if change is None:
            return self._stored.stored(path)
        return change.lay_over(self._base(path, change), 0, change.length)

    def joined(self) -> dict[FilePath, FileChange]:
        """The change of each changed file, adjacent ranges joined."""
        return {path: change.joined() for path, change in self.changes.items()}

    def pieces(self, path: FilePath, size: int) -> Iterator[Bytes]:
        """The bytes of a file with its changes, `size` at a time, so that a large file is never in memory as a whole."""
        change = self.changes.get(path)
        base = self._base(path, change)
        length = len(base) if change is None else change.length
        for start in range(0, length, size):
            stop = min(start + size, length)
            yield base[start:stop] if change is None else change.lay_over(base, start, stop)

    def _base(self, path: FilePath, change: FileChange | None) -> Bytes:
        return np.empty(0, np.uint8) if change is not None and change.is_new else self._stored.stored(path)


PAGE = 4096


@compiled
def _differing_pages(former, now, differs):  # type: ignore[no-untyped-def]
    for page in range(len(differs)):
        for at in range(page * PAGE, min((page + 1) * PAGE, len(now))):
            if now[at] != (former[at] if at < len(former) else 0):
                differs[page] = True
                break


def changed_ranges(former: Bytes, now: Bytes) -> list[tuple[int, Bytes]]:
    """(position, bytes) of each run of pages in which `now` differs from `former`; zeros follow the end of `former`."""
    differs = np.zeros(-(-len(now) // PAGE) + 1, np.bool_)  # the last element stays False and ends the last run
    _differing_pages(former, now, differs[:-1])
    turns = np.flatnonzero(np.diff(differs, prepend=False))
    return [(first * PAGE, np.array(now[first * PAGE : last * PAGE])) for first, last in turns.reshape(-1, 2).tolist()]
