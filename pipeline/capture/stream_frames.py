"""The frames in one direction of a connection, each with the packet that made it whole.

Rule: frames follow each other without gaps, so after lost bytes the stream is looked through for a place where one may begin; so is a
stream whose beginning was not captured, and one in which frame after frame is bad. What lies before that place is told as one bad stretch.
The time of a frame is that of the packet that completes it, which need not be the one that brings its last byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pipeline.capture.packets import RAW_SHOWN
from pipeline.capture.reassembly import Captured, Piece
from store_format.remoting.frame_columns import FrameColumns, frame_columns
from store_format.remoting.frame_search import find_frame

_BAD_IN_A_ROW = 16  # more bad frames than this: the stream is none of frames, or not from here on
_LENGTH_FIELD = 4


@dataclass(frozen=True, slots=True)
class Frames:
    """Some frames of a stream.

    Attributes:
        columns: the frames decoded, `count` of them.
        offsets: where each begins in the stream.
        packets: with which each was whole.
    """

    columns: FrameColumns
    count: int
    offsets: NDArray[np.int64]
    packets: list[Captured]


@dataclass(frozen=True, slots=True)
class BadStretch:
    """Bytes of a stream that are no frame: where they begin, why, the first of them, and the packet that tells where in the file."""

    offset: int
    error: str
    raw: bytes
    packet: Captured


@dataclass(slots=True)
class FrameStream:
    """The state of one direction; it holds the frame that is not whole yet, and nothing else.

    Attributes:
        searching: whether it is not known where a frame begins.
    """

    searching: bool = False
    _held: bytearray = field(default_factory=bytearray)
    _start: int = 0  # offset of the first byte held
    _needed: int = _LENGTH_FIELD  # bytes to be held before another frame can be whole
    _ends: list[int] = field(default_factory=list)  # offset behind each piece of the bytes held
    _packets: list[Captured] = field(default_factory=list)
    _skipped: BadStretch | None = None
    _lost: int = 0

    def feed(self, pieces: list[Piece]) -> Iterator[Frames | BadStretch]:
        """The frames that become whole with some pieces, which follow those fed before, and what is bad."""
        for piece in pieces:
            if piece.lost:
                yield from self._decode()
                self._lose(piece)
                continue
            self._held += piece.data
            self._ends.append(piece.offset + len(piece.data))
            self._packets.append(piece.packet)
        yield from self._decode()

    def end(self) -> Iterator[BadStretch]:
        """Nothing follows; what is held is no frame."""
        if self._held and not self.searching:
            found = f"{len(self._held)} up to the end of what was captured of the connection"
            yield BadStretch(self._start, f"expected a frame of {self._needed} bytes, found {found}", self._shown(0), self._packets[-1])
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
                self.searching = False
                if self._skipped is not None:
                    yield self._told()
                buffer = buffer[at:]
            columns = frame_columns(buffer)
            count, end = _believed(columns)
            if count:
                yield self._frames(columns, count, end)
            self._drop(end)
            self.searching = count < len(columns.starts) or columns.stopped_by is not None
            if self.searching:
                self._skip(1)
            elif not count:
                self._needed = (
                    _LENGTH_FIELD + int.from_bytes(self._held[:_LENGTH_FIELD], "big") if len(self._held) >= _LENGTH_FIELD else _LENGTH_FIELD
                )
                return

    def _frames(self, columns: FrameColumns, count: int, end: int) -> Frames:
        starts = columns.starts[:count]
        ends = np.append(starts[1:], end) + self._start
        places = np.searchsorted(np.array(self._ends, np.int64), ends)
        return Frames(columns, count, starts + self._start, [self._packets[place] for place in places.tolist()])

    def _lose(self, piece: Piece) -> None:
        """Bytes are lost: the frame that they belong to is, too."""
        if self._held or self._skipped is None:
            what = "expected all bytes of the stream, found that some were not captured"
            begun = BadStretch(
                self._start if self._held else piece.offset, what, self._shown(0), self._packets[0] if self._held else piece.packet
            )
            self._skipped = self._skipped or begun
        self._lost += piece.lost
        self._drop(len(self._held))
        self._start = piece.offset + piece.lost
        self.searching = True

    def _skip(self, count: int) -> None:
        """Go on behind bytes that are no frame."""
        if count and self._skipped is None:
            what = "expected a frame, found bytes that are none"
            self._skipped = BadStretch(self._start, what, self._shown(0)[:count], self._packets[0])
        self._drop(count)

    def _told(self) -> BadStretch:
        """The stretch that was skipped, now that it is known where it ends."""
        skipped = self._skipped
        assert skipped is not None
        lost = f", of them {self._lost} not captured" if self._lost else ""
        self._skipped, self._lost = None, 0
        found = f"{skipped.error}; {self._start - skipped.offset} bytes of the stream were skipped{lost}"
        return BadStretch(skipped.offset, found, skipped.raw, skipped.packet)

    def _shown(self, at: int) -> bytes:
        return bytes(self._held[at : at + RAW_SHOWN])

    def _drop(self, count: int) -> None:
        del self._held[:count]
        self._start += count
        self._needed = _LENGTH_FIELD
        done = 0
        while done < len(self._ends) and self._ends[done] <= self._start:
            done += 1
        del self._ends[:done]
        del self._packets[:done]


def _believed(columns: FrameColumns) -> tuple[int, int]:
    """How many of the frames are believed to be some, and where the last of them ends: all before a long run of bad ones."""
    run = 0
    for row in sorted(columns.errors):
        run = run + 1 if row - 1 in columns.errors else 1
        if run == _BAD_IN_A_ROW:
            first = row - run + 1
            return first, int(columns.starts[first])
    return len(columns.starts), columns.consumed
