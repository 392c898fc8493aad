"""Reads files of look-ups: JSON lines as in golden/store/lookup, with a header line if they were recorded.

A line that is no look-up ends the job, and nothing is written. Answers that a line already has are not copied to the new line.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pipeline.requests.request_file import open_file
from pipeline.requests.request_lines import LINE_BYTES_MAX, RequestError
from store_format.errors import shown

_INT, _LONG, _TEXT = 2**31, 2**63, None
_TOPIC, _QUEUE_ID = ("topic", _TEXT), ("queueId", _INT)
# operation -> its fields, each with the limit of its number, None for a text
FIELDS: Mapping[str, tuple[tuple[str, int | None], ...]] = {
    "getOffsetInQueueByTime": (_TOPIC, _QUEUE_ID, ("timestamp", _LONG)),
    "getMessageStoreTimeStamp": (_TOPIC, _QUEUE_ID, ("consumeQueueOffset", _LONG)),
    "getEarliestMessageTime": (_TOPIC, _QUEUE_ID),
    "getEarliestMessageTimeOfStore": (),
    "queryMessage": (_TOPIC, ("key", _TEXT), ("maxNum", _INT), ("begin", _LONG), ("end", _LONG)),
    "lookMessageByOffset": (("commitLogOffset", _LONG),),
}
_ANSWERS = frozenset(
    {
        *("result", "resultUpper", "exception", "exceptionUpper", "error", "message"),
        *("commitLogOffsetInQueue", "commitLogOffsetException"),
        *("minOffsetInQueue", "maxOffsetInQueue", "messageTotalInQueue"),
        *("indexLastUpdateTimestamp", "indexLastUpdatePhyoffset", "bufferTotalSize", "phyOffsets"),
        *("selectOneMessageByOffset", "selectException"),
    }
)
_MTIMES = "consumeQueueFileMtimesMs"


@dataclass(frozen=True, slots=True)
class LookupRequest:
    """One look-up: a line whose operation and fields were checked."""

    line: Mapping[str, Any]

    @property
    def operation(self) -> str:
        """A key of FIELDS."""
        operation: str = self.line["op"]
        return operation

    def __getitem__(self, field: str) -> Any:
        return self.line[field]

    def without_answers(self) -> dict[str, Any]:
        """The line without the answers that it already has."""
        return {name: value for name, value in self.line.items() if name not in _ANSWERS}


@dataclass(frozen=True, slots=True)
class LookupHeader:
    """The first line of a recorded file, and its modification times of queue files: ms by path below the store."""

    line: dict[str, Any]
    mtimes_ms: Mapping[str, int]


@contextmanager
def open_requests(path: str) -> Iterator[tuple[LookupHeader | None, Iterator[LookupRequest]]]:
    """Open a file of look-ups: its header, None without one, and an iterator that reads its look-ups.

    Raises:
        RequestError: there is no file, it is empty, or a line is no look-up (the iterator raises this too).
    """
    try:
        file = open_file(path)
    except OSError as error:
        raise RequestError(path, 1, "a file of look-ups", error.strerror or str(error)) from error
    with file, io.BufferedReader(file) as buffered:
        lines = _lines(path, buffered)
        first = next(lines, None)
        if first is None:
            raise RequestError(path, 1, "at least one look-up", "an empty file")
        if first[1].get("kind") == "lookup" and "op" not in first[1]:
            yield _header(path, first[1]), (_request(path, *line) for line in lines)
        else:
            yield None, (_request(path, *line) for line in _chained(first, lines))


def _chained(first: tuple[int, dict[str, Any]], rest: Iterator[tuple[int, dict[str, Any]]]) -> Iterator[tuple[int, dict[str, Any]]]:
    yield first
    yield from rest


def _lines(path: str, file: io.BufferedReader) -> Iterator[tuple[int, dict[str, Any]]]:
    number = 0
    while raw := file.readline(LINE_BYTES_MAX + 1):
        number += 1
        if len(raw) > LINE_BYTES_MAX:
            raise RequestError(path, number, f"a line of at most {LINE_BYTES_MAX} bytes", "a longer one")
        if raw.strip():
            yield number, _parsed(path, number, raw)


def _parsed(path: str, number: int, raw: bytes) -> dict[str, Any]:
    text = shown(raw.rstrip())
    try:
        line = json.loads(raw.decode("utf-8"), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise RequestError(path, number, "a JSON object", f"{text} ({error})") from None
    if not isinstance(line, dict):
        raise RequestError(path, number, "a JSON object", text)
    return line


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _header(path: str, line: dict[str, Any]) -> LookupHeader:
    mtimes = line.get(_MTIMES, {})
    if not isinstance(mtimes, dict) or not all(_is_number(value, _LONG) for value in mtimes.values()):
        raise RequestError(path, 1, f'an object of times in ms in "{_MTIMES}"', shown(mtimes))
    return LookupHeader(line, mtimes)


def _request(path: str, number: int, line: dict[str, Any]) -> LookupRequest:
    operation = line.get("op")
    if not isinstance(operation, str) or operation not in FIELDS:
        raise RequestError(path, number, f'one of {", ".join(FIELDS)} in "op"', shown(operation))
    for field, limit in FIELDS[operation]:
        value = line.get(field)
        if limit is None:
            if not isinstance(value, str):
                raise RequestError(path, number, f'a text in "{field}"', shown(value))
        elif not _is_number(value, limit):
            raise RequestError(path, number, f'a whole number of {limit.bit_length()} bits in "{field}"', shown(value))
    return LookupRequest(line)


def _is_number(value: object, limit: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit
