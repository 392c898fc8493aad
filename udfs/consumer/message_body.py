"""Uncompress message bodies that the producer compressed, as a consumer does.

Broker source (4.9.3): DefaultMQProducerImpl.tryToCompressMessage, MessageDecoder.decode, UtilAll.uncompress.
Rule: a body of compressMsgBodyOverHowmuch (4096) bytes or more is sent as a zlib stream, and bit 1 of sysFlag is set.
Surprise: the broker never checks the stream. It can expand to a thousand times its length, so `uncompress` has a limit.
"""

from __future__ import annotations

import zlib
from typing import Final

BODY_BYTES_MAX: Final = 64 * 1024 * 1024


def uncompress(body: bytes, bytes_max: int = BODY_BYTES_MAX) -> bytes | None:
    """Return the uncompressed body; None if the bytes are not a complete zlib stream, or expand to more than `bytes_max`."""
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(body, bytes_max + 1)
    except zlib.error:
        return None
    return found if stream.eof and len(found) <= bytes_max else None
