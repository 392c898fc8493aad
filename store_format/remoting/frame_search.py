"""Finds the next frame in bytes that may begin inside a frame: after a hole in a capture, or after bytes that are no frame.

Broker source (4.9.3): RemotingCommand.encode, for the first bytes of a frame.
Rule: a frame may begin where the length, the header's type and the header's length agree, and the header can be decoded once all its bytes
are there. The broker itself does not search: it closes the connection.
"""

from __future__ import annotations

from typing import Final

from store_format.big_endian import Bytes, int32_at
from store_format.compiled import compiled
from store_format.remoting.errors import FrameError
from store_format.remoting.frame import FRAME_MAX_LENGTH, LENGTH_FIELD, decode_header, header_length

HEADER_MAX: Final = 1 << 16  # bytes; the broker's longest header has a message's 32 KiB of properties
_HEADER_AT: Final = 8
_LIMIT: Final = FRAME_MAX_LENGTH
_SHORTEST: Final = 2  # {}
_FIXED: Final = 21  # a ROCKETMQ header without remark and ext fields
_OPEN, _CLOSE, _BLANK = 0x7B, 0x7D, 0x20
_UNKNOWN, _NO, _MAYBE = 0, 1, 2


def find_frame(buffer: Bytes, start: int) -> tuple[int, bool]:
    """The first position from `start` on at which a frame may begin, and whether the header there is complete and could be decoded.

    If the header is not complete, no frame begins before the position, and more bytes are needed to decide about it.
    """
    at = start
    while True:
        at, whole = _next_candidate(buffer, at)
        if not whole:
            return at, False
        try:
            decode_header(buffer[at + LENGTH_FIELD : at + _HEADER_AT + header_length(buffer[at:])].data)
        except FrameError:
            at += 1
            continue
        return at, True


@compiled
def _judge(buffer, at):  # type: ignore[no-untyped-def]
    left = len(buffer) - at
    if left < _HEADER_AT + 1:
        return _UNKNOWN
    length = int32_at(buffer, at)
    word = int32_at(buffer, at + 4)
    kind, header = word >> 24, word & 0xFFFFFF
    if (
        length < 4 + _SHORTEST
        or length + 4 > _LIMIT
        or kind < 0
        or kind > 1
        or header < _SHORTEST
        or header > HEADER_MAX
        or header + 4 > length
    ):
        return _NO
    if kind == 0 and buffer[at + _HEADER_AT] != _OPEN:
        return _NO
    if kind == 1 and header < _FIXED:
        return _NO
    if left < _HEADER_AT + header:
        return _UNKNOWN
    last = buffer[at + _HEADER_AT + header - 1]
    return _NO if kind == 0 and last != _CLOSE and last > _BLANK else _MAYBE


@compiled
def _next_candidate(buffer, at):  # type: ignore[no-untyped-def]
    """The first position from `at` on at which a frame may begin, and whether all bytes of its header are there."""
    while at < len(buffer):
        judged = _judge(buffer, at)
        if judged != _NO:
            return at, judged == _MAYBE
        at += 1
    return at, False
