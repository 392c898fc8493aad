"""Text of the wire protocol: UTF-8 as Java decodes and encodes it.

Broker source (4.9.3): RemotingSerializable.decode and encode, RocketMQSerializable: new String(bytes, UTF_8) and String.getBytes(UTF_8).
Surprise: neither ever fails; malformed bytes become U+FFFD, and half a surrogate pair becomes a question mark.
"""

from __future__ import annotations

from store_format.record.message import decode_text


def java_text(raw: bytes) -> str:
    """new String(raw, UTF_8), quick where the bytes are well formed."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return decode_text(raw)


def java_bytes(text: str) -> bytes:
    """String.getBytes(UTF_8)."""
    return text.encode("utf-8", "replace")
