"""Decodes and encodes the UTF-8 texts of the wire protocol as Java does.

Broker source (4.9.3): RemotingSerializable.decode and encode, RocketMQSerializable: new String(bytes, UTF_8) and String.getBytes(UTF_8).
Surprise: neither fails. Malformed bytes become U+FFFD, and half a surrogate pair becomes a question mark.
"""

from __future__ import annotations

from store_format.record.message import decode_text


def java_text(raw: bytes) -> str:
    """Java's new String(raw, UTF_8), fast for valid UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return decode_text(raw)


def java_bytes(text: str) -> bytes:
    """Java's text.getBytes(UTF_8)."""
    return text.encode("utf-8", "replace")
