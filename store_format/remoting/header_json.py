r"""Decodes and encodes the JSON form of a command's header.

Broker source (4.9.3): decoding is RemotingCommand's setters under fastjson 1.2.76, encoding is RemotingSerializable.encode.
Rule: numbers may stand in quotes, fractions are cut off, null leaves a number as it is. An ext value that is no string becomes its text.
An unknown language is null. Keys are matched without case, underscores and hyphens; unknown keys are ignored.
Surprise: of equal keys the second counts and the third does not; and the second counts only if the first has the place and the form in
which the broker writes it.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NoReturn

from store_format.config.fastjson_scanner import NumberText
from store_format.config.fastjson_writer import quoted
from store_format.java.hash_maps import hash_map_order
from store_format.java.numbers import to_int, to_long
from store_format.remoting.command import LanguageCode, RemotingCommand, SerializeType
from store_format.remoting.errors import NULL_POINTER, FrameError
from store_format.remoting.header_text import HeaderText, Member, Undefined, Value, plain_name
from store_format.remoting.text import java_bytes, java_text

# the fields in the order in which fastjson looks for them
FIELDS = ("body", "code", "extFields", "flag", "language", "opaque", "remark", "serializeTypeCurrentRPC", "version")
_NUMBERS = {"code", "flag", "opaque", "version"}
_ENUMS: dict[str, dict[str, int]] = {
    "language": {language.name.lower(): language for language in LanguageCode},
    "serializeTypeCurrentRPC": {kind.name.lower(): kind for kind in SerializeType},
}
_PLAIN_NAMES = {plain_name(name): name for name in FIELDS}
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1
_SCALE_MAX = 100  # above it TypeUtils.intValue calls intValueExact
_WRITTEN_INT = re.compile(r'("?)(-?\d{1,10})\1[ \t\n\r]*[,}]', re.ASCII)
_WRITTEN_END = {"remark": re.compile(r"[ \t\n\r]*[,}]"), "language": re.compile("[,}]"), "serializeTypeCurrentRPC": re.compile("[,}]")}
_JAVA_INT = re.compile(r"[+-]?\d{1,400}")
_ZEROS = re.compile(r"\.0*$")
_ORDINAL = re.compile(r"\d{0,9}", re.ASCII)
_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]*")


def decode_json_header(header: bytes) -> RemotingCommand:
    """The command of a header, without its body.

    Raises:
        FrameError: `exception` is JSONException, or NullPointerException if fastjson reads null; positions count from the start.
    """
    text = java_text(header)
    plain = _as_the_broker_writes(text)
    if plain is not None:
        return plain
    parser = HeaderText(text)
    found = _Fields(parser)
    try:
        if not parser.document(found.take):
            raise FrameError(NULL_POINTER, "a JSON object", repr(text[:12]), position=0)
    except FrameError as error:
        raise error.moved(_byte_position(header, error.offset) - error.offset) from None
    return found.command()


def _byte_position(header: bytes, position: int) -> int:
    """The position in `header` of the character at `position` of its decoded text."""
    return max(0, bisect_left(range(len(header) + 1), position + 1, key=lambda end: len(java_text(header[:end]))) - 1)


def _members_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError
    return members


def _no_number(_text: str) -> NoReturn:
    raise ValueError


# no fractions, constants, or equal keys
_STRICT = json.JSONDecoder(object_pairs_hook=_members_once, parse_float=_no_number, parse_constant=_no_number)


def _as_the_broker_writes(text: str) -> RemotingCommand | None:
    """The command of a header in the broker's own form, read fast; None for any other header."""
    try:
        members = _STRICT.decode(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(members, dict) or not members.keys() <= _WRITTEN_FIELDS:
        return None
    code, flag, opaque, version = (members.get(name, 0) for name in ("code", "flag", "opaque", "version"))
    for number in (code, flag, opaque, version):
        if type(number) is not int or not _INT_MIN <= number <= _INT_MAX:
            return None
    ext, remark = members.get("extFields"), members.get("remark")
    name = members.get("language", "JAVA")
    language = _LANGUAGES.get(name) if isinstance(name, str) else None
    if language is None or not isinstance(remark, str | None) or not isinstance(members.get("serializeTypeCurrentRPC", ""), str):
        return None
    if ext is not None and not (isinstance(ext, dict) and "@type" not in ext and set(map(type, ext.values())) <= _TEXTS):
        return None
    opaque = opaque if "opaque" in members else None
    return RemotingCommand(code=code, flag=flag, opaque=opaque, version=version, language=language, remark=remark, ext_fields=ext)


_WRITTEN_FIELDS = set(FIELDS) - {"body"}
_LANGUAGES = {language.name: language for language in LanguageCode}
_TEXTS = {str, type(None)}


class _Fields:
    """The fields of a command, set by one member of a header after the other."""

    def __init__(self, parser: HeaderText) -> None:
        self.parser = parser
        self.values: dict[str, Any] = {}
        self.tried = 0  # number of FIELDS for which fastjson has looked
        self.settled: set[str] = set()  # fields that no further member changes
        self.seen: set[str] = set()

    def command(self) -> RemotingCommand:
        """The command after all members."""
        values = self.values
        language = values.get("language", LanguageCode.JAVA)
        return RemotingCommand(
            code=values.get("code", 0),
            opaque=values.get("opaque"),
            flag=values.get("flag", 0),
            version=values.get("version", 0),
            language=None if language is None else LanguageCode(language),
            remark=values.get("remark"),
            ext_fields=values.get("extFields"),
        )

    def take(self, member: Member) -> None:
        """Set the field that a member names."""
        written = self._as_written(member)
        name = self._field_of(member)
        if name is None:
            return
        self.seen.add(name)
        if not written:
            self.settled.add(name)
        value = self._converted(name, member)
        if value is not None or name not in _NUMBERS:
            if value is None and name in {"remark", "extFields"} and name in self.values:
                return
            self.values[name] = value

    def _as_written(self, member: Member) -> bool:
        """Whether fastjson finds the member at the place and in the form in which it looks for the next field."""
        text = self.parser.text
        if member.key in FIELDS[self.tried :] and text.startswith(f'"{member.key}":', member.key_start):
            self.tried = FIELDS.index(member.key) + 1
            if text[member.start - 1] != ":":
                return False
            if member.key in _NUMBERS:
                found = _WRITTEN_INT.match(text, member.start)
                return found is not None and _INT_MIN < int(found[2]) <= _INT_MAX
            if member.key in _WRITTEN_END:
                return text[member.start] == '"' and _WRITTEN_END[member.key].match(text, member.end) is not None
            return True
        self.tried = len(FIELDS)
        return False

    def _field_of(self, member: Member) -> str | None:
        """The field that a member's key names, None if there is none or it can no longer be set."""
        classes = ("java.util.HashMap", "org.apache.rocketmq.remoting.protocol.RemotingCommand")
        if member.key == "@type" and member.value not in classes:
            self.parser.fail("no @type, or that of the command", member.start)
        if member.key in FIELDS:
            return None if member.key in self.settled else member.key
        name = _PLAIN_NAMES.get(plain_name(member.key))
        return None if name in self.seen else name

    def _converted(self, name: str, member: Member) -> Any:
        value = member.value
        if name in _NUMBERS:
            return self._int(value, member)
        if name in _ENUMS:
            return self._enum(name, value, member)
        if name == "remark":
            return as_text(value)
        if name == "extFields":
            return self._ext_fields(value, member)
        return self._body(value, member)

    def _int(self, value: Value, member: Member) -> int | None:
        """The int of a value, by IntegerCodec and then TypeUtils.castToInt."""
        if isinstance(value, bool):
            return int(value)
        if value is None or isinstance(value, Undefined):
            return None
        if isinstance(value, NumberText):
            number = self._number(value, member)
        elif isinstance(value, str):
            if value in {"", "null", "NULL"}:
                return None
            digits = _ZEROS.sub("", value.replace(",", ""))
            if not _JAVA_INT.fullmatch(digits):
                self.parser.fail("an int in quotes", member.start)
            number = int(digits)
        else:
            self.parser.fail("an int", member.start)
        if not _INT_MIN <= number <= _INT_MAX:
            self.parser.fail("an int of 32 bits", member.start)
        return number

    def _number(self, value: NumberText, member: Member) -> int:
        if value == "-":
            self.parser.fail("an int", member.start)
        if value.lstrip("-").isdigit() or not value:
            digits = value.lstrip("-0") or "0"
            return int(("-" if value.startswith("-") else "") + digits[:20])
        scaled = Decimal(value)
        if abs(int(scaled.as_tuple().exponent)) > _SCALE_MAX or len(value) > 2 * _SCALE_MAX:
            self.parser.fail("a number that fits an int", member.start)
        return to_int(to_long(int(scaled)))

    def _enum(self, name: str, value: Value, member: Member) -> int | None:
        """The number of an enum's value by EnumDeserializer: found by name without case, or by number."""
        if value is None or (isinstance(value, str) and not isinstance(value, NumberText)):
            return _ENUMS[name].get((value or "").lower())
        number = int(value or "0") if isinstance(value, NumberText) and _ORDINAL.fullmatch(value) else -1
        if number not in _ENUMS[name].values():
            self.parser.fail(f"a name or number of {name}", member.start)
        return number

    def _ext_fields(self, value: Value, member: Member) -> dict[str, str | None] | None:
        if value is None:
            return None
        if not isinstance(value, dict):
            self.parser.fail("an object of ext fields", member.start)
        if "@type" in value and value.pop("@type") != "java.util.HashMap":
            self.parser.fail("no @type, or that of a HashMap", member.start)
        return {key: as_text(one) for key, one in value.items()}

    def _body(self, value: Value, member: Member) -> None:
        """Check the body in the header, which the broker reads and then replaces by the frame's body."""
        if isinstance(value, list) and all(isinstance(one, NumberText) and re.fullmatch(r"-?\d{1,3}", one) for one in value):
            if all(-128 <= int(str(one)) <= 127 for one in value):
                return
        elif value is None or (isinstance(value, str) and not isinstance(value, NumberText) and _BASE64.fullmatch(value)):
            return
        self.parser.fail("a body of bytes", member.start)


def as_text(value: Value) -> str | None:
    """The text of a value for a field of type String: numbers as written, or as BigDecimal.toString writes them; trees as JSON."""
    if value is None or isinstance(value, Undefined):
        return None
    if isinstance(value, NumberText):
        return str(value) if value in {"", "-"} or value.lstrip("-").isdigit() else _big_decimal(value)
    return value if isinstance(value, str) else _tree(value)


def _big_decimal(written: str) -> str:
    text = str(Decimal(written))
    return text[1:] if text.startswith("-") and not Decimal(written) else text


def _tree(value: Value) -> str:
    """The JSON text of a tree as fastjson writes it: without null members, objects in the order of a HashMap."""
    if value is None or isinstance(value, Undefined):
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, NumberText):
        if value and not value.lstrip("-").isdigit():
            return _big_decimal(value)
        digits = value.lstrip("-0") or "0"
        return "-" + digits if value.startswith("-") and digits != "0" else digits
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list):
        return "[" + ",".join(map(_tree, value)) + "]"
    kept = [key for key in hash_map_order(value) if value[key] is not None and not isinstance(value[key], Undefined)]
    return "{" + ",".join(f"{quoted(key)}:{_tree(value[key])}" for key in kept) + "}"


def encode_json_header(command: RemotingCommand) -> bytes:
    """The header that the broker writes for a command: fields in the order of their names, without null fields and blanks.

    Raises:
        FrameError: the command has no opaque.
    """
    if command.opaque is None:
        raise FrameError(NULL_POINTER, "a command with an opaque", "none", position=0)
    members = {
        "code": str(command.code),
        "extFields": None if command.ext_fields is None else _string_map(command.ext_fields),
        "flag": str(command.flag),
        "language": None if command.language is None else quoted(command.language.name),
        "opaque": str(command.opaque),
        "remark": None if command.remark is None else quoted(command.remark),
        "serializeTypeCurrentRPC": quoted(command.serialize_type.name),
        "version": str(command.version),
    }
    text = ",".join(f'"{name}":{value}' for name, value in members.items() if value is not None)
    return java_bytes(f"{{{text}}}")


def _string_map(fields: Mapping[str, str | None]) -> str:
    pairs = ((key, fields[key]) for key in hash_map_order(fields))
    return "{" + ",".join(f"{quoted(key)}:{quoted(value)}" for key, value in pairs if value is not None) + "}"
