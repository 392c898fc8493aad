"""Read the lines of a request file: each line is a request as a JSON object, or a bad line that is reported with its number."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from operator import contains
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from pipeline.schema.arrow_types import arrow_of
from store_format.errors import UnusableInputError, shown, without_credentials

SCHEMA = (
    "seq BIGINT, consumerGroup STRING, topic STRING, queueId INT, queueOffset BIGINT, maxMsgNums INT, filterType STRING, "
    "expression STRING, registered BOOLEAN, timestamp BIGINT, sysFlag INT, suspendTimeoutMillis BIGINT, recordedMaxOffset BIGINT, "
    "line STRING"
)
REQUEST_ARROW = arrow_of(SCHEMA)
# most bytes of a line, so that a file without line ends is not read into memory; requests of real clients are shorter
LINE_BYTES_MAX = 16 << 20
# a line with more opening brackets may be nested too deeply, and is parsed by the strict parser
_OPENINGS_MAX = 500
_KEYS = tuple(b'"%s"' % name for name in (b"request", b"filter", b"group", b"topic", b"queueId", b"offset", b"maxMsgNums"))
_MAY_BE_NULL = b'"filter"'
# most digits of a number: no field has more, and Python's parser takes no whole number of more than 4,300
_DIGITS_MAX = 400
_TOO_MANY_DIGITS = re.compile(rb"[0-9]{%d}" % _DIGITS_MAX)
_NO_NUMBERS = (b"NaN", b"Infinity")
# lines up to this length cannot have too many digits or opening brackets
_SHORT_LINE = min(_DIGITS_MAX - 1, _OPENINGS_MAX)

_FILTER = pa.struct({"type": pa.string(), "expression": pa.string(), "registered": pa.bool_()})
_REQUEST = pa.struct(
    {
        "group": pa.string(),
        "topic": pa.string(),
        "queueId": pa.int32(),
        "offset": pa.int64(),
        "maxMsgNums": pa.int32(),
        "filter": _FILTER,
        "timestamp": pa.int64(),
        "sysFlag": pa.int32(),
        "suspendTimeoutMillis": pa.int64(),
    }
)
_LINE = pa.schema({"request": _REQUEST, "response": pa.struct({"maxOffset": pa.int64()})})
# the keys that are read in each object of a line; "" is the line itself
_READ = {"": _LINE.names, "request": _REQUEST.names, "filter": _FILTER.names, "response": ["maxOffset"]}
# field of the request, column, limit of a number: -limit <= number < limit; None for texts
_FIELDS = (
    ("group", "consumerGroup", None),
    ("topic", "topic", None),
    ("queueId", "queueId", 2**31),
    ("offset", "queueOffset", 2**63),
    ("maxMsgNums", "maxMsgNums", 2**31),
)
# fields that may be missing or null, with their limits; their columns have the same names
_OPTIONAL = (("timestamp", 2**63), ("sysFlag", 2**31), ("suspendTimeoutMillis", 2**63))


class RequestError(UnusableInputError, ValueError):
    """A line of a request file is no request, or the file cannot be used."""

    def __init__(self, path: str, line: int, expected: str, found: str) -> None:
        super().__init__(path, line, expected, found)
        self.path, self.line, self.expected, self.found = path, line, expected, found

    def __str__(self) -> str:
        return without_credentials(f"{self.path}, line {self.line}: expected {self.expected}, found {self.found}")


def changed_file(path: str, line: int) -> RequestError:
    """The error for a file that changed after it was scanned; `line` is the number of the first line that is read again."""
    return RequestError(path, line, "a file that stays as it is while it is read", "one that changed; start again")


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is no request: its position in the bytes read, the error, and its bytes."""

    position: int
    error: RequestError
    raw: bytes


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _int(digits: str) -> int:
    if len(digits) > _DIGITS_MAX:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


class _Doubled(dict[str, Any]):
    """An object in which some keys are there twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.keys_twice = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else _Doubled(pairs)


def _no_double(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs; a duplicate key is an error, because parsers differ in which value they take."""
    found = _object(pairs)
    if isinstance(found, _Doubled):
        raise ValueError(_twice(found.keys_twice[0]))
    return found


def _twice(name: str) -> str:
    return f"the key {shown(name)} is there twice"


def parsed_line(
    path: str, number: int, raw: bytes, of_pairs: Callable[[list[tuple[str, Any]]], dict[str, Any]] = _no_double
) -> dict[str, Any]:
    """The JSON object in a line; `of_pairs` makes each object.

    Raises:
        RequestError: the line is no JSON object.
    """
    try:
        line = json.loads(raw.decode("utf-8"), parse_constant=_no_number, parse_int=_int, object_pairs_hook=of_pairs)
    except (ValueError, RecursionError) as error:
        raise RequestError(path, number, "a JSON object", f"{shown(raw)} ({error})") from None
    if not isinstance(line, dict):
        raise RequestError(path, number, "a JSON object", shown(raw))
    return line


def read_lines(path: str, first_line: int, raw: bytes) -> pa.RecordBatch:
    """The requests in complete lines, as rows of SCHEMA.

    Args:
        path: path of the file, for the error message.
        first_line: number of the first line.
        raw: the lines.

    Raises:
        RequestError: names the first line that is no request.
    """
    found, bad = read_good_lines(path, first_line, raw)
    if bad:
        raise bad[0].error
    return found


def read_good_lines(path: str, first_line: int, raw: bytes) -> tuple[pa.RecordBatch, list[BadLine]]:
    """The requests in complete lines, as rows of SCHEMA, and the lines that are no requests; arguments as for `read_lines`."""
    lines = raw.split(b"\n")
    if not lines[-1].strip():
        lines.pop()
    fast = _read_fast(first_line, lines, raw)
    return (fast, []) if fast is not None else _read_strictly(path, first_line, lines)


def _read_fast(first_line: int, lines: list[bytes], raw: bytes) -> pa.RecordBatch | None:
    """Parse all lines at once; None if a line must be parsed by `_read_strictly`."""
    if not _are_plain(lines, raw):
        return None
    try:
        texts = pa.array(lines, pa.binary()).cast(pa.string())
        table = pj.read_json(
            pa.BufferReader(raw),
            read_options=pj.ReadOptions(block_size=len(raw) + 1, use_threads=False),
            parse_options=pj.ParseOptions(explicit_schema=_LINE, unexpected_field_behavior="ignore"),
        ).combine_chunks()
    except pa.ArrowInvalid:
        return None
    if table.num_rows != len(lines):
        return None
    request = table["request"].combine_chunks()
    values = {name: request.field(name) for name in request.type.names}
    if request.null_count or any(values[field].null_count for field, _, _ in _FIELDS):
        return None
    chosen = values["filter"]
    kind, expression, registered = (chosen.field(name) for name in ("type", "expression", "registered"))
    if kind.null_count != chosen.null_count:
        return None
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.arange(first_line, first_line + len(lines))),
            *(values[field] for field, _, _ in _FIELDS),
            kind,
            expression,
            registered,
            *(values[field] for field, _ in _OPTIONAL),
            table["response"].combine_chunks().field("maxOffset"),
            texts,
        ],
        schema=REQUEST_ARROW,
    )


def _are_plain(lines: list[bytes], raw: bytes) -> bool:
    """Whether each line looks like one JSON object, not nested too deeply, with each key once and without unusual numbers.

    A missing key that must not be null is not checked here, because the parser finds it.
    """
    if any(name in raw for name in _NO_NUMBERS) or not all(map(_is_plain, lines)):
        return False
    escapes = b"\\" in raw
    return all(_is_once(key, lines, raw, needed=escapes or key == _MAY_BE_NULL) for key in _KEYS)


def _is_once(key: bytes, lines: list[bytes], raw: bytes, *, needed: bool) -> bool:
    """Whether no line has the key twice; if `needed`, also whether each line has it."""
    as_key = key + b":"  # only a key: inside a text, the quotation marks would be escaped
    if raw.count(as_key) != len(lines):
        return False
    # the key occurs as often as there are lines; if each line has it, no line has it twice
    return (not needed and raw.count(key) == len(lines)) or all(map(contains, lines, repeat(as_key)))


def _is_plain(line: bytes) -> bool:
    if not line.startswith(b"{") or not line.endswith((b"}", b"}\r")):
        return False
    return len(line) <= _SHORT_LINE or (line.count(b"{") + line.count(b"[") <= _OPENINGS_MAX and not _TOO_MANY_DIGITS.search(line))


def _read_strictly(path: str, first_line: int, lines: list[bytes]) -> tuple[pa.RecordBatch, list[BadLine]]:
    """Parse line by line, so that bad lines can be reported; gives the requests and the bad lines."""
    rows: list[dict[str, Any]] = []
    bad: list[BadLine] = []
    position = 0
    for number, raw in enumerate(lines, first_line):
        if raw.strip():
            try:
                rows.append(_row(path, number, raw))
            except RequestError as error:
                bad.append(BadLine(position, error, raw))
        position += len(raw) + 1
    return pa.RecordBatch.from_pylist(rows, schema=REQUEST_ARROW), bad


def _row(path: str, number: int, raw: bytes) -> dict[str, Any]:
    line = parsed_line(path, number, raw, _object)
    request = line.get("request")
    chosen = request.get("filter") if isinstance(request, dict) else None
    for name, one in (("", line), ("request", request), ("filter", chosen), ("response", line.get("response"))):
        # Arrow's parser looks at the keys that it reads, and no others
        twice = [key for key in one.keys_twice if key in _READ[name]] if isinstance(one, _Doubled) else []
        if twice:
            raise RequestError(path, number, "a JSON object", f"{shown(raw)} ({_twice(twice[0])})")
    if not isinstance(request, dict):
        raise RequestError(path, number, 'a field "request" that is an object', shown(raw))
    row: dict[str, Any] = {"seq": number}
    for field, column, limit in _FIELDS:
        row[column] = _value(path, number, request, field, limit)
    row |= {field: _value(path, number, request, field, limit) for field, limit in _OPTIONAL if request.get(field) is not None}
    if "filter" not in request:
        raise RequestError(path, number, 'a field "filter" (null where there is none)', shown(raw))
    row |= _filter(path, number, request["filter"])
    response = line.get("response")
    if isinstance(response, dict) and response.get("maxOffset") is not None:
        row["recordedMaxOffset"] = _value(path, number, response, "maxOffset", 2**63)
    return row | {"line": raw.decode("utf-8")}


def _value(path: str, number: int, request: dict[str, Any], field: str, limit: int | None) -> Any:
    value = request.get(field)
    if limit is None:
        if not isinstance(value, str):
            raise RequestError(path, number, f'a text in "{field}"', shown(value))
        return _text(path, number, value)
    if not isinstance(value, int) or isinstance(value, bool) or not -limit <= value < limit:
        raise RequestError(path, number, f'a whole number of {limit.bit_length()} bits in "{field}"', shown(value))
    return value


def _text(path: str, number: int, value: str) -> str:
    """A text unchanged.

    Raises:
        RequestError: the text has half of a surrogate pair, which JSON can escape.
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        raise RequestError(path, number, "text without lone surrogates", shown(value)) from None
    return value


def _filter(path: str, number: int, value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise RequestError(path, number, 'a filter that is null or {"type", "expression"}', shown(value))
    if not isinstance(value.get("expression"), str | None) or not isinstance(value.get("registered"), bool | None):
        raise RequestError(path, number, "a text as the filter's expression", shown(value))
    expression = None if value.get("expression") is None else _text(path, number, value["expression"])
    return {"filterType": _text(path, number, value["type"]), "expression": expression, "registered": value.get("registered")}
