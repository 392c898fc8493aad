"""One direction of a TCP connection: segments as they were captured -> the bytes that were sent, in order.

Rule: bytes count once, whatever is sent again, overlaps or comes late. Places are 64-bit offsets in the stream, 0 for the first byte behind
the SYN, or for the first byte captured where the SYN was not.
A hole is given up where the receiver has acknowledged what lies behind it and a second has passed, where too much waits behind it, and at
the end: the bytes were on the wire, and the capture has not got them. What a packet has lost to the snap length is given up at once.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from typing import NamedTuple

WAITING_MAX = 8 << 20  # bytes behind a hole; no window of a broker's connection is larger
ACKED_MICROS = 1_000_000
_HALF, _WHOLE = 1 << 31, 1 << 32


class CapturedPacket(NamedTuple):
    """The packet that brought bytes: its number in the file, its place there in bytes, its time."""

    number: int
    position: int
    micros: int


class StreamPiece(NamedTuple):
    """Bytes of the stream that can be read now.

    Attributes:
        offset: of the first byte in the stream.
        data: the bytes; empty for bytes that are lost.
        lost: how many bytes are lost from `offset` on, where no `data` is.
        packet: the one with which they could be read.
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
    """The state of one direction.

    Attributes:
        next: offset of the next byte that is missing.
        isn: sequence number of the byte at offset 0; None before the first segment.
        from_start: the SYN was captured, so that offset 0 is the first byte sent.
    """

    next: int = 0
    isn: int | None = None
    from_start: bool = False
    _waiting: list[_Waiting] = field(default_factory=list)
    _waiting_bytes: int = 0
    _acked_since: int | None = None

    def syn(self, seq: int) -> None:
        """A SYN: where the stream starts."""
        if self.isn is None:
            self.isn = (seq + 1) % _WHOLE
            self.from_start = True

    def is_new_connection(self, seq: int) -> bool:
        """Whether a SYN with this number starts another connection than the one seen so far; its own may come late."""
        if self.isn is None:
            return False
        before = (self.isn - seq - 1) % _WHOLE
        return before != 0 if self.from_start else before > WAITING_MAX

    def add(self, seq: int, data: memoryview | bytes, length: int, packet: CapturedPacket) -> list[StreamPiece]:
        """A segment's payload; gives what can be read with it.

        Args:
            seq: its sequence number.
            data: what was captured of it.
            length: bytes that were sent, which may be more.
            packet: where it comes from.
        """
        if self.isn is None:
            self.isn = seq
        offset = self._offset_of(seq)
        if offset > self.next:
            insort(self._waiting, _Waiting(offset, packet, data, length))
            self._waiting_bytes += len(data)
            return self._given_up() if self._waiting_bytes > WAITING_MAX else []
        pieces = self._read(offset, data, length, packet)
        return pieces + self._behind(packet) if pieces and self._waiting else pieces

    def acked(self, ack: int, micros: int) -> list[StreamPiece]:
        """The receiver acknowledged all before `ack`; gives what can be read, now that nobody will send it again."""
        if self._offset_of(ack) <= self.next:
            return []
        if self._acked_since is None:
            self._acked_since = micros
        return self._given_up() if micros - self._acked_since >= ACKED_MICROS else []

    @property
    def has_hole(self) -> bool:
        """Whether bytes wait behind some that are missing."""
        return bool(self._waiting)

    def end(self) -> list[StreamPiece]:
        """No more segments follow; gives what waits behind holes."""
        pieces = []
        while self._waiting:
            pieces += self._given_up()
        return pieces

    def _offset_of(self, seq: int) -> int:
        assert self.isn is not None
        ahead = (seq - self.isn - self.next) % _WHOLE
        return self.next + (ahead if ahead < _HALF else ahead - _WHOLE)

    def _read(self, offset: int, data: memoryview | bytes, length: int, packet: CapturedPacket) -> list[StreamPiece]:
        """What of a segment at or before `next` is new."""
        pieces = []
        data = data[self.next - offset :]
        if len(data):
            pieces.append(StreamPiece(self.next, data, 0, packet))
            self.next += len(data)
        if offset + length > self.next:
            pieces.append(StreamPiece(self.next, b"", offset + length - self.next, packet))
            self.next = offset + length
        return pieces

    def _given_up(self) -> list[StreamPiece]:
        """Give up the first hole; what waits behind it could have been read when it came."""
        first = self._waiting[0]
        hole = StreamPiece(self.next, b"", first.offset - self.next, first.packet)
        self.next = first.offset
        return [hole, *self._behind(first.packet)]

    def _behind(self, packet: CapturedPacket) -> list[StreamPiece]:
        """What waits and can be read now, with `packet` or with its own, whichever came later."""
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
