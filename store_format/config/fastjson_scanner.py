"""The lowest level of the broker's JSON: blanks, comments, strings and numbers, as fastjson's JSONScanner takes them.

Broker source (4.9.3): fastjson 1.2.76 under RemotingSerializable.fromJson: JSONLexerBase.skipWhitespace, skipComment,
scanString, scanNumber.
Rule: strings stand in double or single quotes, may hold control characters, and have the escapes \\v \\F \\0 to \\7 \\xhh too.
Surprise: control characters are blanks before a value and not before a name; 0x1a is the end of the text in some places.
Headers of commands have a reader of their own, `store_format.remoting.header_text`: it must do exactly what fastjson does as it fills the
fields of a command. The reader of config files makes a tree, and refuses a text that fastjson may read in another way. Both use the
escapes of this module, and a test has both read the same texts.
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
# what a letter stands for behind a backslash, beside u and x
ESCAPES = dict(zip("\"\\/'bfnrtvF01234567", "\"\\/'\b\f\n\r\t\v\f\0\1\2\3\4\5\6\7", strict=True))


class UnsupportedConfigError(ConfigFileError):
    """A form that this reader does not know and fastjson may read: the broker would not go on to the .bak."""


class NumberText(str):
    """A number that is not an integer, or one of very many digits, as it was written."""

    __slots__ = ()


class Node(NamedTuple):
    """A value and the bytes [start, end) it was read from; an object is a tuple of its (key, value) pairs."""

    start: int
    end: int
    value: bool | int | str | list[Node] | tuple[tuple[Node, Node], ...] | None


class Scanner:
    """A position in a text, which only grows, and what stands there.

    A form that fastjson may read and this reader does not is remembered in `unsupported`, and counts once the rest of
    the text has been read: where a later byte makes fastjson fail too, that failure is the answer.
    """

    def __init__(self, text: bytes, path: str) -> None:
        self.text = text
        self.path = path
        self.position = 0
        self.unsupported: UnsupportedConfigError | None = None

    def _found(self, position: int) -> str:
        return repr(self.text[position : position + 12]) if position < len(self.text) else "the end of the file"

    def fail(self, expected: str) -> NoReturn:
        """Raise what fastjson fails at too."""
        raise ConfigFileError(self.path, expected, self._found(self.position), position=self.position)

    def note(self, expected: str, position: int | None = None) -> UnsupportedConfigError:
        """Remember the first form that fastjson may read, and go on."""
        if self.unsupported is None:
            where = self.position if position is None else position
            hint = "the broker may read this all the same; write it as the broker does"
            self.unsupported = UnsupportedConfigError(self.path, expected, self._found(where), position=where, hint=hint)
        return self.unsupported

    def refuse(self, expected: str) -> NoReturn:
        """Raise what fastjson may read, where going on makes no sense."""
        raise self.note(expected)

    def skip(self) -> bytes:
        """Go over blanks and comments; the next byte, or none at the end."""
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
        """The number that a match of NUMBER has found here."""
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
        """The string that starts with the quote here."""
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
        """Halves of a surrogate pair, which two escapes make, as the one character they stand for."""
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
    """Where a pattern that also matches nothing ends."""
    found = pattern.match(text, position)
    return found.end() if found else position
