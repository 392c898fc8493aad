"""Pack pull requests: one row has many requests of one queue, and their numbers as a matrix in a blob.

So Spark moves a few large rows instead of millions of small ones. A packed row is
(topic, queueId, key, wide, requests, groups, filters):
- `key`: what the requests need next: a segment of entries, or all segments of a queue file if `wide`.
- `requests`: the matrix (`Col` names its columns), row by row.
- `groups`, `filters`: texts; the columns GROUP and FILTER of the matrix are indexes into them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.schema.arrow_types import arrow_of

Matrix = NDArray[np.int64]
# matrix -> (key of each request, whether its packed row is wide)
Place = Callable[[Matrix], tuple[NDArray[np.int64], NDArray[np.bool_]]]

# most requests of a packed row, so that its size is bounded even if all requests are of one queue
ROW_REQUESTS = 16_384
# number of requests that are gathered before they are packed
GATHERED_REQUESTS = 262_144
NO_KEY = -1
NONE = -(2**63)


class Col(IntEnum):
    """Columns of the matrix of requests."""

    SEQ = 0  # number of the request in its run
    OFFSET = 1
    MAX_MSG_NUMS = 2
    MIN_OFFSET = 3
    MAX_OFFSET = 4
    LOG_END = 5
    FILTER = 6  # index into `filters`, -1 for none
    GROUP = 7  # index into `groups`
    TIME = 8  # ms, NONE if the request has no time
    RECORDED_MAX = 9  # maxOffset of the recorded answer, NONE if there is no recorded answer


COLUMNS = len(Col)
REQUEST_BYTES = COLUMNS * 8
SCHEMA = "topic STRING, queueId INT, key BIGINT, wide BOOLEAN, requests BINARY, groups ARRAY<STRING>, filters ARRAY<STRING>"
ARROW_SCHEMA = arrow_of(SCHEMA)
# column of a request, column of the matrix, value for NULL
_WANTED = (
    ("seq", Col.SEQ, 0),
    ("queueOffset", Col.OFFSET, 0),
    ("maxMsgNums", Col.MAX_MSG_NUMS, 0),
    ("timestamp", Col.TIME, NONE),
    ("recordedMaxOffset", Col.RECORDED_MAX, NONE),
)


def pack(place: Place, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pack requests into rows of SCHEMA.

    Args:
        place: gives the key of each request.
        batches: seq, consumerGroup, topic, queueId, queueOffset, maxMsgNums, expression, timestamp, recordedMaxOffset.
    """
    gathered: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        gathered.append(batch)
        count += len(batch)
        if count >= GATHERED_REQUESTS:
            yield _pack(pa.Table.from_batches(gathered).combine_chunks(), place)
            gathered, count = [], 0
    if count:
        yield _pack(pa.Table.from_batches(gathered).combine_chunks(), place)


def _pack(rows: pa.Table, place: Place) -> pa.RecordBatch:
    topics, topic_codes = _encode(rows["topic"])
    queue_ids = rows["queueId"].to_numpy().astype(np.int64)
    matrix = _matrix(rows)
    keys, wide = place(matrix)
    queues, places = (topic_codes << 32) + queue_ids, keys * 2 + wide
    order = np.lexsort((places, queues))
    matrix = matrix[order]
    starts = _row_starts(np.stack((queues[order], places[order]), axis=1))
    row_of = np.searchsorted(starts, np.arange(len(matrix)), side="right") - 1
    groups = _local(rows["consumerGroup"], order, row_of, len(starts), matrix, Col.GROUP)
    filters = _local(rows["expression"], order, row_of, len(starts), matrix, Col.FILTER)
    firsts = order[starts]
    columns = [
        topics.take(pa.array(topic_codes[firsts])),
        pa.array(queue_ids[firsts].astype(np.int32)),
        pa.array(keys[firsts]),
        pa.array(wide[firsts]),
        blobs(matrix, starts),
        groups,
        filters,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)


def _encode(column: pa.ChunkedArray) -> tuple[pa.Array, NDArray[np.int64]]:
    """A text column as its distinct values, and for each row the index of its value; -1 for NULL."""
    encoded = column.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    return encoded.dictionary, encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)


def _matrix(rows: pa.Table) -> Matrix:
    matrix = np.zeros((rows.num_rows, COLUMNS), np.int64)
    for name, column, missing in _WANTED:
        matrix[:, column] = rows[name].combine_chunks().fill_null(missing).to_numpy(zero_copy_only=False)
    return matrix


def _row_starts(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """The positions in sorted keys at which a packed row starts: at each new key, and after ROW_REQUESTS requests of one key."""
    if not len(keys):
        return np.empty(0, np.int64)
    changes = np.flatnonzero((keys[1:] != keys[:-1]).any(axis=1)) + 1
    bounds = np.concatenate(([0], changes, [len(keys)]))
    longest = int(np.diff(bounds).max())
    if longest <= ROW_REQUESTS:
        return bounds[:-1]
    return np.concatenate([np.arange(start, end, ROW_REQUESTS) for start, end in pairwise(bounds)])


def _local(
    column: pa.ChunkedArray, order: NDArray[np.int64], row_of: NDArray[np.int64], rows: int, matrix: Matrix, into: Col
) -> pa.ListArray:
    """The distinct texts of each packed row; their indexes in the row's list are written to the column `into` of `matrix`."""
    texts, codes = _encode(column)
    codes = codes[order]
    used = codes >= 0
    matrix[:, into] = -1
    keys = row_of[used] * len(texts) + codes[used]
    different, inverse = np.unique(keys, return_inverse=True)
    offsets = np.searchsorted(different, np.arange(rows + 1) * len(texts))
    matrix[used, into] = inverse - offsets[row_of[used]]
    values = texts.take(pa.array(different % max(len(texts), 1)))
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)


def blobs(matrix: Matrix, starts: NDArray[np.int64]) -> pa.Array:
    """The matrix cut at `starts` into blobs, one for each packed row."""
    offsets = np.append(starts, len(matrix)) * REQUEST_BYTES
    data = np.ascontiguousarray(matrix).view(np.uint8)
    return pa.Array.from_buffers(pa.binary(), len(starts), [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)])


@dataclass(frozen=True, slots=True)
class Packed:
    """One packed row: requests of one queue, and the texts of their consumer groups and filters."""

    topic: str
    queue_id: int
    matrix: Matrix
    groups: list[str]
    filters: list[str]

    @classmethod
    def of(cls, row: dict[str, Any]) -> Packed:
        """A packed row from a row of SCHEMA; its matrix is writable.

        If the row has `logEnd`, its columns minOffset, maxOffset and logEnd are copied into the matrix. The bounds of a queue without files
        are 0 and 0, because findConsumeQueue creates it.
        """
        matrix = np.frombuffer(row["requests"], "<i8").reshape(-1, COLUMNS).copy()
        if row.get("logEnd") is not None:
            matrix[:, Col.MIN_OFFSET : Col.LOG_END + 1] = row["minOffset"] or 0, row["maxOffset"] or 0, row["logEnd"]
        return cls(row["topic"], row["queueId"], matrix, row["groups"], row["filters"])

    @classmethod
    def joined(cls, rows: list[Packed]) -> Packed:
        """Join packed rows of one queue into one; changes the matrices of `rows`."""
        if len(rows) == 1:
            return rows[0]
        groups: dict[str, int] = {}
        filters: dict[str, int] = {}
        for row in rows:
            for column, texts, known in ((Col.GROUP, row.groups, groups), (Col.FILTER, row.filters, filters)):
                places = [known.setdefault(text, len(known)) for text in texts]
                row.matrix[:, column] = np.array([*places, -1])[row.matrix[:, column]]  # -1 indexes the last element
        return cls(rows[0].topic, rows[0].queue_id, np.concatenate([row.matrix for row in rows]), list(groups), list(filters))


def _used(rows: Matrix, column: Col, texts: list[str]) -> list[str]:
    """The texts that `rows` use; the values of `column` become indexes into them. So a part of a packed row has only its own texts."""
    if len(texts) <= 1:
        return texts
    used, places = np.unique(rows[:, column], return_inverse=True)
    missing = int(len(used) > 0 and used[0] < 0)  # -1 stays -1
    rows[:, column] = places - missing
    return [texts[number] for number in used[missing:].tolist()]


class Repacker:
    """Packs requests again by new keys, and returns them in batches of bounded size."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0

    def add(self, packed: Packed, keys: NDArray[np.int64], *, wide: bool = False) -> None:
        """Divide a packed row into packed rows by the key of each request; `wide` says whether they are wide."""
        order = np.argsort(keys, kind="stable")
        matrix, keys = packed.matrix[order], keys[order]
        starts = _row_starts(keys[:, None])
        ends = np.append(starts[1:], len(keys))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            rows = matrix[start:end]
            groups, filters = _used(rows, Col.GROUP, packed.groups), _used(rows, Col.FILTER, packed.filters)
            blob = rows.tobytes()
            self._bytes += len(blob) + sum(map(len, groups)) + sum(map(len, filters))
            self._rows.append(
                {
                    "topic": packed.topic,
                    "queueId": packed.queue_id,
                    "key": int(keys[start]),
                    "wide": wide,
                    "requests": blob,
                    "groups": groups,
                    "filters": filters,
                }
            )

    def full(self) -> bool:
        """Whether there are enough packed rows for a batch."""
        return self._bytes > 8 << 20 or len(self._rows) > ROW_REQUESTS

    def take(self) -> Iterator[pa.RecordBatch]:
        """Remove the collected packed rows and return them as a batch; no batch if there are none."""
        if self._rows:
            yield pa.RecordBatch.from_pylist(self._rows, schema=ARROW_SCHEMA)
        self._rows, self._bytes = [], 0


def packed_again(placed: Iterable[tuple[Packed, NDArray[np.int64], NDArray[np.bool_]]]) -> Iterator[pa.RecordBatch]:
    """Pack requests again; `placed` has packed rows, each with the new key of each request, and whether the request's new row is wide."""
    repacker = Repacker()
    for packed, keys, wide in placed:
        for flag in np.unique(wide).tolist():
            repacker.add(replace(packed, matrix=packed.matrix[wide == flag]), keys[wide == flag], wide=flag)
        if repacker.full():
            yield from repacker.take()
    yield from repacker.take()
