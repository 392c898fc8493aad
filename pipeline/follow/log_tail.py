"""Finds the records that a running broker has appended to its commit log, from the log's bytes: no file says where the log ends.

Broker source (4.9.3): DefaultMessageStore.ReputMessageService.doReput, which dispatches record after record and rolls to the next file at
a BLANK; CommitLog.DefaultAppendMessageCallback, which copies a record into the file as one buffer.
Rule: a record is complete if another record or a BLANK follows it, or if two reads found the same bytes. A record is still being copied if
its lengths do not add up, its body does not have its CRC-32, its last text ends in zeros, or its bytes change.
Surprises: a broker that restarts after a kill may truncate the log and write other messages to the same offsets. A broker that cleans up
deletes files that were not read yet. The log's first offset and the CRC-32 of the last record read are kept; a change of them shows both.
A store without a log does not tell how long its files will be: when the log begins, the store is imported again.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from pipeline.files.store_files import StoreFiles
from store_format.big_endian import Bytes, Positions
from store_format.broker_version import BrokerVersion
from store_format.files.files import Entry
from store_format.files.mapped_files import MappedFile, is_mapped_file_name
from store_format.log.commit_log import WalkEnd, first_bad_body, walk
from store_format.record.record_columns import locate
from store_format.record.record_length import stored_length
from store_format.store_paths import COMMIT_LOG, CONSUME_QUEUE

# kinds of events: why the rows that were read are no longer those of the log
TRUNCATED, CLEANED = "TRUNCATED", "CLEANED"
_RECORDS_A_WALK = 16_384


@dataclass(frozen=True, slots=True)
class Mark:
    """A record that was read: its offset in the log, its length in bytes and its CRC-32."""

    offset: int
    size: int
    crc32: int

    @property
    def end(self) -> int:
        """The offset past the record."""
        return self.offset + self.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event after which the rows read so far are no longer valid from `physic_offset` on."""

    kind: str
    physic_offset: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Consecutive records in one file, from position `start` to `end`."""

    file: MappedFile
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The records that one read of the log found after an offset: the last complete one, and the offset past it.

    `newest` is the record that follows, if there is one; it is complete if the next read finds the same bytes.
    """

    end: int
    last: Mark | None = None
    newest: Mark | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowOffset:
    """The progress of a stream, which Spark keeps in its checkpoint.

    `mark` is the last record that was read, None at the start of a log; `physic_offset` is the offset past it. `min_offset` is the log's
    first offset, -1 if the log has no files. `epoch` is the number of events so far. `config` is the names, sizes and times of the config
    files.
    """

    physic_offset: int
    min_offset: int
    mark: Mark | None = None
    epoch: int = 0
    event: Event | None = None
    config: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The offset as an object for JSON."""
        return asdict(self)

    @staticmethod
    def of(value: dict[str, Any]) -> FollowOffset:
        """The offset in an object of `as_dict`."""
        mark, event = value["mark"], value["event"]
        return FollowOffset(**value | {"mark": mark and Mark(**mark), "event": event and Event(**event)})


@dataclass(frozen=True, slots=True)
class LogTail:
    """The commit log of a running broker's store; `file_size` is the length of its files, bytes, `version` that of the broker."""

    store: StoreFiles
    file_size: int
    version: BrokerVersion

    def files(self) -> list[MappedFile]:
        """The log's files in order, without a file that is still too short because the broker is creating it."""
        names = [entry for entry in self.store.folder(COMMIT_LOG) if is_mapped_file_name(entry.name)]
        return [
            MappedFile(name=entry.name, from_offset=int(entry.name), length=entry.length, wrote=entry.length, mtime_ms=entry.mtime_ms)
            for entry in names
            if entry.length == self.file_size
        ]

    def lost(self, at: FollowOffset) -> Event | None:
        """The event if the log has lost or overwritten records that were read up to `at`, else None."""
        files = self.files()
        first = files[0].from_offset if files else at.min_offset
        if at.min_offset < 0 and (begun := self._first_begun()):
            return Event(kind=CLEANED, physic_offset=int(begun.name), text=f"the log begins at {int(begun.name)} now, it had no files")
        if at.min_offset >= 0 and first != at.min_offset:
            text = f"the log begins at {first} now, it began at {at.min_offset}"
            return Event(kind=CLEANED, physic_offset=first, text=text)
        if at.mark is None or self._crc32(files, at.mark) == at.mark.crc32:
            return None
        text = f"the record at {at.mark.offset} is no longer the one that was read: the log was cut, and written on"
        return Event(kind=TRUNCATED, physic_offset=at.mark.offset, text=text)

    def as_found(self) -> LogTail:
        """This log with the length of its first file as `file_size`; unchanged until the broker has written to that file and to a queue."""
        begun = self._first_begun()
        return self if begun is None else replace(self, file_size=begun.length)

    def _first_begun(self) -> Entry | None:
        """The first file of the log, if the broker has written to it and to a queue: an import finds the files' lengths only then."""
        files = [entry for entry in self.store.folder(COMMIT_LOG) if is_mapped_file_name(entry.name)]
        if not files or not _begins(self.store.part(0, 8, COMMIT_LOG, files[0].name), 0):
            return None
        folders = ((CONSUME_QUEUE, topic.name) for topic in self.store.folder(CONSUME_QUEUE))
        queues = ((*folder, queue.name) for folder in folders for queue in self.store.folder(*folder))
        return files[0] if any(self.store.folder(*queue) for queue in queues) else None

    def look(self, start: int, bytes_max: int, known: Mark | None) -> Tail:
        """Find the complete records from the offset `start` on; `known` is the newest record that the last read found.

        The records have at most `bytes_max` bytes together, unless the first record alone is longer.
        """
        tail = Tail(end=start)
        for file, content, positions, end, is_followed in self._walks(start):
            ends = np.append(positions[1:], end) if len(positions) else positions
            fits = int(np.searchsorted(ends + file.from_offset, start + bytes_max, side="right"))
            taken = max(fits, 0 if tail.last else 1)
            if taken < len(positions):
                return _taken(tail, file, content, positions, ends, taken)
            if len(positions) and not is_followed:
                newest = _mark(file, content, int(positions[-1]))
                if newest != known or not _is_whole(content, positions[-1:]):
                    return replace(_taken(tail, file, content, positions, ends, len(positions) - 1), newest=newest)
            tail = _taken(tail, file, content, positions, ends, len(positions))
        return tail

    def end(self) -> Tail:
        """The end of the log, found by a walk from the start of the last file with records."""
        used = [file for file in self.files() if _begins(self.store.part(0, 8, COMMIT_LOG, file.name), 0)]
        return self.look(used[-1].from_offset, self.file_size, None) if used else Tail(end=0)

    def pieces(self, start: int, end: int) -> Iterator[Piece]:
        """The records between two offsets, in pieces of some thousand records."""
        for file, _, positions, stop, _ in self._walks(start):
            inside = positions[positions + file.from_offset < end]
            if len(inside):
                end_of_piece = int(positions[len(inside)]) if len(inside) < len(positions) else stop
                yield Piece(file=file, start=int(inside[0]), end=end_of_piece)
            if len(inside) < len(positions) or file.from_offset + stop >= end:
                return

    def _walks(self, start: int) -> Iterator[tuple[MappedFile, Bytes, Positions, int, bool]]:
        """Runs of records from `start` on: file, its bytes, positions, end of the last record, whether more follows it."""
        for file in self.files():
            if file.end <= start:
                continue
            content = self.store.content(COMMIT_LOG, file.name)
            at = max(start - file.from_offset, 0)
            ended: WalkEnd | None = None
            while ended is None:
                part = walk(content, at, file.length, _RECORDS_A_WALK, self.version)
                at, ended = part.end, part.ended
                yield file, content, part.positions, part.end, ended in {None, WalkEnd.BLANK} or _begins(content, at)
            if ended is not WalkEnd.BLANK:
                return

    def _crc32(self, files: list[MappedFile], mark: Mark) -> int | None:
        for file in files:
            if file.from_offset <= mark.offset and mark.end <= file.end:
                at = mark.offset - file.from_offset
                return zlib.crc32(self.store.part(at, at + mark.size, COMMIT_LOG, file.name).tobytes())
        return None


def _is_whole(content: Bytes, position: Positions) -> bool:
    """Whether the record at a position shows no sign of an unfinished copy."""
    if first_bad_body(content, position) == 0:
        return False
    parts = locate(content, position)
    last = parts.properties if parts.properties.lengths[0] > 0 else parts.topic
    return bool(content[last.starts[0] + last.lengths[0] - 1])


def _begins(content: Bytes, at: int) -> bool:
    """Whether the broker has begun to write a record at a position."""
    return at + 8 <= len(content) and bool(content[at : at + 8].any())


def _taken(tail: Tail, file: MappedFile, content: Bytes, positions: Positions, ends: Positions, count: int) -> Tail:
    if not count:
        return tail
    return Tail(end=file.from_offset + int(ends[count - 1]), last=_mark(file, content, int(positions[count - 1])))


def _mark(file: MappedFile, content: Bytes, position: int) -> Mark:
    size = stored_length(content, position)
    return Mark(file.from_offset + position, size, zlib.crc32(content[position : position + size].tobytes()))
