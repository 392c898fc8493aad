"""Where the next frame begins in bytes that nobody knows the beginning of: behind a hole of a capture, or behind junk.

Broker source (4.9.3): RemotingCommand.encode, for what the first bytes of a frame look like.
Rule: a frame may begin where a length, a type and a header length fit each other and the header, once it is whole, can be decoded. The
broker itself never looks: it closes the connection.
"""

from __future__ import annotations

from typing import Final

from store_format.big_endian import Bytes, int32_at
from store_format.compiled import compiled
from store_format.remoting.errors import FrameError
from store_format.remoting.frame import FRAME_MAX_LENGTH, LENGTH_FIELD, decode_header

HEADER_MAX: Final = 1 << 16  # the broker's longest header is one of a message with 32 KiB of properties
_HEADER_AT: Final = 8
_LIMIT: Final = FRAME_MAX_LENGTH
_SHORTEST: Final = 2  # {}
_FIXED: Final = 21  # a ROCKETMQ header without remark and ext fields
_OPEN, _CLOSE, _BLANK = 0x7B, 0x7D, 0x20
_UNKNOWN, _NO, _MAYBE = 0, 1, 2


def find_frame(buffer: Bytes, start: int) -> tuple[int, bool]:
    """The first place from `start` on where a frame may begin.

    Returns:
        The place, and whether its header was there and could be decoded; if it was not, all before the place is no beginning, and more
        bytes will tell about the place.
    """
    at = start
    while True:
        at, whole = _next_candidate(buffer, at)
        if not whole:
            return at, False
        try:
            decode_header(buffer[at + LENGTH_FIELD : at + _HEADER_AT + _header_length(buffer, at)].data)
        except FrameError:
            at += 1
            continue
        return at, True


@compiled
def _header_length(buffer, at):  # type: ignore[no-untyped-def]
    return int32_at(buffer, at + 4) & 0xFFFFFF


@compiled
def _next_candidate(buffer, at):  # type: ignore[no-untyped-def]
    """The first place that is no wrong beginning, and whether its header is whole."""
    while at < len(buffer):
        judged = _judge(buffer, at)
        if judged != _NO:
            return at, judged == _MAYBE
        at += 1
    return at, False


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
