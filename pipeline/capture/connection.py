"""One TCP connection of a capture: turns packed segments into rows of the tables. Only incomplete frames are kept in memory.

Rule: a SYN with another sequence number begins a new connection between the same two ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from dpkt import tcp

from pipeline.capture.exchanges import BAD, Exchanges, Frame, Row, bad_row
from pipeline.capture.reassembly import CapturedPacket, Reassembly, StreamPiece
from pipeline.capture.segments import COLUMNS, PackedSegments, SegmentCol
from pipeline.capture.stream_frames import BadStretch, Frames, FrameStream

Found = Iterator[tuple[str, Row]]


@dataclass(slots=True)
class _Direction:
    bytes: Reassembly = field(default_factory=Reassembly)
    frames: FrameStream = field(default_factory=lambda: FrameStream(searching=True))
    pieces: list[StreamPiece] = field(default_factory=list)


@dataclass(slots=True)
class Connection:
    """State of the connections between two ends, one after the other.

    `ends` are the two ends as `address:port`, sorted; `digest` is the SHA-256 of the capture file.
    """

    ends: tuple[str, str]
    digest: str
    _number: int = 0
    _directions: tuple[_Direction, ...] = ()  # none before the first segment
    _exchanges: Exchanges = field(init=False)

    def feed(self, packed: PackedSegments) -> Found:
        """Process further segments; gives the rows that are complete with them."""
        at = 0
        payload = memoryview(packed.payload)
        for numbers in packed.matrix.reshape(-1, COLUMNS).tolist():
            data = payload[at : at + numbers[SegmentCol.CAPTURED]]
            at += len(data)
            if not self._directions or numbers[SegmentCol.FLAGS] & tcp.TH_SYN:
                yield from self._begin(numbers)
            self._segment(numbers, data)
            if numbers[SegmentCol.FLAGS] & (tcp.TH_FIN | tcp.TH_RST):
                yield from self._decoded()
                yield from self._exchanges.close(_packet(numbers))
        yield from self._decoded()

    def end(self) -> Found:
        """End the connection; gives the rows of all that still waits."""
        if not self._directions:
            return
        for direction in self._directions:
            direction.pieces += direction.bytes.end()
        yield from self._decoded()
        for number, direction in enumerate(self._directions):
            for one in direction.frames.end():
                yield self._exchanges.bad(one.offset, number, one.error, one.raw, one.packet)
        yield from self._exchanges.end()
        self._directions = ()

    def _begin(self, numbers: list[int]) -> Found:
        """Process the first segment of a connection, or a SYN, which may begin a new connection."""
        side, flags, seq = numbers[SegmentCol.DIRECTION], numbers[SegmentCol.FLAGS], numbers[SegmentCol.SEQ]
        syn = bool(flags & tcp.TH_SYN)
        if self._directions and not flags & tcp.TH_ACK and self._directions[side].bytes.is_new_connection(seq):
            yield from self.end()
        if not self._directions:
            self._number += 1
            name = "-".join(self.ends) + (f"#{self._number}" if self._number > 1 else "")
            self._exchanges = Exchanges(name, self.ends, self.digest)
            self._directions = (_Direction(), _Direction())
        if syn:
            self._directions[side].bytes.syn(seq)
            self._directions[side].frames.searching = not self._directions[side].bytes.from_start

    def _segment(self, numbers: list[int], data: memoryview) -> None:
        side, flags = numbers[SegmentCol.DIRECTION], numbers[SegmentCol.FLAGS]
        there, back = self._directions[side], self._directions[1 - side]
        if data:
            seq = numbers[SegmentCol.SEQ] + bool(flags & tcp.TH_SYN)
            there.pieces += there.bytes.add(seq, data, numbers[SegmentCol.LENGTH], _packet(numbers))
        if back.bytes.has_hole and flags & tcp.TH_ACK:
            back.pieces += back.bytes.acked(numbers[SegmentCol.ACK], numbers[SegmentCol.MICROS])

    def _decoded(self) -> Found:
        """The rows of the frames that are complete now, in the order of the packets that completed them."""
        frames: list[tuple[CapturedPacket, int, Frame]] = []
        for number, direction in enumerate(self._directions):
            pieces, direction.pieces = direction.pieces, []
            if not pieces:
                continue
            for found in direction.frames.feed(pieces):
                if isinstance(found, BadStretch):
                    yield self._exchanges.bad(found.offset, number, found.error, found.raw, found.packet)
                else:
                    yield from self._refused(found, number)
                    frames += [(frame.packet, number, frame) for frame in _decoded_frames(found)]
        frames.sort(key=lambda one: one[0].number)
        for _, number, frame in frames:
            yield from self._exchanges.take(frame, number)

    def _refused(self, found: Frames, number: int) -> Found:
        for row, error in found.columns.errors.items():
            if row < found.count and row not in found.damaged:
                frame = Frame(found.columns, row, int(found.offsets[row]), found.packets[row])
                place = f"connection {self._exchanges.connection}, sent by {self.ends[number]}, byte {frame.offset}"
                yield BAD, bad_row(frame, f"{place}: {error}")


def _packet(numbers: list[int]) -> CapturedPacket:
    return CapturedPacket(numbers[SegmentCol.NUMBER], numbers[SegmentCol.POSITION], numbers[SegmentCol.MICROS])


def _decoded_frames(found: Frames) -> Iterator[Frame]:
    """The frames whose headers are complete and can be decoded."""
    for row in range(found.count):
        if row not in found.columns.errors and found.damaged.get(row, True):
            yield Frame(found.columns, row, int(found.offsets[row]), found.packets[row], whole=row not in found.damaged)
