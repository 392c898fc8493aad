"""The JSON dialect of the broker's config files, as the broker's fastjson 1.2.76 reads it.

Broker source (4.9.3): RemotingSerializable.fromJson, which is JSON.parseObject with fastjson's default features.
Rule: integer keys have no quotes. Bare names, single quotes, comments, a trailing comma and zeros after the text are allowed.
Surprise: the broker reads a .bak only if fastjson fails on the file, and fastjson reads nearly every text: in a garbled one it often drops
a token and goes on, and 0x1a may end the text. So this reader has three outcomes. A tree: fastjson reads the same. ConfigFileError:
fastjson fails too. UnsupportedConfigError: fastjson may read the text, this reader does not, and the .bak would be the wrong file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from store_format.config.fastjson_scanner import BLANKS, NUMBER, QUOTES, Node, NumberText, Scanner, end_of
from store_format.errors import ConfigFileError

DEPTH_MAX = 64  # the broker's own files have six levels

_BLANKS = re.compile(rb"[ \t\n\r\f\b]*")
_WORD = re.compile(rb"[A-Za-z_$\x80-\xff][\w\x80-\xff]*")
_TOKEN = re.compile(rb"[+-]?[\w$.]+|[\x80-\xff]+|.", re.DOTALL)
_WORDS = {b"true": True, b"false": False, b"null": None}
_AFTER_WORD = {b"", b" ", b",", b"}", b"]", b"\n", b"\r", b"\t", b"\f", b"\b"}
_VALUES_OF_FASTJSON = {b"NaN", b"undefined", b"new", b"Set", b"TreeSet", b"x", b"Null", b"NULL"}


def parse_json(text: bytes, path: str) -> Node:
    """The tree of a config file's text; a text of blanks only is null, as it is for fastjson.

    Raises:
        ConfigFileError: fastjson fails too. The position is that of the first byte that a broker does not write there.
        UnsupportedConfigError: fastjson may read the text, this reader does not.
    """
    if not text.strip(BLANKS):
        return Node(0, len(text), None)
    parser = _Parser(text, path)
    try:
        root = parser.document()
    except ConfigFileError as error:
        ended = text.find(b"\x1a", 0, (error.position or 0) + 1)
        if ended >= 0:
            raise parser.note("no 0x1a, which may end a text for fastjson", ended) from error
        first = parser.unsupported
        if first is None or first is error:
            raise
        raise ConfigFileError(path, first.expected, first.found, position=first.position) from error
    if parser.unsupported is not None:
        raise parser.unsupported
    return root


def plain(node: Node) -> object:
    """The plain value of a tree: dict (the last of equal keys counts), list, str, int, bool, None or NumberText."""
    if isinstance(node.value, tuple):
        return {key.value: plain(value) for key, value in node.value}
    if isinstance(node.value, list):
        return [plain(item) for item in node.value]
    return node.value


class _Parser(Scanner):
    """A recursive descent parser; `depth` counts the objects and lists around a value."""

    def document(self) -> Node:
        """The value of the text; only blanks, zeros and comments may follow it."""
        if self.text.startswith(b"\xef\xbb\xbf"):
            self.position = 3
        self.skip()
        root = self._value(1)
        if self.text[self.position :].strip(BLANKS + b"\0") and self.skip():
            if isinstance(root.value, tuple | list | None):
                self.fail("the end of the file")
            self.refuse("the end of the file")  # fastjson may drop the value and read the rest as members
        return root

    def _value(self, depth: int) -> Node:
        """The value that starts at the position; the caller has skipped blanks and comments before it."""
        if depth > DEPTH_MAX:
            self.refuse(f"at most {DEPTH_MAX} levels")
        start = self.position
        byte = self.text[start : start + 1]
        if byte in QUOTES:
            return self.string(byte)
        if byte == b"{":
            members = tuple(self._members(depth))
            return Node(start, self.position, members)
        if byte == b"[":
            items = list(self._items(depth))
            return Node(start, self.position, items)
        if number := NUMBER.match(self.text, start):
            return self.number(number)
        word = _WORD.match(self.text, start)
        if byte in {b"+", b",", b"}"} or (word and word.group() in _VALUES_OF_FASTJSON):
            self.refuse("a value of JSON")
        if byte == b"":
            self.fail("a value")
        if not word or word.group() not in _WORDS:  # fastjson may go on as if this were an opening brace
            self.note("a value")
            self.position = end_of(_TOKEN, self.text, start) - 1
            return Node(start, start, tuple(self._members(depth)))
        self.position = word.end()
        if self.text[self.position : self.position + 1] not in _AFTER_WORD:
            self.note("a blank, comma or bracket after a word")
        return Node(start, self.position, _WORDS[word.group()])

    def _more(self, closing: bytes) -> bool:
        """Skip the comma and return True, or skip the closing bracket and return False."""
        byte = self.skip()
        if byte == b",":
            self.position += 1
            while (byte := self.skip()) == b",":
                self.note("a single comma")
                self.position += 1
        if byte == closing:
            self.position += 1
        return byte != closing

    def _items(self, depth: int) -> Iterator[Node]:
        self.position += 1
        if self.skip() == b",":
            self.note("a value, not a comma")
        while self._more(b"]"):
            yield self._value(depth + 1)
            if self.skip() not in {b",", b"]", b""}:
                self.note("',' or ']'")

    def _members(self, depth: int) -> Iterator[tuple[Node, Node]]:
        self.position += 1
        if self.skip() == b",":
            self.note("a key, not a comma")
        while self._more(b"}"):
            key = self._key()
            if self.text[self.position : self.position + 1] != b":":
                self._to_colon(key)
            self.position += 1
            self.skip()
            value = self._value(depth + 1)
            if key.value == "@type" or (key.value == "$ref" and isinstance(value.value, str)):
                self.note("no key that stands for a type or a reference", key.start)
            yield key, value
            self._end_of_member(key, value)

    def _to_colon(self, key: Node) -> None:
        """Skip blanks to the colon after a key; fastjson also allows comments and control characters there after some keys."""
        colon = end_of(_BLANKS, self.text, self.position)
        if self.skip() != b":":
            self.fail("':'")
        if self.position != colon:
            self.note("':' right after the key", key.end)

    def _end_of_member(self, key: Node, value: Node) -> None:
        """Check what follows a member; without a comma fastjson goes on after an integer key, and drops one token after another key."""
        numeric = isinstance(value.value, int | NumberText)
        if numeric and self.text.startswith(b"/", end_of(_BLANKS, self.text, self.position)):
            self.note("no comment after a number")  # after a comment in a field of type long, fastjson misreads the rest
        byte = self.skip()
        if byte in {b",", b"}", b""}:
            return
        self.note("',' or '}'")
        if isinstance(key.value, int) or str(key.value).lstrip("+-").isdigit():
            return
        # what fastjson does here depends on the class of the field; a null may end the whole text
        if byte in {b"[", b"]"} or numeric or self.text.startswith(b"null", self.position):
            self.refuse("',' or '}'")
        if byte in QUOTES:
            self.string(byte)
        else:
            self.position = end_of(_TOKEN, self.text, self.position)

    def _key(self) -> Node:
        start = self.position
        byte = self.text[start : start + 1]
        if byte in QUOTES:
            return self.string(byte)
        if number := NUMBER.match(self.text, start):
            node = self.number(number)
            if not isinstance(node.value, int):
                self.note("an integer as key", start)
            return node
        if byte in {b"{", b"[", b"+"}:
            self.refuse("a key")
        word = _WORD.match(self.text, start)
        if not word:
            self.fail("a key or '}'")
        if word.group() == b"null" or not word.group().isascii():
            self.note("a key in quotes", start)
        self.position = word.end()
        return Node(start, word.end(), word.group().decode("utf-8", "replace"))
