"""Pull requests in a Parquet file: a row is a request, with the columns of request_lines.SCHEMA, or nested as in a line of JSON.

Spark writes the nested form when it copies a file of lines (`spark.read.json(...)`, then `write.parquet`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from pipeline.requests.request_lines import LINE_BYTES_MAX, REQUEST_ARROW, RequestError, changed_file
from store_format.errors import first_line, shown

MAGIC = b"PAR1"
# rows that a task reads at once, and bytes of their texts: some megabytes
ROWS_AT_ONCE, TEXT_BYTES_AT_ONCE = 65_536, 8 << 20
# most uncompressed bytes of the columns that are read of a row group: Arrow takes three times the memory if all texts differ
GROUP_BYTES_MAX = 512 << 20
_TEXTS = ("consumerGroup", "topic", "filterType", "expression")
_NEEDED = ("consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums")
# column -> field of the nested form, where the names differ
_NESTED = {
    "consumerGroup": "request.group",
    "queueOffset": "request.offset",
    "filterType": "request.filter.type",
    "expression": "request.filter.expression",
    "registered": "request.filter.registered",
    "recordedMaxOffset": "response.maxOffset",
}
_COLUMNS = tuple(name for name in REQUEST_ARROW.names if name not in {"seq", "line"})
_TAG, _LARGE_MAX = "TAG", 99
# columns of pull_request that requests do not have: a file with one of them has captured pulls
_CAPTURED = frozenset({"subscription", "expressionType"})


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows `start` to `end` of a row group; `first` is the number of the first of them in the file, counted from 1.

    Their texts have `text_bytes` bytes.
    """

    group: int
    start: int
    end: int
    first: int
    text_bytes: int = 0


@contextmanager
def _opened(filesystem: pafs.FileSystem, inside: str, path: str, first: int = 1) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file with the columns of requests; its texts are read as dictionaries, so a value of many rows is in memory once."""
    try:
        with filesystem.open_input_file(inside) as source:
            metadata = pq.read_metadata(source)
            schema = metadata.schema.to_arrow_schema()
            if metadata.num_rows:  # refuse columns of other types before they are read: a list, for example, takes any amount of memory
                _requests(schema.empty_table().select(_columns(schema, path)), path, first)
            columns = [metadata.schema.column(number) for number in range(metadata.num_columns)]
            texts = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
            with pq.ParquetFile(source, metadata=metadata, read_dictionary=texts, page_checksum_verification=True) as file:
                yield file
    except pa.ArrowMemoryError:
        raise
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise RequestError(path, first, "rows of a Parquet file", first_line(error)) from error


def size_of(filesystem: pafs.FileSystem, inside: str, path: str, row_bytes: int, most: int) -> int:
    """About the bytes of all requests in a Parquet file: `row_bytes` for each request, or the bytes of their texts if these are more.

    Args:
        filesystem: has the file.
        inside: path of the file in `filesystem`.
        path: path of the file in error messages.
        row_bytes: about the bytes of a usual request.
        most: the file is not read on once more bytes than this are found.

    Raises:
        RequestError: the file cannot be read.
    """
    found = 0
    with _opened(filesystem, inside, path) as file:
        size = int(file.metadata.num_rows) * row_bytes
        for group in () if size > most else range(file.metadata.num_row_groups):
            for table in _tables(file, path, group, 1, _TEXTS):
                found += int(_text_bytes(table, path, 1).sum())
                if found > most:
                    return found
    return max(size, found)


def scan_rows(filesystem: pafs.FileSystem, inside: str, path: str) -> tuple[list[Rows], bool, bool]:
    """Read all requests of a Parquet file once.

    Returns:
        The rows in pieces of at most ROWS_AT_ONCE and TEXT_BYTES_AT_ONCE; whether a filter is of another type than TAG; whether a
        maxMsgNums is greater than 99.

    Raises:
        RequestError: the file cannot be read, or a row is no request.
    """
    found: list[Rows] = []
    looks, most, first = False, 0, 1
    with _opened(filesystem, inside, path) as file:
        for group in range(file.metadata.num_row_groups):
            start = 0
            for table in _tables(file, path, group, first):
                for rows, part in _pieces(table, path, Rows(group, start, start + len(table), first)):
                    requests = _requests(part, path, rows.first)
                    looks = looks or bool(pc.any(pc.not_equal(requests.column("filterType"), _TAG)).as_py())
                    most = max(most, pc.max(requests.column("maxMsgNums")).as_py() or 0)
                    found.append(rows)
                start, first = start + len(table), first + len(table)
    return found, looks, most > _LARGE_MAX


def rows_of(filesystem: pafs.FileSystem, inside: str, path: str, rows: Rows) -> pa.RecordBatch:
    """The requests in `rows`, as rows of request_lines.SCHEMA; `line` is NULL, and `seq` is the number of the row in the file.

    Raises:
        RequestError: the file cannot be read, or a row is no request.
    """
    parts: list[pa.Table] = []
    with _opened(filesystem, inside, path, rows.first) as file:
        at = 0
        for table in _tables(file, path, rows.group, rows.first) if rows.group < file.metadata.num_row_groups else ():
            if at + len(table) > rows.start:
                first = max(rows.start - at, 0)
                parts.append(table.slice(first, rows.end - at - first))
            at += len(table)
            if at >= rows.end:
                break
    pieces = [*_pieces(pa.concat_tables(parts), path, rows)] if parts else []
    if [(piece.start, piece.end) for piece, _ in pieces] != [(rows.start, rows.end)]:
        raise changed_file(path, rows.first)
    return _requests(pieces[0][1], path, rows.first)


def _tables(file: pq.ParquetFile, path: str, group: int, first: int, names: Sequence[str] = _COLUMNS) -> Iterator[pa.Table]:
    """The rows of a row group, at most ROWS_AT_ONCE at a time, with the fields of the columns `names`.

    `first` is the number of the row that an error names.

    Raises:
        RequestError: the row group is too large.
    """
    paths, metadata = _paths(file.schema_arrow), file.metadata.row_group(group)
    wanted = [f"{paths[name]}." for name in names]
    columns = [metadata.column(number) for number in range(metadata.num_columns)]
    # Spark writes a struct that is always null as a text, so a column may stand in place of the struct around a wanted field
    columns = [column for column in columns if any(one.startswith(f"{column.path_in_schema}.") for one in wanted)]
    size = sum(column.total_uncompressed_size for column in columns)
    if size > GROUP_BYTES_MAX:
        raise RequestError(path, first, f"row groups of at most {GROUP_BYTES_MAX:,} bytes", f"one of {size:,}; write it with fewer rows")
    for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=[group], columns=[column.path_in_schema for column in columns]):
        yield pa.Table.from_batches([batch])


def _pieces(table: pa.Table, path: str, whole: Rows) -> Iterator[tuple[Rows, pa.Table]]:
    """The rows `whole` in pieces with at most TEXT_BYTES_AT_ONCE of texts, or with one row."""
    ends = np.cumsum(_text_bytes(table, path, whole.first))
    at, before = 0, 0
    while at < len(table):
        stop = max(at + 1, int(np.searchsorted(ends, before + TEXT_BYTES_AT_ONCE, "right")))
        size = int(ends[stop - 1]) - before
        yield Rows(whole.group, whole.start + at, whole.start + stop, whole.first + at, size), table.slice(at, stop - at)
        at, before = stop, before + size


def _text_bytes(table: pa.Table, path: str, first: int) -> npt.NDArray[np.int64]:
    """The bytes of the texts of each row, computed without making the texts.

    Raises:
        RequestError: a row has more than LINE_BYTES_MAX bytes of texts.
    """
    found = np.zeros(len(table), np.int64)
    for name in _TEXTS:
        texts = _field(table, path, _paths(table.schema)[name], first)
        if texts is not None and pa.types.is_dictionary(texts.type):
            found += pc.binary_length(texts.dictionary).take(texts.indices).fill_null(0).to_numpy(zero_copy_only=False)
    if len(found) and found.max() > LINE_BYTES_MAX:
        row = int(np.argmax(found > LINE_BYTES_MAX))
        raise RequestError(path, first + row, f"a request with texts of at most {LINE_BYTES_MAX} bytes", f"{found[row]} bytes")
    return found


def _columns(schema: pa.Schema, path: str) -> list[str]:
    """The names of the columns of `schema` from which requests are made.

    Raises:
        RequestError: two columns have the same name, or the file has captured pulls.
    """
    fields = [schema, *(one.type for one in schema if pa.types.is_struct(one.type))]
    names = [[field.name for field in of] for of in fields]
    if odd := next((name for of in names for name, count in Counter(of).items() if count > 1), None):
        raise RequestError(path, 1, "columns of different names", f"two called {shown(odd)}")
    if found := _CAPTURED.intersection(schema.names):
        hint = "`pullsim requests` writes captured pulls as requests"
        raise RequestError(path, 1, "the columns of requests", f"{min(found)}, of captured pulls; {hint}")
    wanted = {place.split(".")[0] for place in _paths(schema).values()}
    return [name for name in schema.names if name in wanted]


def _requests(table: pa.Table, path: str, first: int) -> pa.RecordBatch:
    """Rows of a file as rows of request_lines.SCHEMA; `first` is the number of the first one."""
    columns = {name: _column(table, path, name, first) for name in _COLUMNS}
    untyped = pc.and_(pc.is_null(columns["filterType"]), pc.is_valid(columns["expression"]))
    if pc.any(untyped).as_py():
        raise RequestError(path, first + untyped.index(True).as_py(), "the type of the filter beside its expression", "NULL")
    columns["seq"] = pa.array(range(first, first + len(table)), pa.int64())
    lines = pa.nulls(len(table), pa.string())
    return pa.RecordBatch.from_arrays([columns.get(name, lines) for name in REQUEST_ARROW.names], schema=REQUEST_ARROW)


def _paths(schema: pa.Schema) -> dict[str, str]:
    """For each column, the field of a file with this schema that has it."""
    is_nested = "request" in schema.names
    return {name: _NESTED.get(name, f"request.{name}") if is_nested else name for name in _COLUMNS}


def _column(table: pa.Table, path: str, name: str, first: int) -> pa.Array:
    wanted, place = REQUEST_ARROW.field(name).type, _paths(table.schema)[name]
    values = _field(table, path, place, first)
    if values is None:
        if name in _NEEDED:
            raise RequestError(path, first, f"a column {place}", f"the columns {', '.join(table.column_names) or 'none'}")
        return pa.nulls(len(table), wanted)
    if not _is_alike(values.type, wanted):
        raise RequestError(path, first, f"a column {place} of type {wanted}", str(_value_type(values.type)))
    try:
        found = values.cast(wanted)
        found.validate(full=True)
    except pa.ArrowInvalid as error:
        raise RequestError(path, first, f"a column {place} of type {wanted}", first_line(error)) from error
    if name in _NEEDED and found.null_count:
        raise RequestError(path, first + found.is_null().index(True).as_py(), f"a value of {place}", "NULL")
    return found


def _field(table: pa.Table, path: str, place: str, first: int) -> pa.Array | None:
    """The values of a field, NULL in rows in which a struct around it is NULL; None if there is no such field."""
    outer, *inner = place.split(".")
    if outer not in table.column_names:
        return None
    values, seen = table[outer].combine_chunks(), outer
    for name in inner:
        if not pa.types.is_struct(values.type):
            if values.null_count < len(values):  # Spark writes a struct that is always null as a text
                raise RequestError(path, first, f"a struct {seen}", str(_value_type(values.type)))
            return None
        if values.type.get_field_index(name) < 0:
            return None
        values, seen = pc.struct_field(values, name), f"{seen}.{name}"
    return values


def _value_type(found: pa.DataType) -> pa.DataType:
    """The type of values, also of values that are read as a dictionary."""
    return found.value_type if pa.types.is_dictionary(found) else found


def _is_alike(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of the type `found` can be taken as values of the type `wanted` without a surprising conversion."""
    found = _value_type(found)
    if pa.types.is_null(found):
        return True
    if pa.types.is_integer(wanted):
        return bool(pa.types.is_integer(found))
    return bool(found == wanted or (pa.types.is_string(wanted) and pa.types.is_large_string(found)))


def as_lines(requests: pa.RecordBatch) -> bytes:
    """Requests as the lines of a file of JSON lines."""
    return b"".join(json.dumps(_line(row), ensure_ascii=False, separators=(",", ":")).encode() + b"\n" for row in requests.to_pylist())


def request_of(row: dict[str, Any]) -> Any:
    """The object `request` of a row of request_lines.SCHEMA."""
    return (_line(row) if row["line"] is None else json.loads(row["line"]))["request"]


def _line(row: dict[str, Any]) -> dict[str, Any]:
    kind = row["filterType"]
    chosen = None if kind is None else {"type": kind, "expression": row["expression"], "registered": row["registered"]}
    request = {
        "group": row["consumerGroup"],
        "topic": row["topic"],
        "queueId": row["queueId"],
        "offset": row["queueOffset"],
        "maxMsgNums": row["maxMsgNums"],
        "filter": chosen,
    }
    request |= {name: row[name] for name in ("timestamp", "sysFlag", "suspendTimeoutMillis") if row[name] is not None}
    recorded = row["recordedMaxOffset"]
    return {"request": request} | ({} if recorded is None else {"response": {"maxOffset": recorded}})
