"""Reads the text of a JSON header as leniently as the broker's fastjson 1.2.76.

Broker source (4.9.3): RemotingSerializable.decode, which is JSON.parseObject(text, RemotingCommand.class).
Rule: names may stand without quotes or in single quotes; comments and extra commas are skipped. After a value of the outermost object one
token that is no comma is dropped. Only blanks and comments may follow the outermost object.
Surprise: the grammar differs by level. A number can be a key in an inner object only. A comma may be missing in the outermost object and in
lists, but not in inner objects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, NoReturn

from store_format.config.fastjson_scanner import ESCAPES, SURROGATE, NumberText, end_of
from store_format.remoting.errors import JSON_EXCEPTION, FrameError

DEPTH_MAX: Final = 200  # fastjson accepts 512 levels of lists; no client writes so many
END: Final = "end of the header"

_BLANKS = re.compile(r"[ \t\n\r\f\b]*")
_CONTROLS = re.compile(r"[\x00-\x20\x7f]*")
_CONTROLS_BEHIND = re.compile(r"[\x00-\x19\x1b-\x20\x7f]*")  # 0x1a ends the text where no value is expected
_NAME = re.compile(r"[^\W\d]\w*|\$\w*")
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d{1,9})?L?|[+-]", re.ASCII)
_WORDS = {"true": True, "false": False, "null": None}
_BEHIND_WORD = re.compile(r"[\s,}\]\b]|$|/")
_FIELD_NAMES = {"body", "code", "extfields", "flag", "language", "opaque", "remark", "serializetypecurrentrpc", "version"}
_CHUNK = {quote: re.compile(rf"[^\\{quote}]*") for quote in "\"'"}
_HEX = re.compile(r"u([0-9a-fA-F]{4}|[+-][0-9a-fA-F]{3})|x([0-9a-fA-F]{2})")
_BAD_BEHIND_NUMBER = set("fFdDSBeE0123456789")
_DROPPED_BEHIND_A_FIELD = set(";)][{(.")
_OPENING = re.compile(r"\{|[}:,;)\].](?=\")|-?\d+(?=\")", re.ASCII)  # fastjson does not check the first token before an expected field


class Undefined:
    """The value NaN or undefined: most fields read it as null, an enum refuses it."""


Value = bool | str | NumberText | Undefined | list["Value"] | dict[str, "Value"] | None


class Member(NamedTuple):
    """A member of an object, with the positions in the text of its key's start, its value's start and its value's end."""

    key: str
    value: Value
    key_start: int
    start: int
    end: int


class HeaderText:
    """A header's text and a position in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.kept = True  # False while the value of an unknown field is read, whose list items are dropped

    def document(self, take: Callable[[Member], None]) -> bool:
        """Call `take` for each member of the header's object; returns False if the broker gets no command from the text."""
        if self.text.startswith("\ufeff"):
            self.position = 1
        byte = self.skip()
        start, is_command = self.position, True
        if byte == "":
            return False
        if opening := _OPENING.match(self.text, start):
            self.position = opening.end() - 1
            for member in self._members(1):
                take(member)
        elif byte == "}":  # a closing brace without an opening one
            self.position += 1
        else:
            if self._value(1, "a JSON object") not in (None, "", []):
                self.fail("a JSON object", start)
            is_command = False
        if self.skip(_CONTROLS_BEHIND) not in {"", "\x1a"}:
            self.fail(f"the {END}")
        return is_command

    def fail(self, expected: str, position: int | None = None) -> NoReturn:
        """Raise the error for a text that fastjson refuses; the position counts characters of the text."""
        at = self.position if position is None else position
        found = repr(self.text[at : at + 12]) if at < len(self.text) else f"the {END}"
        raise FrameError(JSON_EXCEPTION, expected, found, position=at)

    def skip(self, blanks: re.Pattern[str] = _CONTROLS) -> str:
        """Skip blanks and comments; returns the next character, or an empty text at the end."""
        text = self.text
        while True:
            self.position = end = end_of(blanks, text, self.position)
            opening = text[end : end + 2]
            if not opening.startswith("/"):
                return opening[:1]
            if opening == "//":
                closing = text.find("\n", end) + 1
            elif opening == "/*":
                closing = text.find("*/", end + 2) + 2
            else:
                self.fail("a comment after '/'")
            self.position = closing if closing > end else len(text)

    def _value(self, depth: int, expected: str = "a value", *, bare: bool = False) -> Value:
        """The value at the position; the caller has skipped blanks and comments. A single sign is a number: a minus only if `bare`."""
        text, start = self.text, self.position
        if depth > DEPTH_MAX:
            self.fail(f"at most {DEPTH_MAX} levels")
        letter = text[start : start + 1]
        if letter in {'"', "'"}:
            return self._string(letter)
        if letter == "{":
            return {member.key: member.value for member in self._inner_members(depth)}
        if letter == "[":
            return self._items(depth)
        if number := _NUMBER.match(text, start):
            self.position = number.end()
            if number[0] == "-" and not bare:
                self.fail("a number", start)
            if text[self.position : self.position + 1] in _BAD_BEHIND_NUMBER:
                self.fail("a number of JSON", start)
            return NumberText(number[0].lstrip("+").rstrip("L"))
        word = _NAME.match(text, start)
        if not word:
            self.fail(expected)
        self.position = word.end()
        if word[0] in {"NaN", "undefined"}:
            return Undefined()
        if word[0] not in _WORDS or not _BEHIND_WORD.match(text, self.position):
            self.fail(expected, start)
        return _WORDS[word[0]]

    def _string(self, quote: str) -> str:
        text, parts = self.text, []
        start = self.position
        self.position += 1
        while True:
            begin = self.position
            self.position = end = end_of(_CHUNK[quote], text, begin)
            parts.append(text[begin:end])
            letter = text[end : end + 1]
            if letter == quote:
                self.position += 1
                return _joined("".join(parts))
            if letter == "":
                self.fail(f"{quote} at the end of a string", start)
            parts.append(self._escape())

    def _escape(self) -> str:
        digits = _HEX.match(self.text, self.position + 1)
        if digits:
            self.position = digits.end()
            return chr(int(digits[1] or digits[2], 16) & 0xFFFF)
        letter = self.text[self.position + 1 : self.position + 2]
        if letter not in ESCAPES:
            self.fail("an escape")
        self.position += 2
        return ESCAPES[letter]

    def _members(self, depth: int) -> Iterator[Member]:
        """The members of the header's object, or of its ext fields, to which the same grammar applies."""
        self.position += 1
        while self._next("}", _BLANKS):
            start = self.position
            key = self._key()
            if (self.skip(_BLANKS) if depth > 1 else self._letter_after_blanks()) != ":":
                self.fail("':' after a key")
            self.position += 1
            opening = self.skip()
            begin = self.position
            known = self.kept = depth > 1 or plain_name(key) in _FIELD_NAMES
            value: Value
            if depth == 1 and opening == "{" and plain_name(key) == "extfields":
                value = {member.key: member.value for member in self._members(2)}
            else:
                value = self._value(depth + 1, bare=known)
            end = self.position
            yield Member(key, value, start, begin, end)
            self._drop_token(depth, words=depth > 1 or not known)

    def _letter_after_blanks(self) -> str:
        self.position = end_of(_BLANKS, self.text, self.position)
        return self.text[self.position : self.position + 1]

    def _next(self, closing: str, blanks: re.Pattern[str]) -> bool:
        """Skip commas and return True, or skip the closing bracket and return False."""
        while (letter := self.skip(blanks)) == ",":
            self.position += 1
        if letter == closing:
            self.position += 1
        return letter != closing

    def _key(self) -> str:
        letter = self.text[self.position : self.position + 1]
        if letter in {'"', "'"}:
            key = self._string(letter)
            return key if "\x1a" not in key else self.fail("a key without 0x1a")
        name = _NAME.match(self.text, self.position)
        if not name:
            self.fail("a key or '}'")
        self.position = name.end()
        return name[0]

    def _drop_token(self, depth: int, *, words: bool) -> None:
        """Skip the token after a value that is no comma and no brace, as the broker does; it skips fewer kinds after a known field."""
        letter = self.skip(_CONTROLS_BEHIND)
        if letter in {",", "}"}:
            return
        start = self.position
        if letter in {'"', "'"}:
            self._string(letter)
        elif number := _NUMBER.match(self.text, start):
            self.position = number.end()
        elif letter != "_" and (word := _NAME.match(self.text, start)):
            self.position = word.end()
            dropped = words and letter not in "tfnx"
            if not (dropped or word[0] in _WORDS) or (word[0] in _WORDS and not _BEHIND_WORD.match(self.text, self.position)):
                self.fail("',' or '}'", start)
        elif letter in {"", "\x1a"} or (letter == "]" and depth > 1) or not (words or letter in _DROPPED_BEHIND_A_FIELD):
            self.fail("',' or '}'")
        else:
            self.position += 1

    def _items(self, depth: int) -> list[Value]:
        self.position += 1
        items = []
        while self._next("]", _CONTROLS_BEHIND):
            item = self._value(depth + 1)
            if self.kept:
                items.append(item)
        return items

    def _inner_members(self, depth: int) -> Iterator[Member]:
        """The members of an inner object: no token is dropped, and any scalar can be a key."""
        self.position += 1
        while self._next("}", _BLANKS):
            start = self.position
            number = _NUMBER.match(self.text, start)
            key = str(self._value(DEPTH_MAX)) if number else self._key()
            if self.skip(_BLANKS) != ":":
                self.fail("':' after a key")
            self.position += 1
            self.skip()
            begin = self.position
            value = self._value(depth + 1)
            if key in {"@type", "$ref"} and isinstance(value, str):
                self.fail("no key that stands for a type or a reference", start)
            yield Member(key, value, start, begin, self.position)
            if self.skip(_CONTROLS_BEHIND) not in {",", "}"}:
                self.fail("',' or '}'")


def plain_name(key: str) -> str:
    """A key in the form in which fastjson compares it with a field's name: lower case, without underscores and hyphens."""
    return key.replace("_", "").replace("-", "").lower()


def _joined(value: str) -> str:
    """`value` with each surrogate pair that two escapes made joined to one character; a single half stays."""
    if not SURROGATE.search(value):
        return value
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
