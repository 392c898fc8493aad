"""Find the frames in one direction of a connection, each with the packet that completed it.

Rule: bytes lost inside a frame of known length damage only this frame. After other lost bytes, the stream is searched for the next position
where a frame may begin. The same is done in a stream whose start was not captured, and after _BAD_IN_A_ROW bad frames. The bytes before
that position are reported as one bad stretch.
The time of a frame is that of the packet that completes it, which need not be the packet with the frame's last byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pipeline.capture.reassembly import CapturedPacket, StreamPiece
from pipeline.schema.capture_tables import RAW_BYTES_MAX
from store_format.big_endian import Bytes
from store_format.remoting.frame import FRAME_MAX_LENGTH, HEADER_START, LENGTH_FIELD, frame_length, header_length
from store_format.remoting.frame_columns import MAX_FRAMES, FrameColumns, frame_columns, frame_starts
from store_format.remoting.frame_search import find_frame

_BAD_IN_A_ROW = 16  # after this many bad frames, the stream is searched for the next frame
_HEADER_SHOWN = 512
_HELD_MAX = 2 * FRAME_MAX_LENGTH
_NOT_CAPTURED = "expected all bytes of the stream, found that some were not captured"
_NO_FRAME = "expected a frame, found bytes that are none"


@dataclass(frozen=True, slots=True)
class Frames:
    """Complete frames of a stream: the first `count` rows of `columns`, each with its offset in the stream.

    `packets` has the packet that completed each frame. `damaged` has the rows of frames with lost bytes (zeros in `columns`), each with
    whether its header is complete.
    """

    columns: FrameColumns
    count: int
    offsets: NDArray[np.int64]
    packets: list[CapturedPacket]
    damaged: dict[int, bool]


@dataclass(frozen=True, slots=True)
class BadStretch:
    """Bytes of a stream that are no frame: their offset, the reason, the first bytes, and the packet that has them."""

    offset: int
    error: str
    raw: bytes
    packet: CapturedPacket


@dataclass(slots=True)
class FrameStream:
    """State of one direction; only the incomplete frame is in memory. `searching`: the next start of a frame is unknown."""

    searching: bool = False
    _held: bytearray = field(default_factory=bytearray)
    _start: int = 0  # stream offset of the first byte in _held
    _needed: int = LENGTH_FIELD  # bytes that must be in _held before another frame can be complete
    _ends: list[int] = field(default_factory=list)  # stream offset of the end of each piece in _held
    _packets: list[CapturedPacket] = field(default_factory=list)
    _holes: list[tuple[int, int]] = field(default_factory=list)  # lost bytes, zeros in _held: stream offsets of start and end
    _skipped: BadStretch | None = None
    _lost: int = 0

    def feed(self, pieces: list[StreamPiece]) -> Iterator[Frames | BadStretch]:
        """Process the next pieces of the stream; gives the frames that are complete with them, and bad stretches."""
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
        """End the stream; gives the incomplete frame and skipped bytes as bad stretches."""
        if self._held and not self.searching:
            found = f"{len(self._held)} up to the end of what was captured of the connection"
            yield BadStretch(self._start, f"expected a frame of {self._needed} bytes, found {found}", self._shown(), self._packets[-1])
        elif self._held:
            self._skip(len(self._held))
        if self._skipped is not None:
            yield self._skipped_stretch()

    def _decode(self) -> Iterator[Frames | BadStretch]:
        while self._held and (self.searching or len(self._held) >= self._needed):
            buffer = np.frombuffer(bytes(self._held), np.uint8)
            if self.searching:
                at, found = find_frame(buffer, 0)
                self._skip(at)
                if not found:
                    return
                if any(first < self._start + LENGTH_FIELD for first, _ in self._holes):  # looks like a frame, but its first bytes are lost
                    self._skip(1)
                    continue
                self.searching = False
                if self._skipped is not None:
                    yield self._skipped_stretch()
                buffer = buffer[at:]
            holes = [(first - self._start, after - self._start) for first, after in self._holes]
            # bad frames with lost bytes do not show that the stream has something else than frames
            bad_in_a_row = None if holes else _BAD_IN_A_ROW
            columns = frame_columns(buffer, max_frames=_frames_before_blind(buffer, holes), bad_in_a_row=bad_in_a_row)
            damaged = _damaged(columns, holes)
            count, end = _before_bad_run(columns, damaged)
            blind = _blind(np.append(columns.starts, columns.consumed), holes)
            if blind is not None and blind[0] <= count:
                count, end = blind[0], blind[1]
            damaged = {row: has_header for row, has_header in damaged.items() if row < count}
            if count:
                yield from self._damage_reports(columns, damaged)
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

    def _damage_reports(self, columns: FrameColumns, damaged: dict[int, bool]) -> Iterator[BadStretch]:
        for row, has_header in damaged.items():
            start, length = int(columns.starts[row]), int(columns.lengths[row])
            what = "the body" if has_header else "the header"
            error = f"expected all bytes of a frame of {length}, found that some of {what} were not captured"
            raw = columns.buffer[start : start + min(length, _HEADER_SHOWN)].tobytes()
            place = int(np.searchsorted(self._ends, start + self._start, "right"))
            yield BadStretch(start + self._start, error, raw, self._packets[place])

    def _lose(self, piece: StreamPiece) -> None:
        """Process lost bytes that are too many, or are lost while searching: the search starts again after them."""
        if self._skipped is None:
            place, packet = (self._start, self._packets[0]) if self._held else (piece.offset, piece.packet)
            self._skipped = BadStretch(place, _NOT_CAPTURED, self._shown(), packet)
        self._lost += piece.lost
        self._drop(len(self._held))
        self._start = piece.offset + piece.lost
        self.searching = True

    def _skip(self, count: int) -> None:
        """Skip bytes that are no frame."""
        if count and self._skipped is None:
            lost = any(first <= self._start + count - 1 for first, _ in self._holes)
            self._skipped = BadStretch(self._start, _NOT_CAPTURED if lost else _NO_FRAME, self._shown()[:count], self._packets[0])
        end = self._start + count
        self._lost += sum(min(after, end) - max(first, self._start) for first, after in self._holes if first < end)
        self._drop(count)

    def _skipped_stretch(self) -> BadStretch:
        """The skipped stretch, whose end is known now."""
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
    """The rows of frames with lost bytes, and whether the header of each is complete."""
    found: dict[int, bool] = {}
    for first, after in holes:
        at = int(np.searchsorted(columns.starts, first, side="right")) - 1
        for row in range(max(at, 0), int(np.searchsorted(columns.starts, after))):
            start, end = int(columns.starts[row]), int(columns.starts[row] + columns.lengths[row])
            if end > first:
                header = header_length(columns.buffer[start:end])
                found[row] = found.get(row, True) and first >= start + HEADER_START + header
    return found


def _frames_before_blind(buffer: Bytes, holes: list[tuple[int, int]]) -> int:
    """The number of frames before a lost length field: four bytes of a hole look like an empty frame, and refusing many takes long."""
    blind = _blind(frame_starts(buffer), holes) if holes else None
    return MAX_FRAMES if blind is None else blind[0]


def _blind(starts: NDArray[np.int64], holes: list[tuple[int, int]]) -> tuple[int, int] | None:
    """Row and start of the first frame whose length field has lost bytes; None if there is none.

    `starts` are the starts of all frames, and of the incomplete frame after them.
    """
    for first, after in holes:
        row = int(np.searchsorted(starts, first - LENGTH_FIELD, side="right"))  # first start less than a length field before the hole
        if row < len(starts) and starts[row] < after:
            return row, int(starts[row])
    return None


def _before_bad_run(columns: FrameColumns, damaged: dict[int, bool]) -> tuple[int, int]:
    """The number of frames before _BAD_IN_A_ROW consecutive bad frames (all frames, if there are none), and the end of the last one."""
    run = 0
    errors = columns.errors.keys() - damaged.keys()
    for row in sorted(errors):
        run = run + 1 if row - 1 in errors else 1
        if run == _BAD_IN_A_ROW:
            first = row - run + 1
            return first, int(columns.starts[first])
    return len(columns.starts), columns.consumed
