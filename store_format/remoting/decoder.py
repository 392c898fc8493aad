"""Decodes the commands in the bytes of a connection, chunk by chunk.

Broker source (4.9.3): NettyDecoder on netty's LengthFieldBasedFrameDecoder and ByteToMessageDecoder.
Rule: a frame is decoded once all its bytes have arrived; a frame that cannot be decoded, or is too long, closes the connection.
Surprise: frames after the bad one in the same chunk are still decoded, and the broker acts on them; a length that is too great discards the
rest of the chunk. A value of two gigabytes in ROCKETMQ ext fields is an Error, which the decoder does not catch: the next handlers get the
connection, and the rest of the chunk waits for the next chunk.
No command of pullsim runs this decoder, since `frame_search` reads captures. Tests compare recorded connections with it.
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
    """The decoder of one direction of a connection; later chunks of a closed one are ignored.

    It holds at most the bytes of one incomplete frame, and never allocates the length that a frame claims. `errors` has the error that
    closed the connection, and other errors in the same chunk; positions count from the connection's first byte.
    """

    frame_max_length: int = FRAME_MAX_LENGTH
    open: bool = True
    errors: list[FrameError] = field(default_factory=list)
    _held: bytearray = field(default_factory=bytearray)
    _start: int = 0

    def feed(self, chunk: bytes) -> list[RemotingCommand]:
        """The commands whose last byte is in this chunk, in order."""
        if not self.open:
            return []
        self._held += chunk
        commands: list[RemotingCommand] = []
        with memoryview(self._held) as held:
            at = self._decode(held, commands)
        self._drop(at)
        return commands

    def _decode(self, held: memoryview, commands: list[RemotingCommand]) -> int:
        """Decode the whole frames in `held` into `commands`; returns the position of the first incomplete frame."""
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
        """Drop the decoded bytes, or all bytes if the connection is closed."""
        del self._held[: count if self.open else len(self._held)]
        self._start += count

    def _refuse(self, error: FrameError, at: int) -> None:
        self.open = self.open and error.exception == OUT_OF_MEMORY
        self.errors.append(error.moved(self._start + at))
