"""Decodes and encodes one frame: length, type and length of the header, header, body.

Broker source (4.9.3): RemotingCommand.decode(ByteBuffer), encode, getHeaderLength, getProtocolType, markProtocolType.
Rule: an int32 is the length of the bytes after it; a byte is the serialize type, and 24 bits are the header's length; then follow the
header and the body.
Surprise: the broker checks the header's length before its type, so a frame with both wrong fails for the length. An empty body is null.
"""

from __future__ import annotations

import struct

from store_format.big_endian import Bytes
from store_format.remoting.command import RemotingCommand, SerializeType
from store_format.remoting.errors import BUFFER_UNDERFLOW, NULL_POINTER, TOO_LONG_FRAME, FrameError
from store_format.remoting.header_json import decode_json_header, encode_json_header
from store_format.remoting.header_rocketmq import decode_rocketmq_header, encode_rocketmq_header

LENGTH_FIELD = 4
HEADER_WORD = 4
FRAME_MAX_LENGTH = 16_777_216  # NettyDecoder's default, the length field included
_WORD = struct.Struct(">I")
HEADER_START = LENGTH_FIELD + HEADER_WORD


def decode_command(content: bytes | memoryview) -> RemotingCommand:
    """RemotingCommand.decode: the command of a frame; `content` is the frame's bytes after its length field.

    Raises:
        FrameError: `exception` is the one that the broker's decoder throws; positions count from the start of the frame.
    """
    command, end = decode_header(content)
    return command if end == len(content) else command.with_body(bytes(content[end:]))


def decode_header(content: bytes | memoryview) -> tuple[RemotingCommand, int]:
    """The command of a frame without its body, and the position in `content` at which the body starts; errors as in decode_command."""
    if len(content) < HEADER_WORD:
        raise FrameError(BUFFER_UNDERFLOW, "type and length of the header, 4 bytes", f"{len(content)} bytes", position=LENGTH_FIELD)
    (word,) = _WORD.unpack_from(content)
    kind, end = word >> 24, HEADER_WORD + (word & 0xFFFFFF)
    if end > len(content):
        found = f"{len(content) - HEADER_WORD} bytes up to the end of the frame"
        raise FrameError(BUFFER_UNDERFLOW, f"a header of {word & 0xFFFFFF} bytes", found, position=HEADER_START)
    if kind > SerializeType.ROCKETMQ:
        raise FrameError(NULL_POINTER, "serialize type 0 (JSON) or 1 (ROCKETMQ)", str(kind), position=LENGTH_FIELD)
    header = bytes(content[HEADER_WORD:end])
    try:
        return (decode_json_header(header) if kind == SerializeType.JSON else decode_rocketmq_header(header)), end
    except FrameError as error:
        raise error.moved(HEADER_START) from None


def decode_frame(frame: bytes) -> RemotingCommand:
    """The command of one whole frame, its length field included.

    Raises:
        FrameError: also if the length field is not the length of `frame`, or is above the broker's limit.
    """
    if len(frame) < LENGTH_FIELD:
        raise FrameError(BUFFER_UNDERFLOW, "a length, 4 bytes", f"{len(frame)} bytes", position=0)
    (length,) = _WORD.unpack_from(frame)
    if length + LENGTH_FIELD > FRAME_MAX_LENGTH:
        raise too_long(length)
    if length != len(frame) - LENGTH_FIELD:
        raise FrameError(BUFFER_UNDERFLOW, f"a frame of {length} bytes after its length", str(len(frame) - LENGTH_FIELD), position=0)
    return decode_command(frame[LENGTH_FIELD:])


def frame_length(frame: bytes | bytearray) -> int:
    """Length of a frame, its length field included, as the field says."""
    return LENGTH_FIELD + int.from_bytes(frame[:LENGTH_FIELD], "big")


def header_length(frame: Bytes) -> int:
    """Length of the header of a frame, as the frame says; the frame may end before the header does."""
    return int.from_bytes(frame[LENGTH_FIELD + 1 : HEADER_START].tobytes(), "big")


def too_long(length: int) -> FrameError:
    """The error for a length field above the limit; the decoder reads the field as unsigned, so a negative length is very long."""
    limit = FRAME_MAX_LENGTH - LENGTH_FIELD
    return FrameError(TOO_LONG_FRAME, f"a length of at most {limit}", str(length), position=0)


def encode_frame(command: RemotingCommand) -> bytes:
    """RemotingCommand.encode: the frame that the broker writes, ext fields in the order of its HashMap.

    Raises:
        FrameError: a command that cannot be written in its header form.
    """
    json = command.serialize_type == SerializeType.JSON
    header = encode_json_header(command) if json else encode_rocketmq_header(command)
    body = command.body or b""
    word = command.serialize_type << 24 | (len(header) & 0xFFFFFF)
    return b"".join([_WORD.pack(HEADER_WORD + len(header) + len(body)), _WORD.pack(word), header, body])
