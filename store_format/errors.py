"""The errors for a store, a file or a record that cannot be used; their texts say what to do.

Statuses of the broker (OFFSET_TOO_SMALL and others) are values, never exceptions.
"""

from __future__ import annotations

import re
from typing import Any, Self

# A line of every traceback of an UnusableInputError, also of a traceback that a Spark worker sends to the driver as text.
EXIT_CODE_NOTE = "pullsim: exit code 2"
# an error of a worker, as the driver gets it: the last lines of a traceback, which begin with the error's class
_CLASS = r"(?:\w+\.)+\w+: "
_QUOTED = re.compile(rf"^{_CLASS}(?P<text>.*\n(?:(?!{_CLASS}).*\n)*?)\s*{re.escape(EXIT_CODE_NOTE)}$", re.MULTILINE)

# user and password of a URI (a secret of S3 may have slashes), and the parameters of a URI
_USER = re.compile(r"\b(?:s3[an]?://(?P<keys>[^\s/@:]*:[^\s@]*)|(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<user>[^\s/@?#]+))@", re.IGNORECASE)
_PARAMETERS = re.compile(r"(?<=://)[^\s?]*\?[^\s?/]+=\S*")
_VALUE = re.compile(r"(?<==)[^&\s'\"]*[^&\s'\":,;.)]")
# file systems in whose URIs a name alone before the @ is a container or a user
_WITH_NAMES = {"abfs", "abfss", "wasb", "wasbs", "hdfs", "viewfs", "webhdfs"}
_HIDDEN = "***"

# most characters of a value from outside in an error's text
SHOWN_MAX = 160


def quoted_error(message: str) -> str | None:
    """The text of the UnusableInputError that a worker raised, in the message that the driver gets; None if the worker raised none."""
    found = _QUOTED.search(message)
    return None if found is None else found["text"].strip()


def printable(text: str) -> str:
    """The text with an escape in place of each character that is not printable: control characters, line ends, changes of direction."""
    return text if text.isprintable() else "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def first_line(error: Exception) -> str:
    """The first line of an error's text, printable: libraries add traces of their own."""
    return printable(str(error).split("\n", 1)[0])


def without_credentials(text: str) -> str:
    """The text with *** in place of each URI's user and password, everywhere in the text, and of the values of its parameters."""
    if "://" not in text:
        return text
    for found in _USER.finditer(text):
        user = found["keys"] or found["user"]
        if ":" in user or found["scheme"].lower() not in _WITH_NAMES:
            text = text.replace(user, _HIDDEN)
    return _PARAMETERS.sub(lambda found: _VALUE.sub(_HIDDEN, found.group()), text)


def shown(value: object) -> str:
    """A value from outside as an error's text shows it: short, and printable.

    Args:
        value: any value. Bytes are decoded as UTF-8 first; the repr of the text or value is shown.

    Returns:
        SHOWN_MAX characters of the value, and `...` if it is longer. Characters that are not printable are escapes.
    """
    if isinstance(value, bytes):
        value = value[: 4 * SHOWN_MAX + 1].decode("utf-8", "backslashreplace")
    if isinstance(value, str):
        quoted = repr(value[: SHOWN_MAX + 1])
        return quoted if len(quoted) <= SHOWN_MAX + 2 else f"{quoted[: SHOWN_MAX + 1]}...{quoted[0]}"
    try:
        text = repr(value)
    except ValueError:  # Python writes no integer of more than 4300 digits
        return f"an integer of {value.bit_length()} bits" if isinstance(value, int) else f"a {type(value).__name__} with a number too long"
    except RecursionError:
        return f"a {type(value).__name__} nested too deeply"
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


class UnusableInputError(Exception):
    """Input that cannot be used: a file, an option, a request, a lake.

    The error's text says where the input is, what was expected, what was found, and what to do; URIs in it are without credentials. Every
    instance carries EXIT_CODE_NOTE as a note (PEP 678), so that the text of a traceback alone shows that the input is to blame.
    """

    def __new__(cls, *arguments: Any, **named: Any) -> Self:
        """Make the error and add the note."""
        error = super().__new__(cls, *arguments, **named)
        error.add_note(EXIT_CODE_NOTE)
        return error

    def __str__(self) -> str:
        return without_credentials(super().__str__())


class StoreError(UnusableInputError):
    """A store, file or record that cannot be used.

    Attributes:
        path: file or directory, as the user named it.
        position: byte offset in that file, or None if the error is about the whole file.
        expected: what should be there.
        found: what is there.
        hint: what to do about it, or an empty string.
    """

    def __init__(self, path: str, expected: str, found: str, *, position: int | None = None, hint: str = "") -> None:
        super().__init__(path, expected, found, position, hint)
        self.path = path
        self.position = position
        self.expected = expected
        self.found = found
        self.hint = hint

    def __str__(self) -> str:
        where = self.path if self.position is None else f"{self.path}, byte {self.position}"
        hint = f"; {self.hint}" if self.hint else ""
        return without_credentials(f"{where}: expected {self.expected}, found {self.found}{hint}")

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the keyword arguments too, which exceptions lose by default on the way from a Spark worker to the driver."""
        return (_rebuild, (type(self), self.path, self.expected, self.found, self.position, self.hint))


def _rebuild(kind: type[StoreError], path: str, expected: str, found: str, position: int | None, hint: str) -> StoreError:
    return kind(path, expected, found, position=position, hint=hint)


class NotAStoreError(StoreError):
    """The path is not the store directory of a broker."""


class UnsupportedStoreError(StoreError):
    """The store has a part that a broker reads and that is not modelled."""


class CorruptStoreError(StoreError):
    """Bytes that a broker does not write, or that its load or start would change."""


class ConfigFileError(StoreError):
    """A file under config/ that a broker does not write."""
