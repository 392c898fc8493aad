"""Decodes and encodes the ROCKETMQ form of a command's header.

Broker source (4.9.3): RocketMQSerializable.rocketMQProtocolEncode, rocketMQProtocolDecode, mapSerialize, mapDeserialize.
Rule: code (2 bytes), language (1), version (2), opaque (4), flag (4), then remark and ext fields, each after a length of four bytes. In the
ext fields, two bytes of length precede a key and four bytes its value. Numbers are big endian and signed.
Surprise: code and version are cut to 16 bits when written. A length of zero or less means absent, so "" is read as null. Bytes after the
ext fields are ignored. A length counts as wrong only if it is greater than the whole header.
"""

from __future__ import annotations

import struct

from store_format.java.hash_maps import hash_map_order
from store_format.remoting import errors
from store_format.remoting.command import LanguageCode, RemotingCommand, SerializeType
from store_format.remoting.errors import FrameError
from store_format.remoting.text import java_bytes, java_text

_FIXED = struct.Struct(">hbhiii")
assert _FIXED.size == 17
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_ARRAY_MAX = 2**31 - 3  # no JVM makes a longer byte[], and the broker allocates it before any check
_LANGUAGES = {language.value: language for language in LanguageCode}


def decode_rocketmq_header(header: bytes) -> RemotingCommand:
    """The command of a header, without its body.

    Raises:
        FrameError: positions count from the start of the header.
    """
    if len(header) < _FIXED.size:
        least = f"a header of at least {_FIXED.size + 4} bytes"
        raise FrameError(errors.BUFFER_UNDERFLOW, least, f"{len(header)} bytes", position=len(header))
    code, language, version, opaque, flag, remark_length = _FIXED.unpack_from(header)
    remark, at = _block(header, _FIXED.size, remark_length, "remark")
    ext_length, at = _number(header, at, _INT, "length of the ext fields", len(header))
    ext, at = _block(header, at, ext_length, "ext fields")
    return RemotingCommand(
        code=code,
        language=_LANGUAGES.get(language),
        version=version,
        opaque=opaque,
        flag=flag,
        remark=None if remark is None else java_text(remark),
        ext_fields=None if ext is None else _decode_map(header, at - len(ext), at),
        serialize_type=SerializeType.ROCKETMQ,
    )


def _block(header: bytes, at: int, length: int, what: str) -> tuple[bytes | None, int]:
    """The `length` bytes at `at`, or None if the length is not positive; and the position after them."""
    if length <= 0:
        return None, at
    if length > len(header):
        expected = f"a {what} of at most {len(header)} bytes, which the header has"
        raise FrameError(errors.REMOTING_COMMAND_EXCEPTION, expected, f"a length of {length}", position=at - 4)
    return _taken(header, at, length, what, len(header))


def _taken(header: bytes, at: int, length: int, what: str, end: int) -> tuple[bytes, int]:
    if length < 0:
        raise FrameError(errors.NEGATIVE_ARRAY_SIZE, f"a length of the {what} of 0 or more", str(length), position=at)
    if length > _ARRAY_MAX:
        raise FrameError(errors.OUT_OF_MEMORY, f"a length of the {what} of at most {_ARRAY_MAX}", str(length), position=at)
    if at + length > end:
        raise FrameError(errors.BUFFER_UNDERFLOW, f"a {what} of {length} bytes", f"{end - at} bytes up to the end", position=at)
    return header[at : at + length], at + length


def _number(header: bytes, at: int, form: struct.Struct, what: str, end: int) -> tuple[int, int]:
    if at + form.size > end:
        raise FrameError(errors.BUFFER_UNDERFLOW, f"the {what}, {form.size} bytes", f"{end - at} bytes up to the end", position=at)
    return int(form.unpack_from(header, at)[0]), at + form.size


def _decode_map(header: bytes, at: int, end: int) -> dict[str, str | None]:
    """The ext fields in [at, end); the last of equal keys counts."""
    fields: dict[str, str | None] = {}
    while at < end:
        key = at + _SHORT.size
        key_end = key + (_SHORT.unpack_from(header, at)[0] if key <= end else end)
        if not key <= key_end <= end - _INT.size:
            raise _bad_entry(header, at, end)
        value = key_end + _INT.size
        at_next = value + _INT.unpack_from(header, key_end)[0]
        if not value <= at_next <= end:
            raise _bad_entry(header, at, end)
        fields[java_text(header[key:key_end])] = java_text(header[value:at_next])
        at = at_next
    return fields


def _bad_entry(header: bytes, at: int, end: int) -> FrameError:
    """The error for the bad ext field at `at`."""
    try:
        length, at = _number(header, at, _SHORT, "length of a key", end)
        _, at = _taken(header, at, length, "key", end)
        length, at = _number(header, at, _INT, "length of a value", end)
        _taken(header, at, length, "value", end)
    except FrameError as error:
        return error
    raise AssertionError(at)


def encode_rocketmq_header(command: RemotingCommand) -> bytes:
    """The header that the broker writes for a command, without null values.

    Raises:
        FrameError: the command has no language (the broker throws a NullPointerException), or no opaque.
    """
    if command.language is None or command.opaque is None:
        raise FrameError(errors.NULL_POINTER, "a command with language and opaque", repr(command)[:80], position=0)
    remark = java_bytes(command.remark or "")
    ext = _encode_map(command.ext_fields or {})
    numbers = (_signed16(command.code), command.language, _signed16(command.version), command.opaque, command.flag, len(remark))
    return _FIXED.pack(*numbers) + remark + _INT.pack(len(ext)) + ext


def _encode_map(fields: dict[str, str | None]) -> bytes:
    parts = []
    for key in hash_map_order(fields):
        if (value := fields[key]) is not None:
            name, text = java_bytes(key), java_bytes(value)
            parts += [_SHORT.pack(_signed16(len(name))), name, _INT.pack(len(text)), text]
    return b"".join(parts)


def _signed16(value: int) -> int:
    return (value + 0x8000 & 0xFFFF) - 0x8000
