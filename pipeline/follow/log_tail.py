"""What a running broker has appended to its commit log: found by looking, as nobody says how far it has written.

Broker source (4.9.3): DefaultMessageStore.ReputMessageService.doReput, which dispatches record after record and rolls to the next file at
a BLANK; CommitLog.DefaultAppendMessageCallback, which copies a record into the file as one buffer.
Rule: a record is there when another one, or a BLANK, stands behind it, or when two looks found the same bytes. What is half copied is a
record whose lengths do not add up, whose body has another CRC-32, whose last text ends in zeros, or that changes.
Surprises: a broker that restarts after a kill may cut the log and write other messages where the old ones stood; one that cleans deletes
files that nobody has read yet. Both are seen by the records that were read last: they are kept, with their CRC-32.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from pipeline.files.store_files import StoreFiles
from store_format.big_endian import Bytes, Positions
from store_format.files.mapped_files import MappedFile, is_mapped_file_name
from store_format.log.commit_log import WalkEnd, first_bad_body, walk
from store_format.record.record_columns import locate
from store_format.record.record_length import stored_length
from store_format.store_paths import COMMIT_LOG

# why the rows that were read are no longer those of the log
TRUNCATED, CLEANED = "TRUNCATED", "CLEANED"
_RECORDS_A_WALK = 16_384


@dataclass(frozen=True, slots=True)
class Mark:
    """A record that was read: its offset in the log, its length and its CRC-32."""

    offset: int
    size: int
    crc32: int

    @property
    def end(self) -> int:
        """Offset behind it."""
        return self.offset + self.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that makes the rows read so far worthless from some offset on."""

    kind: str
    physic_offset: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Records that lie together in one file, from position `start` to `end`."""

    file: MappedFile
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """What one look found behind an offset.

    Attributes:
        end: offset behind the last record that is there.
        last: that record, None where there is none.
        newest: a record behind it that counts when the next look finds the same.
    """

    end: int
    last: Mark | None = None
    newest: Mark | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowOffset:
    """How far a stream has come: what Spark keeps in its checkpoint.

    Attributes:
        physic_offset: behind the last record.
        min_offset: of the log, -1 while it has no file.
        mark: the last record, None at the start of a log.
        epoch: how many events there were.
        event: the last of them.
        config: what the folder of the config files showed.
    """

    physic_offset: int
    min_offset: int
    mark: Mark | None = None
    epoch: int = 0
    event: Event | None = None
    config: str = ""

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @staticmethod
    def of(value: dict[str, Any]) -> FollowOffset:
        """What `as_dict` made of one."""
        mark, event = value["mark"], value["event"]
        return FollowOffset(**value | {"mark": mark and Mark(**mark), "event": event and Event(**event)})


@dataclass(frozen=True, slots=True)
class LogTail:
    """The commit log of a store that grows; `file_size` is the length of its files."""

    store: StoreFiles
    file_size: int

    def files(self) -> list[MappedFile]:
        """Its files, in order. One that the broker is about to make may still be too short: it is none yet."""
        names = [entry for entry in self.store.folder(COMMIT_LOG) if is_mapped_file_name(entry.name)]
        return [
            MappedFile(name=entry.name, from_offset=int(entry.name), length=entry.length, wrote=entry.length, mtime_ms=entry.mtime_ms)
            for entry in names
            if entry.length == self.file_size
        ]

    def lost(self, at: FollowOffset) -> Event | None:
        """What happened to the rows that were read so far: whether the log has lost some of them, or writes over them."""
        files = self.files()
        first = files[0].from_offset if files else at.min_offset
        if at.min_offset >= 0 and first != at.min_offset:
            text = f"the log begins at {first} now, it began at {at.min_offset}"
            return Event(kind=CLEANED, physic_offset=first, text=text)
        if at.mark is None or self._crc32(files, at.mark) == at.mark.crc32:
            return None
        text = f"the record at {at.mark.offset} is no longer the one that was read: the log was cut, and written on"
        return Event(kind=TRUNCATED, physic_offset=at.mark.offset, text=text)

    def look(self, start: int, bytes_max: int, known: Mark | None) -> Tail:
        """Find the records behind `start`.

        Args:
            start: offset of the first of them.
            bytes_max: of all of them, unless the first one alone is longer.
            known: the record at the end of the log as the look before found it.
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
        """The end of the log, found from the start of the last file that holds anything."""
        used = [file for file in self.files() if _begins(self.store.part(0, 8, COMMIT_LOG, file.name), 0)]
        return self.look(used[-1].from_offset, self.file_size, None) if used else Tail(end=0)

    def pieces(self, start: int, end: int) -> Iterator[Piece]:
        """Where the records between two offsets lie, in pieces of some thousand records."""
        for file, _, positions, stop, _ in self._walks(start):
            inside = positions[positions + file.from_offset < end]
            if len(inside):
                behind = int(positions[len(inside)]) if len(inside) < len(positions) else stop
                yield Piece(file=file, start=int(inside[0]), end=behind)
            if len(inside) < len(positions) or file.from_offset + stop >= end:
                return

    def _walks(self, start: int) -> Iterator[tuple[MappedFile, Bytes, Positions, int, bool]]:
        """Runs of records: their file, its bytes, their positions, where the last one ends, and whether anything stands behind it."""
        for file in self.files():
            if file.end <= start:
                continue
            content = self.store.content(COMMIT_LOG, file.name)
            at = max(start - file.from_offset, 0)
            ended: WalkEnd | None = None
            while ended is None:
                part = walk(content, at, file.length, _RECORDS_A_WALK)
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
    """Whether the record at a position shows no sign of a copy that has not come to its end."""
    if first_bad_body(content, position) == 0:
        return False
    parts = locate(content, position)
    last = parts.properties if parts.properties.lengths[0] > 0 else parts.topic
    return bool(content[last.starts[0] + last.lengths[0] - 1])


def _begins(content: Bytes, at: int) -> bool:
    """Whether a further record has been begun at a position."""
    return at + 8 <= len(content) and bool(content[at : at + 8].any())


def _taken(tail: Tail, file: MappedFile, content: Bytes, positions: Positions, ends: Positions, count: int) -> Tail:
    if not count:
        return tail
    return Tail(end=file.from_offset + int(ends[count - 1]), last=_mark(file, content, int(positions[count - 1])))


def _mark(file: MappedFile, content: Bytes, position: int) -> Mark:
    size = stored_length(content, position)
    return Mark(file.from_offset + position, size, zlib.crc32(content[position : position + size].tobytes()))
