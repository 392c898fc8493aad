"""The frames in one direction of a connection, each with the packet that made it whole.

Rule: bytes lost inside a frame whose length is known cost that frame its body, or the whole of it, and no other. After other lost bytes
the stream is looked through for a place where a frame may begin; so is a stream whose beginning was not captured, and one in which frame
after frame is bad. What lies before that place is told as one bad stretch.
The time of a frame is that of the packet that completes it, which need not be the one that brings its last byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pipeline.capture.reassembly import CapturedPacket, StreamPiece
from pipeline.schema.capture_tables import RAW_BYTES_MAX
from store_format.remoting.frame import FRAME_MAX_LENGTH, HEADER_START, LENGTH_FIELD, frame_length, header_length
from store_format.remoting.frame_columns import FrameColumns, frame_columns
from store_format.remoting.frame_search import find_frame

_BAD_IN_A_ROW = 16  # more bad frames than this: the stream is none of frames, or not from here on
_HEADER_SHOWN = 512
_HELD_MAX = 2 * FRAME_MAX_LENGTH
_NOT_CAPTURED = "expected all bytes of the stream, found that some were not captured"
_NO_FRAME = "expected a frame, found bytes that are none"


@dataclass(frozen=True, slots=True)
class Frames:
    """Some frames of a stream.

    Attributes:
        columns: the frames decoded, `count` of them.
        offsets: where each begins in the stream.
        packets: with which each was whole.
        damaged: rows of which bytes are lost, which are zeros here; False where the header is among them.
    """

    columns: FrameColumns
    count: int
    offsets: NDArray[np.int64]
    packets: list[CapturedPacket]
    damaged: dict[int, bool]


@dataclass(frozen=True, slots=True)
class BadStretch:
    """Bytes of a stream that are no frame: where they begin, why, the first of them, and the packet that tells where in the file."""

    offset: int
    error: str
    raw: bytes
    packet: CapturedPacket


@dataclass(slots=True)
class FrameStream:
    """The state of one direction; it holds the frame that is not whole yet, and nothing else.

    Attributes:
        searching: whether it is not known where a frame begins.
    """

    searching: bool = False
    _held: bytearray = field(default_factory=bytearray)
    _start: int = 0  # offset of the first byte held
    _needed: int = LENGTH_FIELD  # bytes to be held before another frame can be whole
    _ends: list[int] = field(default_factory=list)  # offset behind each piece of the bytes held
    _packets: list[CapturedPacket] = field(default_factory=list)
    _holes: list[tuple[int, int]] = field(default_factory=list)  # lost bytes, zeros among those held: first and behind the last, as offsets
    _skipped: BadStretch | None = None
    _lost: int = 0

    def feed(self, pieces: list[StreamPiece]) -> Iterator[Frames | BadStretch]:
        """The frames that become whole with some pieces, which follow those fed before, and what is bad."""
        for piece in pieces:
            if piece.lost:
                if self.searching or len(self._held) + piece.lost > _HELD_MAX:
                    yield from self._decode()
                if self.searching or piece.lost > FRAME_MAX_LENGTH:
                    self._lose(piece)
                    continue
                self._holes.append((piece.offset, piece.offset + piece.lost))
            self._held += piece.data or bytes(piece.lost)
            self._ends.append(piece.offset + len(piece.data) + piece.lost)
            self._packets.append(piece.packet)
        yield from self._decode()

    def end(self) -> Iterator[BadStretch]:
        """Nothing follows; what is held is no frame."""
        if self._held and not self.searching:
            found = f"{len(self._held)} up to the end of what was captured of the connection"
            yield BadStretch(self._start, f"expected a frame of {self._needed} bytes, found {found}", self._shown(), self._packets[-1])
        elif self._held:
            self._skip(len(self._held))
        if self._skipped is not None:
            yield self._told()

    def _decode(self) -> Iterator[Frames | BadStretch]:
        while self._held and (self.searching or len(self._held) >= self._needed):
            buffer = np.frombuffer(bytes(self._held), np.uint8)
            if self.searching:
                at, found = find_frame(buffer, 0)
                self._skip(at)
                if not found:
                    return
                if any(first < self._start + LENGTH_FIELD for first, _ in self._holes):  # it looks like one, without its first bytes
                    self._skip(1)
                    continue
                self.searching = False
                if self._skipped is not None:
                    yield self._told()
                buffer = buffer[at:]
            columns = frame_columns(buffer)
            holes = [(first - self._start, after - self._start) for first, after in self._holes]
            damaged = _damaged(columns, holes)
            count, end = _believed(columns, damaged)
            blind = _blind(columns, holes)
            if blind is not None and blind[0] <= count:
                count, end = blind[0], blind[1]
            damaged = {row: has_header for row, has_header in damaged.items() if row < count}
            if count:
                yield from self._told_of_damage(columns, damaged)
                yield self._frames(columns, count, end, damaged)
            self._drop(end)
            self.searching = blind is not None or count < len(columns.starts) or columns.stopped_by is not None
            if self.searching:
                self._skip(1)
            elif not count:
                self._needed = frame_length(self._held)
                return

    def _frames(self, columns: FrameColumns, count: int, end: int, damaged: dict[int, bool]) -> Frames:
        starts = columns.starts[:count]
        ends = np.append(starts[1:], end) + self._start
        places = np.searchsorted(np.array(self._ends, np.int64), ends)
        return Frames(columns, count, starts + self._start, [self._packets[place] for place in places.tolist()], damaged)

    def _told_of_damage(self, columns: FrameColumns, damaged: dict[int, bool]) -> Iterator[BadStretch]:
        for row, has_header in damaged.items():
            start, length = int(columns.starts[row]), int(columns.lengths[row])
            what = "the body" if has_header else "the header"
            error = f"expected all bytes of a frame of {length}, found that some of {what} were not captured"
            raw = columns.buffer[start : start + min(length, _HEADER_SHOWN)].tobytes()
            place = int(np.searchsorted(self._ends, start + self._start, "right"))
            yield BadStretch(start + self._start, error, raw, self._packets[place])

    def _lose(self, piece: StreamPiece) -> None:
        """Bytes are lost where nobody knows how frames lie, or too many."""
        if self._skipped is None:
            place, packet = (self._start, self._packets[0]) if self._held else (piece.offset, piece.packet)
            self._skipped = BadStretch(place, _NOT_CAPTURED, self._shown(), packet)
        self._lost += piece.lost
        self._drop(len(self._held))
        self._start = piece.offset + piece.lost
        self.searching = True

    def _skip(self, count: int) -> None:
        """Go on behind bytes that are no frame."""
        if count and self._skipped is None:
            lost = any(first <= self._start + count - 1 for first, _ in self._holes)
            self._skipped = BadStretch(self._start, _NOT_CAPTURED if lost else _NO_FRAME, self._shown()[:count], self._packets[0])
        behind = self._start + count
        self._lost += sum(min(after, behind) - max(first, self._start) for first, after in self._holes if first < behind)
        self._drop(count)

    def _told(self) -> BadStretch:
        """The stretch that was skipped, now that it is known where it ends."""
        skipped = self._skipped
        assert skipped is not None
        lost = f", of them {self._lost} not captured" if self._lost else ""
        self._skipped, self._lost = None, 0
        found = f"{skipped.error}; {self._start - skipped.offset} bytes of the stream were skipped{lost}"
        return BadStretch(skipped.offset, found, skipped.raw, skipped.packet)

    def _shown(self) -> bytes:
        return bytes(self._held[:RAW_BYTES_MAX])

    def _drop(self, count: int) -> None:
        del self._held[:count]
        self._start += count
        self._needed = LENGTH_FIELD
        done = 0
        while done < len(self._ends) and self._ends[done] <= self._start:
            done += 1
        del self._ends[:done]
        del self._packets[:done]
        self._holes = [(max(first, self._start), after) for first, after in self._holes if after > self._start]


def _damaged(columns: FrameColumns, holes: list[tuple[int, int]]) -> dict[int, bool]:
    """The frames in which bytes are lost, and whether they have their headers nevertheless."""
    found: dict[int, bool] = {}
    for first, after in holes:
        at = int(np.searchsorted(columns.starts, first, side="right")) - 1
        for row in range(max(at, 0), int(np.searchsorted(columns.starts, after))):
            start, end = int(columns.starts[row]), int(columns.starts[row] + columns.lengths[row])
            if end > first:
                header = header_length(columns.buffer[start:end])
                found[row] = found.get(row, True) and first >= start + HEADER_START + header
    return found


def _blind(columns: FrameColumns, holes: list[tuple[int, int]]) -> tuple[int, int] | None:
    """The first frame whose length is not known, as its row and start; the one that is not whole yet counts, too."""
    starts = np.append(columns.starts, columns.consumed)
    for first, after in holes:
        row = int(np.searchsorted(starts, first - LENGTH_FIELD, side="right"))  # the first that begins less than a length before the hole
        if row < len(starts) and starts[row] < after:
            return row, int(starts[row])
    return None


def _believed(columns: FrameColumns, damaged: dict[int, bool]) -> tuple[int, int]:
    """How many of the frames are believed to be some, and where the last of them ends: all before a long run of bad ones."""
    run = 0
    errors = columns.errors.keys() - damaged.keys()
    for row in sorted(errors):
        run = run + 1 if row - 1 in errors else 1
        if run == _BAD_IN_A_ROW:
            first = row - run + 1
            return first, int(columns.starts[first])
    return len(columns.starts), columns.consumed
