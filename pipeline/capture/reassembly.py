"""Reassemble one direction of a TCP connection: from captured segments to the bytes that were sent, in order.

Rule: each byte counts once, whether it is sent again, overlaps or comes late. Offsets in the stream have 64 bits; 0 is the first byte after
the SYN, or the first captured byte if the SYN was not captured.
Missing bytes (a hole) count as lost in three cases: the receiver has acknowledged bytes after the hole, and ACKED_MICROS have passed; more
than WAITING_MAX bytes wait after the hole; or the capture ends. Bytes cut off by the snap length count as lost at once.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from typing import NamedTuple

WAITING_MAX = 8 << 20  # bytes after a hole; no window of a broker's connection is larger
ACKED_MICROS = 1_000_000
_HALF, _WHOLE = 1 << 31, 1 << 32


class CapturedPacket(NamedTuple):
    """The packet with some bytes: its number in the file, its position there in bytes, its time in microseconds."""

    number: int
    position: int
    micros: int


class StreamPiece(NamedTuple):
    """Consecutive bytes of the stream from `offset` on, or `lost` bytes, without `data`.

    `packet` is the packet after which the bytes could be read.
    """

    offset: int
    data: memoryview | bytes
    lost: int
    packet: CapturedPacket


@dataclass(frozen=True, slots=True, order=True)
class _Waiting:
    offset: int
    packet: CapturedPacket
    data: memoryview | bytes = field(compare=False)
    length: int = field(compare=False)


@dataclass(slots=True)
class Reassembly:
    """State of one direction; `next` is the offset of the next missing byte.

    `isn` is the sequence number of the byte at offset 0, None before the first segment; `from_start` whether the SYN was captured, so that
    offset 0 is the first byte sent.
    """

    next: int = 0
    isn: int | None = None
    from_start: bool = False
    _waiting: list[_Waiting] = field(default_factory=list)
    _waiting_bytes: int = 0
    _acked_since: int | None = None

    def syn(self, seq: int) -> None:
        """Process a SYN, which gives the start of the stream."""
        if self.isn is None:
            self.isn = (seq + 1) % _WHOLE
            self.from_start = True

    def is_new_connection(self, seq: int) -> bool:
        """Whether a SYN with this number starts a new connection; the SYN of the present connection may come late."""
        if self.isn is None:
            return False
        before = (self.isn - seq - 1) % _WHOLE
        return before != 0 if self.from_start else before > WAITING_MAX

    def add(self, seq: int, data: memoryview | bytes, length: int, packet: CapturedPacket) -> list[StreamPiece]:
        """Process the payload of a segment, `length` bytes of which `data` were captured; gives the pieces that can be read with it."""
        if self.isn is None:
            self.isn = seq
        offset = self._offset_of(seq)
        if offset > self.next:
            insort(self._waiting, _Waiting(offset, packet, data, length))
            self._waiting_bytes += len(data)
            return self._lose_hole() if self._waiting_bytes > WAITING_MAX else []
        pieces = self._read(offset, data, length, packet)
        return pieces + self._waiting_pieces(packet) if pieces and self._waiting else pieces

    def acked(self, ack: int, micros: int) -> list[StreamPiece]:
        """Process an acknowledgement of all bytes before `ack`; gives the pieces after a hole that now counts as lost."""
        if self._offset_of(ack) <= self.next:
            return []
        if self._acked_since is None:
            self._acked_since = micros
        return self._lose_hole() if micros - self._acked_since >= ACKED_MICROS else []

    @property
    def has_hole(self) -> bool:
        """Whether bytes wait after a hole."""
        return bool(self._waiting)

    def end(self) -> list[StreamPiece]:
        """End the stream; gives the pieces that wait after holes, and the holes as lost bytes."""
        pieces = []
        while self._waiting:
            pieces += self._lose_hole()
        return pieces

    def _offset_of(self, seq: int) -> int:
        assert self.isn is not None
        ahead = (seq - self.isn - self.next) % _WHOLE
        return self.next + (ahead if ahead < _HALF else ahead - _WHOLE)

    def _read(self, offset: int, data: memoryview | bytes, length: int, packet: CapturedPacket) -> list[StreamPiece]:
        """The new bytes of a segment that begins at or before `next`, as pieces."""
        pieces = []
        data = data[self.next - offset :]
        if len(data):
            pieces.append(StreamPiece(self.next, data, 0, packet))
            self.next += len(data)
        if offset + length > self.next:
            pieces.append(StreamPiece(self.next, b"", offset + length - self.next, packet))
            self.next = offset + length
        return pieces

    def _lose_hole(self) -> list[StreamPiece]:
        """Count the first hole as lost; gives the hole and the pieces after it."""
        first = self._waiting[0]
        hole = StreamPiece(self.next, b"", first.offset - self.next, first.packet)
        self.next = first.offset
        return [hole, *self._waiting_pieces(first.packet)]

    def _waiting_pieces(self, packet: CapturedPacket) -> list[StreamPiece]:
        """The waiting pieces that can be read now; each gets `packet` or its own packet, whichever is later."""
        pieces = []
        done = 0
        for one in self._waiting:
            if one.offset > self.next:
                break
            done += 1
            self._waiting_bytes -= len(one.data)
            packet = max(packet, one.packet)
            pieces += self._read(one.offset, one.data, one.length, packet)
        del self._waiting[:done]
        self._acked_since = None
        return pieces
