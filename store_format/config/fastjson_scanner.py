"""The lowest level of the broker's JSON: blanks, comments, strings and numbers, as fastjson's JSONScanner takes them.

Broker source (4.9.3): fastjson 1.2.76 under RemotingSerializable.fromJson: JSONLexerBase.skipWhitespace, skipComment,
scanString, scanNumber.
Rule: strings stand in double or single quotes, may hold control characters, and have also the escapes \\v \\F \\0 to \\7 \\xhh.
Surprise: control characters count as blanks before a value, but not before a name; 0x1a ends the text in some places.
`store_format.remoting.header_text` reads the headers of commands: it must do exactly what fastjson does when it fills the fields of a
command. This reader makes a tree, and refuses a text that fastjson may read in another way. Both use the escapes of this module, and a
test gives both the same texts.
"""

from __future__ import annotations

import re
from typing import AnyStr, NamedTuple, NoReturn

from store_format.errors import ConfigFileError

INTEGER_DIGITS_MAX = 25  # more than any long has; Python refuses very long ones

BLANKS = b" \t\n\r\f\b"
QUOTES = {b'"', b"'"}
NUMBER = re.compile(rb"[+-]?(\d+)(\.\d+)?([eE][+-]?\d{1,9})?")
_SPACE = re.compile(rb"[\x00-\x20\x7f]*")
_CONTROL = re.compile(rb"[\x00-\x07\x0b\x0e-\x1f\x7f]")
_SOLID = {bytes([byte]) for byte in range(0x21, 0x100)} - {b"/", b"\x7f"}
_SUFFIXES = {b".", b"L", b"S", b"B", b"F", b"D"}
_CHUNK = {quote: re.compile(rb"[^\\" + quote + rb"]*") for quote in QUOTES}
_HEX = re.compile(rb"[0-9a-fA-F]+")
SURROGATE = re.compile("[\ud800-\udfff]")
# the character that a backslash and a letter stand for; u and x are not here
ESCAPES = dict(zip("\"\\/'bfnrtvF01234567", "\"\\/'\b\f\n\r\t\v\f\0\1\2\3\4\5\6\7", strict=True))


class UnsupportedConfigError(ConfigFileError):
    """A text that this reader does not read and fastjson may read; the broker would then not read the .bak."""


class NumberText(str):
    """The text of a number that is not an integer or has too many digits."""

    __slots__ = ()


class Node(NamedTuple):
    """A value and the bytes [start, end) it was read from; an object is a tuple of its (key, value) pairs."""

    start: int
    end: int
    value: bool | int | str | list[Node] | tuple[tuple[Node, Node], ...] | None


class Scanner:
    """A text and a position in it that only grows.

    `unsupported` keeps the error for the first form that fastjson may read and this reader does not. It is raised only after the rest of
    the text has been read: if fastjson fails at a later byte, that error is raised instead.
    """

    def __init__(self, text: bytes, path: str) -> None:
        self.text = text
        self.path = path
        self.position = 0
        self.unsupported: UnsupportedConfigError | None = None

    def _found(self, position: int) -> str:
        return repr(self.text[position : position + 12]) if position < len(self.text) else "the end of the file"

    def fail(self, expected: str) -> NoReturn:
        """Raise the error for a text at which fastjson fails too."""
        raise ConfigFileError(self.path, expected, self._found(self.position), position=self.position)

    def note(self, expected: str, position: int | None = None) -> UnsupportedConfigError:
        """Keep the error for a form that fastjson may read and this reader does not; the first one is kept."""
        if self.unsupported is None:
            where = self.position if position is None else position
            hint = "the broker may read this all the same; write it as the broker does"
            self.unsupported = UnsupportedConfigError(self.path, expected, self._found(where), position=where, hint=hint)
        return self.unsupported

    def refuse(self, expected: str) -> NoReturn:
        """Raise the error for a form that fastjson may read and after which this reader cannot go on."""
        raise self.note(expected)

    def skip(self) -> bytes:
        """Skip blanks and comments; returns the next byte, or empty bytes at the end."""
        text = self.text
        byte = text[self.position : self.position + 1]
        if byte in _SOLID:
            return byte
        while True:
            start = self.position
            self.position = end = end_of(_SPACE, text, start)
            if end > start and (control := _CONTROL.search(text, start, end)):
                self.note("no control character outside of strings", control.start())
            opening = text[end : end + 2]
            if opening == b"//":
                closing = text.find(b"\n", end) + 1
            elif opening == b"/*":
                closing = text.find(b"*/", end + 2) + 2
                if closing < end:
                    self.note("'*/' after '/*'")
            else:
                return opening[:1]
            self.position = closing if closing > end else len(text)
            if b"\x1a" in text[end : self.position]:
                self.note("no 0x1a, which may end a text for fastjson", end)

    def number(self, number: re.Match[bytes]) -> Node:
        """The node of the number that NUMBER matched at the position."""
        start, end = number.span()
        self.position = end
        written = number[0]
        if written[:1] == b"+":
            self.note("a number without '+'", start)
        if self.text[end : end + 1] in _SUFFIXES:
            self.note("a number of JSON", start)
            self.position += 1
        if number.lastindex == 1 and end - start <= INTEGER_DIGITS_MAX:
            return Node(start, end, int(written))
        return Node(start, end, NumberText(written.decode()))

    def string(self, quote: bytes) -> Node:
        """The node of the string whose opening quote is at the position."""
        start = self.position
        self.position += 1
        parts: list[str] = []
        while True:
            begin = self.position
            self.position = end = end_of(_CHUNK[quote], self.text, begin)
            try:
                parts.append(self.text[begin:end].decode())
            except UnicodeDecodeError as error:
                self.note("UTF-8 (a broker writes in the charset of its JVM)", begin + error.start)
            byte = self.text[end : end + 1]
            if byte == quote:
                break
            if byte == b"":
                self.fail(f"{quote.decode()} at the end of a string")
            parts.append(self._escape())
        self.position += 1
        if b"\x1a" in self.text[start : self.position]:
            self.note("no 0x1a, which may end a text for fastjson", start)
        return Node(start, self.position, self._joined("".join(parts), start))

    def _joined(self, value: str, start: int) -> str:
        """`value` with each surrogate pair that two escapes made joined to one character."""
        if not SURROGATE.search(value):
            return value
        try:
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            self.note("no half of a surrogate pair", start)
            return value

    def _escape(self) -> str:
        text, start = self.text, self.position
        letter = text[start + 1 : start + 2]
        if letter in {b"u", b"x"}:
            length = 4 if letter == b"u" else 2
            digits = text[start + 2 : start + 2 + length]
            if len(digits) == length and _HEX.fullmatch(digits):
                self.position += 2 + length
                return chr(int(digits, 16))
            java_parses = letter == b"x" or digits[:1] in {b"+", b"-"} or not digits.isascii()
            if len(digits) == length and java_parses:
                self.refuse(f"{length} hexadecimal digits")
            self.fail(f"{length} hexadecimal digits")
        meaning = ESCAPES.get(letter.decode("latin-1"))
        if meaning is None:
            self.fail("an escape")
        self.position += 2
        return meaning


def end_of(pattern: re.Pattern[AnyStr], text: AnyStr, position: int) -> int:
    """The end of a pattern's match at `position`; the pattern must also match the empty text."""
    found = pattern.match(text, position)
    return found.end() if found else position
