"""The commands in the bytes of a connection, as they arrive chunk by chunk.

Broker source (4.9.3): NettyDecoder on netty's LengthFieldBasedFrameDecoder and ByteToMessageDecoder.
Rule: a frame is decoded once it is whole; one that cannot be decoded, or is too long, closes the connection.
Surprise: frames behind the bad one that came in the same chunk are decoded all the same, and the broker acts on them; a length too great
swallows the rest of the chunk. A value of two gigabytes in ROCKETMQ ext fields is an Error, which the decoder does not catch: the
connection is left to the handlers behind it, and the rest of the chunk waits for the next one.
No command runs this decoder: captures are read by `frame_search`. It is the rule in full that recorded connections are checked against.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from store_format.remoting.command import RemotingCommand
from store_format.remoting.errors import OUT_OF_MEMORY, FrameError
from store_format.remoting.frame import FRAME_MAX_LENGTH, LENGTH_FIELD, decode_command, too_long

_LENGTH = struct.Struct(">I")


@dataclass(slots=True)
class NettyDecoder:
    """The decoder of one direction of a connection.

    It holds at most one frame that is not whole yet: bytes that arrived, never a buffer of a length that a frame only claims.

    Attributes:
        open: whether the connection still is; chunks that come later are not read.
        errors: what closed it, and what else was bad in that chunk; positions count from the connection's first byte.
    """

    frame_max_length: int = FRAME_MAX_LENGTH
    open: bool = True
    errors: list[FrameError] = field(default_factory=list)
    _held: bytearray = field(default_factory=bytearray)
    _start: int = 0

    def feed(self, chunk: bytes) -> list[RemotingCommand]:
        """The commands that become whole with this chunk, in order."""
        if not self.open:
            return []
        self._held += chunk
        commands: list[RemotingCommand] = []
        with memoryview(self._held) as held:
            at = self._decode(held, commands)
        self._drop(at)
        return commands

    def _decode(self, held: memoryview, commands: list[RemotingCommand]) -> int:
        """Decode what is whole; where the first frame begins that is not."""
        at = 0
        while len(held) - at >= LENGTH_FIELD:
            (length,) = _LENGTH.unpack_from(held, at)
            end = at + LENGTH_FIELD + length
            if length + LENGTH_FIELD > self.frame_max_length:
                self._refuse(too_long(length), at)
                at = min(end, len(held))
                continue
            if end > len(held):
                break
            try:
                commands.append(decode_command(held[at + LENGTH_FIELD : end]))
            except FrameError as error:
                self._refuse(error, at)
                if error.exception == OUT_OF_MEMORY:
                    at = end
                    break
            at = end
        return at

    def _drop(self, count: int) -> None:
        """Forget the bytes that were decoded, and all if the connection is closed."""
        del self._held[: count if self.open else len(self._held)]
        self._start += count

    def _refuse(self, error: FrameError, at: int) -> None:
        self.open = self.open and error.exception == OUT_OF_MEMORY
        self.errors.append(error.moved(self._start + at))
