"""Pull requests in a Parquet file: a row is a request, with the columns of request_lines.SCHEMA, or nested as in a line of JSON.

A file that Spark wrote of a file of lines (`spark.read.json(...)`, then `write.parquet`) is such a nested one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from pipeline.requests.request_lines import REQUEST_ARROW, RequestError
from store_format.errors import first_line, shown

MAGIC = b"PAR1"
# rows that a task reads at once: some megabytes
ROWS_AT_ONCE = 65_536
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
# columns of pull_request that say more than the columns of a request
_CAPTURED = frozenset({"subscription", "expressionType"})


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows `start` to `end` of a row group; `first` is the number of the first of them in the file, counted from 1."""

    group: int
    start: int
    end: int
    first: int


@contextmanager
def _opened(filesystem: pafs.FileSystem, inside: str, path: str, first: int = 1) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(inside, filesystem=filesystem, page_checksum_verification=True) as file:
            yield file
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise RequestError(path, first, "rows of a Parquet file", first_line(error)) from error


def row_count(filesystem: pafs.FileSystem, inside: str, path: str) -> int:
    """The number of rows that the footer of a Parquet file says.

    Args:
        filesystem: has the file.
        inside: its path there.
        path: its path in error messages.

    Raises:
        RequestError: it cannot be read.
    """
    with _opened(filesystem, inside, path) as file:
        return int(file.metadata.num_rows)


def scan_rows(filesystem: pafs.FileSystem, inside: str, path: str) -> tuple[list[Rows], bool, bool]:
    """Read all requests once.

    Returns:
        The rows in pieces of ROWS_AT_ONCE; whether a filter is of another type than TAG; whether a maxMsgNums is greater than 99.

    Raises:
        RequestError: the file cannot be read, or a row is no request.
    """
    looks, most, first = False, 0, 1
    with _opened(filesystem, inside, path) as file:
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=_columns(file.schema_arrow, path)):
            requests = _requests(pa.Table.from_batches([batch]), path, first)
            looks = looks or bool(pc.any(pc.not_equal(requests.column("filterType"), _TAG)).as_py())
            most = max(most, pc.max(requests.column("maxMsgNums")).as_py() or 0)
            first += len(batch)
        return _pieces(file.metadata), looks, most > _LARGE_MAX


def _pieces(metadata: pq.FileMetaData) -> list[Rows]:
    found, before = [], 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        starts = range(0, rows, ROWS_AT_ONCE)
        found += [Rows(group, start, min(start + ROWS_AT_ONCE, rows), before + start + 1) for start in starts]
        before += rows
    return found


def rows_of(filesystem: pafs.FileSystem, inside: str, path: str, rows: Rows) -> pa.RecordBatch:
    """Some requests, as rows of request_lines.SCHEMA without their lines; the number of a row is its `seq`.

    Raises:
        RequestError: the file cannot be read, or a row is no request.
    """
    with _opened(filesystem, inside, path, rows.first) as file:
        parts, at = [file.schema_arrow.empty_table().select(columns := _columns(file.schema_arrow, path))], 0
        for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=[rows.group], columns=columns):
            if at + len(batch) > rows.start:
                first = max(rows.start - at, 0)
                parts.append(pa.Table.from_batches([batch.slice(first, rows.end - at - first)]))
            at += len(batch)
            if at >= rows.end:
                break
        table = pa.concat_tables(parts, promote_options="permissive")
    count = rows.end - rows.start
    if len(table) != count:
        raise RequestError(path, rows.first, f"{count} rows", f"{len(table)}; was the file changed meanwhile?")
    return _requests(table, path, rows.first)


def _columns(schema: pa.Schema, path: str) -> list[str]:
    """The columns of a file with this schema that requests are made of."""
    fields = [schema, *(one.type for one in schema if pa.types.is_struct(one.type))]
    names = [[field.name for field in of] for of in fields]
    if odd := next((name for of in names for name in of if of.count(name) > 1), None):
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
        raise RequestError(path, first, f"a column {place} of type {wanted}", str(values.type))
    try:
        found = values.cast(wanted)
        found.validate(full=True)
    except pa.ArrowInvalid as error:
        raise RequestError(path, first, f"a column {place} of type {wanted}", first_line(error)) from error
    if name in _NEEDED and found.null_count:
        raise RequestError(path, first + found.is_null().index(True).as_py(), f"a value of {place}", "NULL")
    return found


def _field(table: pa.Table, path: str, place: str, first: int) -> pa.Array | None:
    """The values of a field, NULL where a struct around it is; None where there is no such field."""
    outer, *inner = place.split(".")
    if outer not in table.column_names:
        return None
    values, seen = table[outer].combine_chunks(), outer
    for name in inner:
        if not pa.types.is_struct(values.type):
            if values.null_count < len(values):  # Spark makes texts of what is always null
                raise RequestError(path, first, f"a struct {seen}", str(values.type))
            return None
        if values.type.get_field_index(name) < 0:
            return None
        values, seen = pc.struct_field(values, name), f"{seen}.{name}"
    return values


def _is_alike(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of a type may be such of the wanted type, without a conversion that a reader would not expect."""
    if pa.types.is_null(found):
        return True
    if pa.types.is_dictionary(found):
        return _is_alike(found.value_type, wanted)
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
