"""Bodies that the client compressed, as its consumers get them.

Broker source (4.9.3): DefaultMQProducerImpl.tryToCompressMessage, MessageDecoder.decode, UtilAll.uncompress.
Rule: a body of compressMsgBodyOverHowmuch (4096) bytes or more is sent as a zlib stream, and bit 1 of sysFlag says so.
Surprise: the broker never looks into it. A stream may hold a thousand times its length, so there is a limit here.
"""

from __future__ import annotations

import zlib
from typing import Final

BODY_BYTES_MAX: Final = 64 * 1024 * 1024


def uncompress(body: bytes, bytes_max: int = BODY_BYTES_MAX) -> bytes | None:
    """The body that was compressed; None where the bytes are no whole zlib stream, or make more than `bytes_max`."""
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(body, bytes_max + 1)
    except zlib.error:
        return None
    return found if stream.eof and len(found) <= bytes_max else None
