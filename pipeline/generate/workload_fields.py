"""Readers for the fields of a workload file: the values that each kind of field allows, and the errors for other values.

Not the broker's code. A reader takes a value as JSON or TOML decodes it, and its place for errors, and returns the field's value.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from pipeline.settings.quantities import duration_in_seconds
from pipeline.settings.settings import Value, nearest
from store_format.errors import StoreError
from store_format.record.message import Host

Reader = Callable[[object, str], Any]
Shares = tuple[tuple[str, float], ...]
Range = tuple[int, int]

_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")
_SYSTEM_TOPICS = {"SCHEDULE_TOPIC_XXXX", "TBW102", "BenchmarkTest", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"}
_NO_VALUE = re.compile(r"[\x00-\x02\ud800-\udfff]")
MAX_PROPERTIES = 5  # with the properties that broker and client add, at most the twelve of a HashMap of sixteen buckets
MADE_PROPERTIES = ("TAGS", "KEYS", "UNIQ_KEY", "CLUSTER", "DELAY", "REAL_TOPIC", "REAL_QID")
TRANSACTIONS = {"none": 0x0, "prepared": 0x4, "commit": 0x8, "rollback": 0xC}


class WorkloadError(StoreError):
    """A workload that cannot be used."""


def _refuse(where: str, expected: str, found: object) -> NoReturn:
    raise WorkloadError(where, expected, repr(found))


def unknown_name(where: str, expected: str, name: str, known: Sequence[str]) -> WorkloadError:
    """The error for a name that is not in `known`; it names the nearest known name."""
    near = nearest(name, known, 1)
    hint = f"the nearest known name is {near[0]}" if near else ""
    return WorkloadError(where, expected, repr(name), hint=hint)


def whole_number(least: int, most: int = 2**31 - 1) -> Reader:
    """A reader of whole numbers from `least` to `most`."""

    def read(value: object, where: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            _refuse(where, f"a whole number from {least} to {most}", value)
        return value

    return read


def number(least: float, most: float = 1e9) -> Reader:
    """A reader of numbers from `least` to `most`."""

    def read(value: object, where: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            _refuse(where, f"a number from {least:g} to {most:g}", value)
        return float(value)

    return read


def flag(value: object, where: str) -> bool:
    """Read true or false."""
    return value if isinstance(value, bool) else _refuse(where, "true or false", value)


def span(least: int, most: int) -> Reader:
    """A reader of a range: a number, or [least, greatest]."""

    def read(value: object, where: str) -> Range:
        ends: list[Any] = value if isinstance(value, list) else [value, value]
        if len(ends) != 2 or not all(isinstance(end, int) and not isinstance(end, bool) and least <= end <= most for end in ends):
            _refuse(where, f"a whole number from {least} to {most}, or [least, greatest]", value)
        return (ends[0], ends[1]) if ends[0] <= ends[1] else _refuse(where, "the lesser number first", value)

    return read


def text(value: object, where: str) -> str:
    """Read a text that can be a property's value."""
    if not isinstance(value, str) or _NO_VALUE.search(value):
        _refuse(where, "a text without the bytes 0 to 2 and half surrogate pairs", value)
    return value


def topic_name(value: object, where: str) -> str:
    """Read a name that a broker allows for a topic and that is not the name of one of its own topics."""
    if not isinstance(value, str) or not _TOPIC.fullmatch(value) or value in _SYSTEM_TOPICS or value.startswith("RMQ_SYS_"):
        _refuse(where, "a name of up to 127 of % | a-z A-Z 0-9 _ -, not one of the broker's own", value)
    return value


def group_name(value: object, where: str) -> str:
    """Read a name of a consumer group."""
    if not isinstance(value, str) or not _TOPIC.fullmatch(value) or len(value) > 120:
        _refuse(where, "a name of up to 120 of % | a-z A-Z 0-9 _ -", value)
    return value


def shares(value: object, where: str) -> Shares:
    """Read {value: weight}, or [value, ...] with equal weights."""
    pairs = dict.fromkeys(value, 1) if isinstance(value, list) and all(isinstance(one, str) for one in value) else value
    if not isinstance(pairs, dict) or not pairs:
        _refuse(where, "{ value = weight, ... } or [value, ...]", value)
    found = tuple((text(name, where), number(0.0)(weight, f"{where}, {name}")) for name, weight in pairs.items())
    return found if sum(weight for _, weight in found) > 0 else _refuse(where, "a weight above 0", value)


def levels(value: object, where: str) -> tuple[tuple[int, float], ...]:
    """Read delay levels with their weights."""
    found = shares(value, where)
    for level, _ in found:
        if not level.isascii() or not level.isdigit() or len(level) > 9:
            _refuse(where, "delay levels from 0 (none) on", level)
    return tuple((int(level), weight) for level, weight in found)


def transactions(value: object, where: str) -> Shares:
    """Read types of transaction with their weights."""
    found = shares(value, where)
    for name, _ in found:
        if name not in TRANSACTIONS:
            raise unknown_name(where, f"one of {', '.join(TRANSACTIONS)}", name, list(TRANSACTIONS))
    return found


def own_properties(value: object, where: str) -> dict[str, Shares]:
    """Read properties with their values."""
    if not isinstance(value, dict) or len(value) > MAX_PROPERTIES:
        _refuse(where, f"up to {MAX_PROPERTIES} properties with their values", value)
    for name in value:
        if not name or _NO_VALUE.search(name) or name in MADE_PROPERTIES:
            _refuse(where, f"a name that is none of {', '.join(MADE_PROPERTIES)}", name)
    return {name: shares(values, f"{where}, {name}") for name, values in value.items()}


def host(value: object, where: str) -> Host:
    """Read address:port; an IPv6 address stands in brackets."""
    address, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    try:
        packed = ipaddress.ip_address(address.removeprefix("[").removesuffix("]")).packed
        return Host(address=packed, port=int(port)) if 0 < int(port) < 2**16 else _refuse(where, "a port from 1 to 65535", value)
    except ValueError:
        _refuse(where, "address:port, as in 10.0.0.1:10911 or [::1]:10911", value)


def list_of(of: Reader) -> Reader:
    """A reader of lists that are not empty; `of` reads each item."""

    def read(value: object, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list) or not value:
            _refuse(where, "a list that is not empty", value)
        return tuple(of(one, f"{where}[{index}]") for index, one in enumerate(value))

    return read


def time(value: object, where: str) -> int:
    """Read a time as ms since 1970: a number of ms, a TOML date and time, or its text; UTC without a time zone."""
    if isinstance(value, str):
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError:
            _refuse(where, "a date and time, as in 2026-01-01T00:00:00Z", value)
    if isinstance(value, dt.datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
        value = (aware - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)
    found: int = whole_number(1, 4_102_444_800_000)(value, where)
    return found


def duration(value: object, where: str) -> float:
    """Read a duration in seconds: a number, or a text with the unit ms, s, m, h or d."""
    seconds = duration_in_seconds(value) if isinstance(value, str) else None
    length: float = number(0.0)(value if seconds is None else seconds, where)
    return length


def settings(value: object, where: str) -> dict[str, Value]:
    """Read the broker's settings, which are checked where they are used."""
    if not isinstance(value, dict) or not all(isinstance(one, bool | int | str) for one in value.values()):
        _refuse(where, "settings of the broker by their own names", value)
    return value


def table_of(kind: type[Any], readers: Mapping[str, Reader], required: Sequence[str] = ("name",)) -> Reader:
    """A reader of tables with known fields, which become objects of class `kind`."""

    def read(value: object, where: str) -> Any:
        if not isinstance(value, dict):
            _refuse(where, "a table of fields", value)
        for name in value:
            if name not in readers:
                raise unknown_name(where, f"one of the fields {', '.join(readers)}", str(name), list(readers))
        for name in required:
            if name not in value:
                raise WorkloadError(where, f"the field {name}", "none")
        return kind(**{name: readers[name](one, f"{where}, {name}") for name, one in value.items()})

    return read
