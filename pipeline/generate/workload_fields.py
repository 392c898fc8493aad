"""Types of the fields of workload and scenario files: the values that a field allows, and the errors for other values.

Not the broker's code. pydantic reads a table of a file as a `FileTable`. Validators take a value as JSON or TOML decodes it.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
from collections.abc import Callable, Collection, Iterable
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, TypeAdapter, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from pipeline.settings.quantities import duration_in_seconds, milliseconds
from pipeline.settings.settings import Value, nearest
from store_format.errors import StoreError, shown
from store_format.record.message import Host

Item = TypeVar("Item")
Range = tuple[int, int]

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
_LEVEL = re.compile(r"[0-9]{1,9}")
_SYSTEM_TOPICS = {"SCHEDULE_TOPIC_XXXX", "TBW102", "BenchmarkTest", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"}
_NO_VALUE = re.compile(r"[\x00-\x02\ud800-\udfff]")
MAX_PROPERTIES = 5  # with the properties that broker and client add, at most twelve: a HashMap of sixteen buckets grows with the thirteenth
MADE_PROPERTIES = ("TAGS", "KEYS", "UNIQ_KEY", "CLUSTER", "DELAY", "REAL_TOPIC", "REAL_QID")
TRANSACTIONS = {"none": 0x0, "prepared": 0x4, "commit": 0x8, "rollback": 0xC}
# what is expected, by the type of pydantic's own errors
_EXPECTED = {
    "bool_type": "true or false",
    **dict.fromkeys(("tuple_type", "too_short"), "a list that is not empty"),
    **dict.fromkeys(("dict_type", "too_long"), f"up to {MAX_PROPERTIES} properties with their values"),
}


# what is expected and found if Python gives up on a file because of its many levels
TOO_DEEP = ("a file as the documentation shows it", "values nested too deeply")


class WorkloadError(StoreError):
    """A workload that cannot be used."""


def refused(expected: str, **more: str) -> PydanticCustomError:
    """Return a validator's error; `more` has the hint, and the text of what was found if it is not the whole value."""
    return PydanticCustomError("refused", "{expected}", {"expected": expected, **more})


def _near(name: object, known: Iterable[str]) -> dict[str, str]:
    near = nearest(name, known, 1) if isinstance(name, str) else []
    return {"found": shown(name), "hint": f"the nearest known name is {near[0]}" if near else ""}


def unknown_name(where: str, expected: str, name: str, known: Iterable[str]) -> WorkloadError:
    """Return the error for a name that is not in `known`; it names the nearest known name."""
    near = _near(name, known)
    return WorkloadError(where, expected, near["found"], hint=near["hint"])


class FileTable(BaseModel):
    """A table of a file: it has the fields of the class, and no others."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, found: object) -> object:
        if not isinstance(found, dict):
            raise refused("a table of fields")
        for name in found:
            if name not in cls.model_fields:
                raise refused(f"one of the fields {', '.join(cls.model_fields)}", **_near(name, cls.model_fields))
        return found

    @classmethod
    def of(cls, found: object, where: str) -> Self:
        """Return the table in the decoded content of a file; `where` is its place.

        Raises:
            WorkloadError: a field is unknown, is missing or has a wrong value.
        """
        try:
            return cls.model_validate(found)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place, told = first["loc"], first.get("ctx", {})
            if first["type"] == "missing":
                place, told = place[:-1], {"expected": f"the field {place[-1]}", "found": "none"}
            elif place[-1:] == ("[key]",):
                place = place[:-2]
            names = "".join(f"[{name}]" if isinstance(name, int) else f", {name}" for name in place)
            expected = told.get("expected") or _EXPECTED.get(first["type"], first["msg"])
            raise WorkloadError(where + names, expected, told.get("found") or shown(first["input"]), hint=told.get("hint", "")) from error


def only(expected: str, allows: Callable[[Any], object], to: Callable[[Any], Any] = lambda value: value) -> PlainValidator:
    """Return a validator that accepts the values for which `allows` is true; `to` turns an accepted value into the field's value."""

    def check(value: object) -> Any:
        if not allows(value):
            raise refused(expected)
        return to(value)

    return PlainValidator(check)


def whole_number(least: int, most: int = 2**31 - 1) -> PlainValidator:
    """Return the validator of whole numbers from `least` to `most`."""
    return only(f"a whole number from {least} to {most}", lambda value: type(value) is int and least <= value <= most)


def number(least: float, most: float = 1e9) -> PlainValidator:
    """Return the validator of numbers from `least` to `most`."""
    return only(f"a number from {least:g} to {most:g}", lambda value: type(value) in {int, float} and least <= value <= most, float)


def span(least: int, most: int) -> PlainValidator:
    """Return the validator of a range: a number, or [least, greatest]."""

    def check(value: object) -> Range:
        ends: list[Any] = value if isinstance(value, list) else [value, value]
        if len(ends) != 2 or not all(type(end) is int and least <= end <= most for end in ends):
            raise refused(f"a whole number from {least} to {most}, or [least, greatest]")
        if ends[0] > ends[1]:
            raise refused("the lesser number first")
        return ends[0], ends[1]

    return PlainValidator(check)


def one_of(names: Collection[str], to: Callable[[str], Any] = str) -> PlainValidator:
    """Return the validator of a text that must be one of `names`; `to` turns the text into the field's value."""

    def check(value: object) -> Any:
        if not isinstance(value, str) or value not in names:
            raise refused(f"one of {', '.join(names)}", **_near(value, names))
        return to(value)

    return PlainValidator(check)


def weights(of: Any) -> PlainValidator:
    """Return the validator of {value: weight}, or [value, ...] with equal weights; `of` is the type of a value."""
    pairs = TypeAdapter(dict[of, Annotated[float, number(0.0)]])

    def check(value: object) -> tuple[tuple[Any, float], ...]:
        given = dict.fromkeys(value, 1) if isinstance(value, list) and all(isinstance(one, str) for one in value) else value
        if not isinstance(given, dict) or not given:
            raise refused("{ value = weight, ... } or [value, ...]")
        found = pairs.validate_python(given)
        if not sum(found.values()):
            raise refused("a weight above 0")
        return tuple(found.items())

    return PlainValidator(check)


_TIME: TypeAdapter[int] = TypeAdapter(Annotated[int, whole_number(1, 4_102_444_800_000)])
_SECONDS: TypeAdapter[float] = TypeAdapter(Annotated[float, number(0.0)])


def host(value: object) -> Host:
    """Return the host of address:port; an IPv6 address stands in brackets."""
    address, _, digits = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    try:
        packed, port = ipaddress.ip_address(address.removeprefix("[").removesuffix("]")).packed, int(digits)
    except ValueError:
        raise refused("address:port, as in 10.0.0.1:10911 or [::1]:10911") from None
    if not 0 < port < 2**16:
        raise refused("a port from 1 to 65535")
    return Host(address=packed, port=port)


def time(value: object) -> int:
    """Return ms since 1970 of a number of ms, a TOML date and time, or its text; UTC without a time zone."""
    if isinstance(value, str):
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError:
            raise refused("a date and time, as in 2026-01-01T00:00:00Z") from None
    return _TIME.validate_python(milliseconds(value) if isinstance(value, dt.datetime) else value)


def duration(value: object) -> float:
    """Return the seconds of a number, or of a text with the unit ms, s, m, h or d."""
    seconds = duration_in_seconds(value) if isinstance(value, str) else None
    return _SECONDS.validate_python(value if seconds is None else seconds)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and not _NO_VALUE.search(value)


def _is_name(value: object, most: int) -> bool:
    return isinstance(value, str) and len(value) <= most and bool(_NAME.fullmatch(value))


def _is_topic(value: object) -> bool:
    return _is_name(value, 127) and value not in _SYSTEM_TOPICS and not str(value).startswith("RMQ_SYS_")


def _are_settings(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(one, bool | int | str) for one in value.values())


Text = Annotated[str, only("a text without the bytes 0 to 2 and half surrogate pairs", _is_text)]
GroupName = Annotated[str, only("a name of up to 120 of % | a-z A-Z 0-9 _ -", lambda value: _is_name(value, 120))]
TopicName = Annotated[str, only("a name of up to 127 of % | a-z A-Z 0-9 _ -, not one of the broker's own", _is_topic)]
NotEmpty = Annotated[tuple[Item, ...], Field(min_length=1)]
Shares = Annotated[tuple[tuple[str, float], ...], weights(Text)]
TransactionShares = Annotated[tuple[tuple[str, float], ...], weights(Annotated[str, one_of(TRANSACTIONS)])]
_Level = Annotated[int, only("delay levels from 0 (none) on", _LEVEL.fullmatch, int)]
LevelShares = Annotated[tuple[tuple[int, float], ...], weights(_Level)]
_own_name = only(f"a name that is none of {', '.join(MADE_PROPERTIES)}", lambda name: _is_text(name) and name not in {"", *MADE_PROPERTIES})
Properties = Annotated[dict[Annotated[str, _own_name], Shares], Field(max_length=MAX_PROPERTIES)]
Time = Annotated[int, PlainValidator(time)]
Duration = Annotated[float, PlainValidator(duration)]
Address = Annotated[Host, PlainValidator(host)]
# settings of the broker are checked where they are used
Settings = Annotated[dict[str, Value], only("settings of the broker by their own names", _are_settings)]
