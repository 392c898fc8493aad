"""Decodes the messages in the body of a pull response, and in the body of a producer's batch.

Broker source (4.9.3): MessageDecoder.decodes, clientDecode, decodeMessages; UtilAll.uncompress.
Rule: records follow each other; the list ends at the first record that cannot be decoded, which is no error.
Surprise: the next record starts where the fields of the last one end, whatever the record's size field has. A client's message id is the
property UNIQ_KEY if there is one. A batch that ends too early is an error, and none of its messages is read.
No command of pullsim decodes a message list: of a captured answer's body only length and checksum are kept. The module is for readers of
raw bodies; tests check it with recorded bodies.
"""

from __future__ import annotations

import base64
import struct
import zlib
from dataclasses import dataclass

from store_format.broker_version import DEFAULT_VERSION, BrokerVersion
from store_format.layout import COMPRESSED_FLAG, MESSAGE_MAGIC_CODE_V2, RECORD_MIDDLE, RECORD_PREFIX
from store_format.record.message import Host, Message, decode, decode_properties, decode_text
from store_format.record.message_version import MESSAGE_VERSION
from store_format.remoting.errors import BUFFER_UNDERFLOW, NEGATIVE_ARRAY_SIZE, FrameError

UNCOMPRESSED_MAX = 64 << 20  # bytes; a frame's body could inflate to 16 GB, and no producer may send more than 4 MB
_UNIQUE_KEY = "UNIQ_KEY"
_BATCH_PREFIX = struct.Struct(">iiiii")
_SHORT = struct.Struct(">h")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchMessage:
    """A message inside a batch, which has no queue, no times and no topic of its own."""

    flag: int
    body: bytes
    properties: bytes

    def decoded_form(self) -> dict[str, object]:
        """The message as plain values under the broker's names."""
        properties = dict(sorted(decode_properties(self.properties).items()))
        return {"flag": self.flag, "body": base64.b64encode(self.body).decode(), "properties": properties}


def decode_messages(body: bytes, *, read_body: bool = True, version: BrokerVersion = DEFAULT_VERSION) -> list[Message]:
    """MessageDecoder.decodes of a version: the messages of a pull response, bodies as stored.

    `read_body` also checks that compressed bodies inflate.
    """
    view, at, found = memoryview(body), 0, []
    while at < len(view):
        message = decode(view[at:], uncompress_body=read_body, version=version)  # type: ignore[arg-type]
        if message is None:
            break
        found.append(message)
        at += _fields_length(message, version)
    return found


def _fields_length(message: Message, version: BrokerVersion) -> int:
    hosts = len(message.born_host.address) + len(message.store_host.address) + 8
    fixed = RECORD_PREFIX.itemsize + 8 + RECORD_MIDDLE.itemsize + 3
    is_v2 = MESSAGE_VERSION.of(version).value and message.magic_code == MESSAGE_MAGIC_CODE_V2
    return fixed + is_v2 + hosts + len(message.body) + len(message.topic) + len(message.properties)


def uncompressed_body(message: Message) -> bytes:
    """The body of a message as a client gets it, inflated if it is compressed.

    Raises:
        FrameError: a compressed body does not inflate, or inflates to more than UNCOMPRESSED_MAX bytes.
    """
    if not message.sys_flag & COMPRESSED_FLAG or not message.body:
        return message.body
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(message.body, UNCOMPRESSED_MAX + 1)
    except zlib.error as error:
        raise FrameError("IOException", "a compressed body", str(error), position=0, path="body") from None
    if len(inflated) > UNCOMPRESSED_MAX:
        raise FrameError("OutOfMemoryError", f"at most {UNCOMPRESSED_MAX} bytes in a body", "more", position=0, path="body")
    return inflated


def client_form(message: Message, *, read_body: bool = True) -> dict[str, object]:
    """A message as a client sees it, as plain values under the broker's names, the body in Base64."""
    properties = message.properties_map()
    return {
        "storeSize": message.store_size,
        "bodyCRC": message.body_crc,
        "queueId": message.queue_id,
        "flag": message.flag,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.physic_offset,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp,
        "bornHost": java_host(message.born_host),
        "storeTimestamp": message.store_timestamp,
        "storeHost": java_host(message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "body": base64.b64encode(uncompressed_body(message)).decode() if read_body and message.body else None,
        "topic": decode_text(message.topic),
        "properties": dict(sorted(properties.items())) if message.properties else None,
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "msgId": properties.get(_UNIQUE_KEY, message.msg_id),
    }


def java_host(host: Host) -> str:
    """A host as InetAddress.getHostAddress and a port, with `|` between."""
    return f"{host.java_address}|{host.port}"


def decode_batch(body: bytes) -> list[BatchMessage]:
    """MessageDecoder.decodeMessages: the messages of a batch.

    Raises:
        FrameError: the body ends inside a message; positions count from the start of the body.
    """
    found, at = [], 0
    while at < len(body):
        if at + _BATCH_PREFIX.size > len(body):
            raise _ends_early("a message's fixed fields", at, len(body))
        _, _, _, flag, length = _BATCH_PREFIX.unpack_from(body, at)
        content, at = _part(body, at + _BATCH_PREFIX.size, length, "body")
        if at + _SHORT.size > len(body):
            raise _ends_early("the length of the properties", at, len(body))
        properties, at = _part(body, at + _SHORT.size, _SHORT.unpack_from(body, at)[0], "properties")
        found.append(BatchMessage(flag=flag, body=content, properties=properties))
    return found


def _part(body: bytes, at: int, length: int, what: str) -> tuple[bytes, int]:
    if length < 0:
        raise FrameError(NEGATIVE_ARRAY_SIZE, f"a length of the {what} of 0 or more", str(length), position=at, path="body")
    if at + length > len(body):
        raise _ends_early(f"{what} of {length} bytes", at, len(body))
    return bytes(body[at : at + length]), at + length


def _ends_early(expected: str, at: int, end: int) -> FrameError:
    return FrameError(BUFFER_UNDERFLOW, expected, f"{end - at} bytes up to the end", position=at, path="body")
