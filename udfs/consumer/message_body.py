"""Uncompress message bodies that the producer compressed, as a consumer does.

Broker source: DefaultMQProducerImpl.tryToCompressMessage, MessageDecoder.decode, UtilAll.uncompress (4.9.3); MessageSysFlag,
CompressionType and CompressorFactory (5.5.0).
Rule: a body of compressMsgBodyOverHowmuch (4096) bytes or more is sent as a stream, and bit 1 of sysFlag is set. Bits 8 to 10 are its type
since 5.0: 0 and 3 zlib, 1 an LZ4 frame, 2 zstd; 4.9 sets none of them.
Surprise: the broker never checks the stream. It can expand to a thousand times its length, so `uncompress` has a limit.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Final

from store_format.errors import UnusableInputError

BODY_BYTES_MAX: Final = 64 * 1024 * 1024
_TYPE_SHIFT, _TYPE_BITS = 8, 7
_ZLIB = "zlib"
_TYPES: Final[Mapping[int, str]] = {0: _ZLIB, 1: "lz4", 2: "zstd", 3: _ZLIB}


class MissingCodecError(UnusableInputError):
    """A body is compressed in a way that no installed library reads."""


def uncompress(body: bytes, bytes_max: int = BODY_BYTES_MAX, *, sys_flag: int = 0) -> bytes | None:
    """Return the uncompressed body.

    Args:
        body: the body as stored.
        bytes_max: limit for the length of the result.
        sys_flag: sysFlag of the message; bits 8 to 10 are the type of the stream.

    Returns:
        The bytes; None if the body is not a complete stream of that type, its type is unknown, or it expands to more than `bytes_max`.

    Raises:
        MissingCodecError: pyarrow was built without the codec.
    """
    kind = _TYPES.get(sys_flag >> _TYPE_SHIFT & _TYPE_BITS)
    if kind is None or not body:
        return None
    found = _inflated(body, bytes_max) if kind == _ZLIB else _by_arrow(body, kind, bytes_max)
    return found if found is not None and len(found) <= bytes_max else None


def _inflated(body: bytes, bytes_max: int) -> bytes | None:
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(body, bytes_max + 1)
    except zlib.error:
        return None
    return found if stream.eof or len(found) > bytes_max else None


def _by_arrow(body: bytes, kind: str, bytes_max: int) -> bytes | None:
    import pyarrow as pa  # noqa: PLC0415 (only bodies of LZ4 and zstd need pyarrow)

    if not pa.Codec.is_available(kind):
        raise MissingCodecError(f"a body is compressed with {kind}: expected a pyarrow that reads it, found one without; reinstall pyarrow")
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), kind) as stream:
            return bytes(stream.read(bytes_max + 1))
    except (OSError, pa.ArrowInvalid):
        return None
