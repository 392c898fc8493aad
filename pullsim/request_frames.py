"""Pull requests in a frame of pandas, Polars, Arrow or Spark, written as a request file, which a replay then reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampNTZType, TimestampType

from pipeline.files.output_file import output_file, write_lines
from pipeline.files.store_files import filesystem_of
from pipeline.settings.settings import nearest
from pipeline.tasks.local_rows import frame_of
from store_format.errors import UnusableInputError, printable, quoted_error

if TYPE_CHECKING:
    from pipeline.lake.opened_broker import OpenedBroker

_REQUIRED: Final = {"group": pa.string(), "topic": pa.string(), "queueId": pa.int64(), "offset": pa.int64()}
_OPTIONAL: Final = {
    "maxMsgNums": pa.int64(),
    "filterType": pa.string(),
    "expression": pa.string(),
    "timestamp": pa.int64(),
    "sysFlag": pa.int64(),
    "suspendTimeoutMillis": pa.int64(),
}
_MAX_MSG_NUMS: Final = 32
_CAUSE_MAX: Final = 300
_NO_ROWS: Final = "requests: expected at least one request, found a frame without rows"


class RequestFrameError(UnusableInputError, ValueError):
    """A frame of pull requests lacks a column, has an unknown one, or values of another type."""


@contextmanager
def request_file(broker: OpenedBroker, requests: Any, name: str) -> Iterator[str]:
    """Yield the path of a file with the requests of a frame, in its order; the file lies below the lake and is removed at the end.

    Args:
        broker: broker of the lake.
        requests: DataFrame of Spark, or whatever Arrow takes as a table.
        name: name for the file's folder.

    Raises:
        RequestFrameError: the frame has no requests, or a request that is invalid in a request file.
    """
    folder = f"{broker.lake.root}/_requests-{name}"
    filesystem, inside = filesystem_of(folder)
    lines = request_lines(requests if isinstance(requests, DataFrame) else frame_of(broker.lake.spark, _table(requests)))
    filesystem.create_dir(inside)
    try:
        with output_file(f"{folder}/requests.jsonl") as out:
            write_lines(lines, out)
        if not filesystem.get_file_info(f"{inside}/requests.jsonl").size:
            raise RequestFrameError(_NO_ROWS)
        with _as_rows_of_the_frame(f"{folder}/requests.jsonl") as path:
            yield path
    finally:
        filesystem.delete_dir(inside)


@contextmanager
def _as_rows_of_the_frame(path: str) -> Iterator[str]:
    """Yield the path of a frame's file; an error in one of its lines, on the driver or in a worker, becomes one in a row of the frame."""
    try:
        yield path
    except Exception as error:
        text = str(error) if isinstance(error, UnusableInputError) else quoted_error(str(error)) or ""
        if not text.startswith(path):
            raise
        raise RequestFrameError(f"requests{text.removeprefix(path)}") from error


def _table(requests: Any) -> pa.Table:
    """The requests as an Arrow table with the types of a request file.

    Raises:
        RequestFrameError: the requests are no frame, have no rows, or have columns, types or values that no request has.
    """
    try:
        of_pandas = hasattr(requests, "iloc")  # its index is no column
        table = pa.Table.from_pandas(requests, preserve_index=False) if of_pandas else pa.table(requests)
    except (AttributeError, TypeError, ValueError, pa.ArrowException) as error:
        found = f"{type(requests).__name__} ({_cause(error)})"
        raise RequestFrameError(f"requests: expected a path, or a frame of pandas, Polars, Arrow or Spark, found {found}") from error
    _check_names(table.column_names)
    if not table.num_rows:
        raise RequestFrameError(_NO_ROWS)
    return pa.table({name: _of_request(name, table[name]) for name in table.column_names})


def _of_request(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with its type in a request; numbers may be doubles, as pandas holds integers beside a NULL."""
    kind, wanted = column.type, (_REQUIRED | _OPTIONAL)[name]
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind) or pa.types.is_dictionary(kind)
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    try:
        if name == "timestamp" and pa.types.is_timestamp(kind):
            # a time is cut to ms; a cast from seconds cuts nothing, and must not overflow
            column, is_number = column.cast(pa.timestamp("ms", kind.tz), safe=kind.unit == "s"), True
        if not (pa.types.is_null(kind) or (is_text if wanted == pa.string() else is_number)):
            raise RequestFrameError(f"requests: column {name}: expected values of type {wanted}, found {kind}")
        column = column.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise RequestFrameError(f"requests: column {name}: expected values of type {wanted}, found others: {_cause(error)}") from error
    if name in _REQUIRED and column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise RequestFrameError(f"requests: column {name}: expected a value in each row, found null in row {row} (the first is 0)")
    return column


def _cause(error: Exception) -> str:
    """The text of a library's error, printable; pandas adds texts to those of Arrow, among them the column's name."""
    text = "; ".join(error.args) if all(isinstance(one, str) for one in error.args) else str(error)
    return printable(text[:_CAUSE_MAX])


def _check_names(names: list[str]) -> None:
    known = [*_REQUIRED, *_OPTIONAL]
    if twice := [name for name in known if names.count(name) > 1]:
        raise RequestFrameError(f"requests: expected each column once, found {twice[0]} {names.count(twice[0])} times")
    if missing := [name for name in _REQUIRED if name not in names]:
        raise RequestFrameError(f"requests: expected the columns {', '.join(_REQUIRED)}, found none named {', '.join(missing)}")
    if unknown := [name for name in names if name not in known]:
        near = ", ".join(nearest(unknown[0], known))
        raise RequestFrameError(f"requests: there is no column {unknown[0]!r} of a pull request; the nearest known: {near}")


def request_lines(requests: DataFrame) -> DataFrame:
    """The lines of a request file, in one column.

    Raises:
        RequestFrameError: a column is missing or unknown.
    """
    names = requests.columns
    _check_names(names)

    def column(name: str) -> Column:
        return F.col(name) if name in names else F.lit(None)

    fields = [F.col(name) for name in _REQUIRED]
    fields.append(F.coalesce(column("maxMsgNums"), F.lit(_MAX_MSG_NUMS)).alias("maxMsgNums"))
    of_filter = F.struct(column("filterType").cast("STRING").alias("type"), column("expression").cast("STRING").alias("expression"))
    # an expression without a type is refused when the file is read, as in any file
    has_filter = column("filterType").isNotNull() | column("expression").isNotNull()
    fields.append(F.when(has_filter, of_filter).alias("filter"))
    for name in ("timestamp", "sysFlag", "suspendTimeoutMillis"):
        if name in names:
            fields.append(_millis(requests, name).alias(name))
    return requests.select(F.to_json(F.struct(F.struct(*fields).alias("request")), {"ignoreNullFields": "false"}).alias("value"))


def _millis(requests: DataFrame, name: str) -> Column:
    kind = requests.schema[name].dataType
    if isinstance(kind, TimestampNTZType):  # times without a zone are in UTC, as in Arrow; a plain cast takes the session's zone
        return F.unix_millis(F.concat(F.col(name).cast("STRING"), F.lit("Z")).cast("TIMESTAMP"))
    return F.unix_millis(name) if isinstance(kind, TimestampType) else F.col(name)
