"""The JSON dialect of the broker's config files, as the broker's fastjson 1.2.76 reads it.

Broker source (4.9.3): RemotingSerializable.fromJson, which is JSON.parseObject with fastjson's default features.
Rule: integer keys stand unquoted; bare names, single quotes, comments, a trailing comma and zeros behind the text are
read as well.
Surprise: whether fastjson reads a text decides between a file and its .bak, and it reads nearly everything. So there
are three outcomes, not two: a tree, which fastjson sees in the same way; ConfigFileError, where fastjson fails as well; and
UnsupportedConfigError, where fastjson may read what this reader does not, so that the .bak would be the wrong file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from store_format.errors import ConfigFileError

DEPTH_MAX = 64  # the broker's own files have six levels
INTEGER_DIGITS_MAX = 25  # more than any long; Python refuses and is slow on very long ones

BLANKS = b" \t\n\r\f\b"
_BLANKS = re.compile(rb"[ \t\n\r\f\b]*")
_SPACE = re.compile(rb"[\x00-\x20\x7f]*")  # what fastjson skips before a value or a comma
_CONTROL = re.compile(rb"[\x00-\x07\x0b\x0e-\x1f\x7f]")
_NUMBER = re.compile(rb"[+-]?(\d+)(\.\d+)?([eE][+-]?\d+)?")
_WORD = re.compile(rb"[A-Za-z_$\x80-\xff][\w\x80-\xff]*")
_TOKEN = re.compile(rb"[+-]?[\w$.]+|[\x80-\xff]+|.", re.DOTALL)
_CHUNK = {quote: re.compile(rb"[^\\" + quote + rb"]*") for quote in (b'"', b"'")}
_HEX4 = re.compile(rb"[0-9a-fA-F]{4}")
_HEX2 = re.compile(rb"[0-9a-fA-F]{2}")
_SURROGATE = re.compile("[\ud800-\udfff]")

_WORDS = {b"true": True, b"false": False, b"null": None}
_AFTER_WORD = {b"", b" ", b",", b"}", b"]", b"\n", b"\r", b"\t", b"\f", b"\b"}
_VALUES_OF_FASTJSON = {b"NaN", b"undefined", b"new", b"Set", b"TreeSet", b"x"}
_ESCAPES = {ord(letter): char for letter, char in zip("\"\\/'bfnrtvF", "\"\\/'\b\f\n\r\t\v\f", strict=True)}
_ESCAPES |= {ord(str(digit)): chr(digit) for digit in range(8)}


class UnsupportedConfigError(ConfigFileError):
    """A form that this reader does not know and fastjson may read: the broker would not go on to the .bak."""


class NumberText(str):
    """A number that is not an integer, or one of very many digits, as it was written."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Node:
    """A value and the bytes [start, end) it was read from; an object is a tuple of its (key, value) pairs."""

    start: int
    end: int
    value: bool | int | str | list[Node] | tuple[tuple[Node, Node], ...] | None


def parse_json(text: bytes, path: str) -> Node:
    """The tree of a config file's text, in one pass; a text of blanks only is null, as it is for fastjson.

    `path` names the file in errors. Raises ConfigFileError and UnsupportedConfigError (see the module).
    """
    if not text.strip(BLANKS):
        return Node(0, len(text), None)
    reader = _Reader(text, path)
    root = reader.document()
    if reader.unsupported is not None:
        raise reader.unsupported
    return root


def plain(node: Node) -> object:
    """The values of a tree: dict (of equal keys the last counts), list, str, int, bool, None, NumberText."""
    if isinstance(node.value, tuple):
        return {key.value: plain(value) for key, value in node.value}
    if isinstance(node.value, list):
        return [plain(item) for item in node.value]
    return node.value


class _Reader:
    """Recursive descent over the bytes; `position` only grows.

    A form that fastjson may read and this reader does not is remembered, and raised once the rest of the text has been
    read: where a later byte makes fastjson fail too, that failure counts.
    """

    def __init__(self, text: bytes, path: str) -> None:
        self.text = text
        self.path = path
        self.position = 0
        self.unsupported: UnsupportedConfigError | None = None

    def document(self) -> Node:
        """One value, then blanks, zeros and comments up to the end."""
        if self.text.startswith(b"\xef\xbb\xbf"):
            self.position = 3
        self._skip()
        root = self._value(1)
        if self.text[self.position :].strip(BLANKS + b"\0") and self._skip():
            self._fail("the end of the file")
        return root

    def _found(self, position: int) -> str:
        return repr(self.text[position : position + 12]) if position < len(self.text) else "the end of the file"

    def _fail(self, expected: str) -> NoReturn:
        raise ConfigFileError(self.path, expected, self._found(self.position), position=self.position)

    def _note(self, expected: str, position: int | None = None) -> UnsupportedConfigError:
        if self.unsupported is None:
            where = self.position if position is None else position
            hint = "the broker may read this all the same; write it as the broker does"
            self.unsupported = UnsupportedConfigError(
                self.path, expected, self._found(where), position=where, hint=hint
            )
        return self.unsupported

    def _refuse(self, expected: str) -> NoReturn:
        raise self._note(expected)

    def _skip(self) -> bytes:
        """Go over blanks and comments; the next byte, or none at the end."""
        text = self.text
        while True:
            start = self.position
            self.position = end = _end(_SPACE, text, start)
            if end > start and (control := _CONTROL.search(text, start, end)):
                self._note("no control character outside of strings", control.start())
            opening = text[end : end + 2]
            if opening == b"//":
                closing = text.find(b"\n", end) + 1
            elif opening == b"/*":
                closing = text.find(b"*/", end + 2) + 2
                if closing < end:
                    self._note("'*/' after '/*'")
            else:
                return opening[:1]
            self.position = closing if closing > end else len(text)

    def _value(self, depth: int) -> Node:
        """The value that starts here; the caller has skipped what comes before it."""
        if depth > DEPTH_MAX:
            self._refuse(f"at most {DEPTH_MAX} levels")
        start = self.position
        byte = self.text[start : start + 1]
        if byte in {b'"', b"'"}:
            return self._string(byte)
        if byte == b"{":
            members = tuple(self._members(depth))
            return Node(start, self.position, members)
        if byte == b"[":
            items = list(self._items(depth))
            return Node(start, self.position, items)
        if number := _NUMBER.match(self.text, start):
            return self._number(number)
        word = _WORD.match(self.text, start)
        if byte in {b"+", b",", b"}"} or (word and word.group() in _VALUES_OF_FASTJSON):
            self._refuse("a value of JSON")
        if byte == b"":
            self._fail("a value")
        if not word or word.group() not in _WORDS:  # fastjson may go on as if this were an opening brace
            self._note("a value")
            self.position = _end(_TOKEN, self.text, start) - 1
            return Node(start, start, tuple(self._members(depth)))
        self.position = word.end()
        if self.text[self.position : self.position + 1] not in _AFTER_WORD:
            self._note("a blank, comma or bracket behind a word")
        return Node(start, self.position, _WORDS[word.group()])

    def _more(self, closing: bytes) -> bool:
        """Go over the comma to the next member or item; False at the closing bracket, which is taken."""
        byte = self._skip()
        if byte == b",":
            self.position += 1
            while (byte := self._skip()) == b",":
                self._note("a single comma")
                self.position += 1
        if byte == closing:
            self.position += 1
        return byte != closing

    def _items(self, depth: int) -> Iterator[Node]:
        self.position += 1
        if self._skip() == b",":
            self._note("a value, not a comma")
        while self._more(b"]"):
            yield self._value(depth + 1)
            if self._skip() not in {b",", b"]", b""}:
                self._note("',' or ']'")

    def _members(self, depth: int) -> Iterator[tuple[Node, Node]]:
        self.position += 1
        if self._skip() == b",":
            self._note("a key, not a comma")
        while self._more(b"}"):
            key = self._key()
            colon = _end(_BLANKS, self.text, self.position)
            if self._skip() != b":":
                self._fail("':'")
            if self.position != colon:
                self._note("':' right behind the key", key.end)
            self.position += 1
            self._skip()
            value = self._value(depth + 1)
            if key.value == "@type" or (key.value == "$ref" and isinstance(value.value, str)):
                self._note("no key that stands for a type or a reference", key.start)
            yield key, value
            self._end_of_member(key, value)

    def _end_of_member(self, key: Node, value: Node) -> None:
        """Without a comma fastjson reads on behind an integer key, and drops one token of any kind behind another."""
        byte = self._skip()
        if byte in {b",", b"}", b""}:
            return
        self._note("',' or '}'")
        if isinstance(key.value, int) or str(key.value).lstrip("+-").isdigit():
            return
        if isinstance(value.value, int | NumberText):  # here it depends on the class of the field
            self._refuse("',' or '}'")
        if byte in {b'"', b"'"}:
            self._string(byte)
        else:
            self.position = _end(_TOKEN, self.text, self.position)

    def _key(self) -> Node:
        start = self.position
        byte = self.text[start : start + 1]
        if byte in {b'"', b"'"}:
            return self._string(byte)
        if number := _NUMBER.match(self.text, start):
            node = self._number(number)
            if not isinstance(node.value, int):
                self._note("an integer as key", start)
            return node
        if byte in {b"{", b"[", b"+"}:
            self._refuse("a key")
        word = _WORD.match(self.text, start)
        if not word:
            self._fail("a key or '}'")
        if word.group() == b"null" or not word.group().isascii():
            self._note("a key in quotes", start)
        self.position = word.end()
        return Node(start, word.end(), word.group().decode("utf-8", "replace"))

    def _number(self, number: re.Match[bytes]) -> Node:
        self.position = number.end()
        written = number.group().decode()
        if written.startswith("+"):
            self._note("a number without '+'", number.start())
        if self.text[self.position : self.position + 1] in {b".", b"L", b"S", b"B", b"F", b"D"}:
            self._note("a number of JSON", number.start())
            self.position += 1
        integer = not number.group(2) and not number.group(3) and len(number.group(1)) <= INTEGER_DIGITS_MAX
        return Node(number.start(), number.end(), int(written) if integer else NumberText(written))

    def _string(self, quote: bytes) -> Node:
        start = self.position
        self.position += 1
        parts: list[str] = []
        while True:
            begin = self.position
            self.position = end = _end(_CHUNK[quote], self.text, begin)
            try:
                parts.append(self.text[begin:end].decode())
            except UnicodeDecodeError as error:
                self._note("UTF-8 (a broker writes in the charset of its JVM)", begin + error.start)
            byte = self.text[end : end + 1]
            if byte == quote:
                break
            if byte == b"":
                self._fail(f"{quote.decode()} at the end of a string")
            parts.append(self._escape())
        self.position += 1
        if b"\x1a" in self.text[start : self.position]:
            self._note("no 0x1a, which may end a text for fastjson", start)
        return Node(start, self.position, self._joined("".join(parts), start))

    def _joined(self, value: str, start: int) -> str:
        """Halves of a surrogate pair, which two escapes make, as the one character they stand for."""
        if not _SURROGATE.search(value):
            return value
        try:
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            self._note("no half of a surrogate pair", start)
            return value

    def _escape(self) -> str:
        text, start = self.text, self.position
        letter = text[start + 1 : start + 2]
        if letter in {b"u", b"x"}:
            pattern, length = (_HEX4, 4) if letter == b"u" else (_HEX2, 2)
            digits = text[start + 2 : start + 2 + length]
            if pattern.fullmatch(digits):
                self.position += 2 + length
                return chr(int(digits, 16))
            java_parses = letter == b"x" or digits[:1] in {b"+", b"-"} or not digits.isascii()
            if len(digits) == length and java_parses:
                self._refuse(f"{length} hexadecimal digits")
            self._fail(f"{length} hexadecimal digits")
        if not letter or letter[0] not in _ESCAPES:
            self._fail("an escape")
        self.position += 2
        return _ESCAPES[letter[0]]


def _end(pattern: re.Pattern[bytes], text: bytes, position: int) -> int:
    """Where a pattern that also matches nothing ends."""
    found = pattern.match(text, position)
    return found.end() if found else position
