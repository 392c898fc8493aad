"""Decodes and encodes one record of the commit log as an object: the slow and simple form of the codec.

Broker source (4.9.3): MessageDecoder.decode and string2messageProperties, CommitLog's MessageExtEncoder.
Rule: like MessageDecoder, `decode` reads the lengths. It checks the magic code by the rules of 5.5.0 only (MESSAGE_VERSION). It returns
None if MessageDecoder returns null.
Surprise: decoding drops properties without a value. A port above 65535, or a compressed body that does not inflate, makes the whole message
undecodable.
"""

from __future__ import annotations

import ipaddress
import re
import struct
import zlib
from dataclasses import dataclass
from typing import Final

from store_format.broker_version import DEFAULT_VERSION, BrokerVersion
from store_format.layout import BORNHOST_V6_FLAG, COMPRESSED_FLAG, MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2, STOREHOSTADDRESS_V6_FLAG
from store_format.record.message_version import MESSAGE_VERSION

NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"

_HEAD = struct.Struct(">ii")
HEAD_BYTES = _HEAD.size
_PREFIX = struct.Struct(">iiiiiqqiq")
assert _PREFIX.size == 48
_MIDDLE = struct.Struct(">iqi")
assert _MIDDLE.size == 16

# the length of the topic in a V1 record, and in a V2 record
_TOPIC_LENGTH = struct.Struct(">b"), struct.Struct(">h")

_MAGIC_CODES: Final = frozenset({MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2})
_GROUPS = struct.Struct(">8H")

MAX_PORT = 65535
# half a surrogate pair written as UTF-8: Java's decoder replaces it with one U+FFFD, Python's with one for each byte
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_INFLATED_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """An address of four or sixteen bytes, and a port."""

    address: bytes
    port: int

    def __str__(self) -> str:
        return f"{ipaddress.ip_address(self.address)}:{self.port}"

    @property
    def java_address(self) -> str:
        """InetAddress.getHostAddress of the address: IPv6 without `::`; an IPv4-mapped address as IPv4."""
        address = ipaddress.ip_address(self.address)
        if isinstance(address, ipaddress.IPv4Address):
            return str(address)
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return ":".join(f"{group:x}" for group in _GROUPS.unpack(self.address))


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Every field of a record; `body`, `topic` and `properties` are the stored bytes."""

    queue_id: int
    queue_offset: int
    physic_offset: int
    born_timestamp: int
    born_host: Host
    store_timestamp: int
    store_host: Host
    body: bytes
    topic: bytes
    properties: bytes
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    body_crc: int = 0
    magic_code: int = MESSAGE_MAGIC_CODE
    store_size: int = 0

    @property
    def msg_id(self) -> str:
        """Offset message id: store host and physical offset in upper case hex."""
        port = struct.pack(">i", self.store_host.port)
        return (self.store_host.address + port + struct.pack(">q", self.physic_offset)).hex().upper()

    def properties_map(self) -> dict[str, str]:
        """The properties by name, as MessageDecoder.string2messageProperties reads them."""
        return decode_properties(self.properties)


def begins_message(head: bytes) -> bool:
    """Whether `head`, HEAD_BYTES bytes of the log, begins a message: a length above 0 and the magic code of messages."""
    size, magic = _HEAD.unpack(head) if len(head) == HEAD_BYTES else (0, 0)
    return size > 0 and magic in _MAGIC_CODES


def body_crc32(body: bytes) -> int:
    """UtilAll.crc32: the CRC-32 of a body with the top bit cleared."""
    return zlib.crc32(body) & 0x7FFFFFFF


def decode_text(raw: bytes) -> str:
    """Java's new String(raw, UTF_8), with the same number of U+FFFD for malformed bytes."""
    return _SURROGATE.sub("\ufffd".encode(), raw).decode("utf-8", "replace")


def decode_properties(raw: bytes) -> dict[str, str]:
    """The values of properties by name, in the order in which the names first appear; the last value of a name counts."""
    found: dict[str, str] = {}
    for part in decode_text(raw).split(PROPERTY_SEPARATOR):
        name, separator, value = part.partition(NAME_VALUE_SEPARATOR)
        if separator and name and value:
            found[name] = value
    return found


def encode_properties(properties: dict[str, str]) -> bytes:
    """MessageDecoder.messageProperties2String as bytes, without the separator after the last property."""
    return PROPERTY_SEPARATOR.join(name + NAME_VALUE_SEPARATOR + value for name, value in properties.items()).encode()


def encode(message: Message) -> bytes:
    """The bytes of the message's record; the size is computed, the CRC is `message.body_crc`."""
    parts = [
        b"",
        message.born_host.address + struct.pack(">i", message.born_host.port),
        struct.pack(">q", message.store_timestamp),
        message.store_host.address + struct.pack(">i", message.store_host.port),
        _MIDDLE.pack(message.reconsume_times, message.prepared_transaction_offset, len(message.body)),
        message.body,
        _TOPIC_LENGTH[message.magic_code == MESSAGE_MAGIC_CODE_V2].pack(len(message.topic)),
        message.topic,
        struct.pack(">h", len(message.properties)),
        message.properties,
    ]
    parts[0] = _PREFIX.pack(
        _PREFIX.size + sum(map(len, parts)),
        message.magic_code,
        message.body_crc,
        message.queue_id,
        message.flag,
        message.queue_offset,
        message.physic_offset,
        message.sys_flag,
        message.born_timestamp,
    )
    return b"".join(parts)


def decode(raw: bytes, *, uncompress_body: bool = True, version: BrokerVersion = DEFAULT_VERSION) -> Message | None:
    """The message that MessageDecoder.decode of a version reads from the start of `raw`, None if it returns null.

    With `uncompress_body`, the result is None also if a body that is marked as compressed does not inflate, as for a client. The message's
    body is always the stored one.
    """
    try:
        return _decode(memoryview(raw), uncompress_body=uncompress_body, with_v2=MESSAGE_VERSION.of(version).value)
    except (struct.error, IndexError):
        return None


def _decode(raw: memoryview, *, uncompress_body: bool, with_v2: bool) -> Message | None:
    size, magic, crc, queue_id, flag, queue_offset, physic_offset, sys_flag, born = _PREFIX.unpack_from(raw, 0)
    if with_v2 and magic not in _MAGIC_CODES:
        return None
    born_host, at = _host(raw, _PREFIX.size, v6=bool(sys_flag & BORNHOST_V6_FLAG))
    (stored,) = struct.unpack_from(">q", raw, at)
    store_host, at = _host(raw, at + 8, v6=bool(sys_flag & STOREHOSTADDRESS_V6_FLAG))
    reconsumed, prepared, body_length = _MIDDLE.unpack_from(raw, at)
    body, at = _take(raw, at + _MIDDLE.size, max(body_length, 0))
    if uncompress_body and body and sys_flag & COMPRESSED_FLAG and not _inflates(body):
        return None
    length = _TOPIC_LENGTH[with_v2 and magic == MESSAGE_MAGIC_CODE_V2]
    topic, at = _take(raw, at + length.size, *length.unpack_from(raw, at))
    (properties_length,) = struct.unpack_from(">h", raw, at)
    properties, at = _take(raw, at + 2, max(properties_length, 0))
    return Message(
        store_size=size,
        magic_code=magic,
        body_crc=crc,
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        physic_offset=physic_offset,
        sys_flag=sys_flag,
        born_timestamp=born,
        born_host=born_host,
        store_timestamp=stored,
        store_host=store_host,
        reconsume_times=reconsumed,
        prepared_transaction_offset=prepared,
        body=body,
        topic=topic,
        properties=properties,
    )


def _inflates(body: bytes) -> bool:
    """Whether UtilAll.uncompress can inflate a body; bytes after the end of the zlib stream are ignored."""
    inflater = zlib.decompressobj()
    try:
        while not inflater.eof:
            if not inflater.decompress(body, _INFLATED_AT_ONCE) and not inflater.unconsumed_tail:
                return inflater.eof
            body = inflater.unconsumed_tail
    except zlib.error:
        return False
    return True


def _take(raw: memoryview, at: int, length: int) -> tuple[bytes, int]:
    if length < 0 or at + length > len(raw):
        raise IndexError(length)
    return bytes(raw[at : at + length]), at + length


def _host(raw: memoryview, at: int, *, v6: bool) -> tuple[Host, int]:
    address, at = _take(raw, at, 16 if v6 else 4)
    (port,) = struct.unpack_from(">i", raw, at)
    if not 0 <= port <= MAX_PORT:  # InetSocketAddress refuses it
        raise IndexError(port)
    return Host(address=address, port=port), at + 4
