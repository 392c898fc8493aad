"""A file of pull requests as a DataFrame; a task reads a chunk: some megabytes of complete lines, or rows of a Parquet file."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pipeline.requests.packing import SCHEMA as PACKED_SCHEMA
from pipeline.requests.packing import Place, pack
from pipeline.requests.parquet_requests import as_lines
from pipeline.requests.request_file import Chunk, RequestFile, bytes_of_chunk, header_if_any, rows_of_chunk
from pipeline.requests.request_lines import REQUEST_ARROW, SCHEMA, RequestError, read_lines

# what is expected of a request that is answered as of its time
TIME_NEEDED = 'a "timestamp" in ms in the request, for --at request-time'


def read_requests(spark: SparkSession, file: RequestFile, *, with_lines: bool = True) -> DataFrame:
    """The requests of a file, as rows of request_lines.SCHEMA, with or without the column `line`, which has most of the bytes."""
    names = [name for name in REQUEST_ARROW.names if with_lines or name != "line"]
    schema = SCHEMA if with_lines else SCHEMA.removesuffix(", line STRING")
    return _of_chunks(spark, file, lambda requests: (rows.select(names) for rows in requests), schema)


def packed_requests(spark: SparkSession, file: RequestFile, place: Place, *, needs_time: bool = False) -> DataFrame:
    """The requests of a file as packed rows (packing.SCHEMA), packed by the tasks that read them.

    Args:
        spark: the session.
        file: the file.
        place: gives the key of each request.
        needs_time: whether a request without a time is an error.

    Raises:
        RequestError: in a task, for a line that is no request, or that has no time.
    """
    path = file.path
    return _of_chunks(spark, file, lambda requests: pack(place, _timed(path, requests) if needs_time else requests), PACKED_SCHEMA)


def _timed(path: str, requests: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches of requests, each of which has a time."""
    for batch in requests:
        times = batch.column("timestamp")
        if times.null_count:
            first = batch.column("seq")[times.is_null().index(True).as_py()].as_py()
            raise RequestError(path, first, TIME_NEEDED, "none")
        yield batch


def _of_chunks(
    spark: SparkSession, file: RequestFile, make: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str
) -> DataFrame:
    """The rows that `make` makes from the requests of each chunk; a task reads a chunk.

    This is not a Python data source: Spark would plan it in two new processes that import everything again, and could not leave out
    columns.
    """
    path, chunks = file.path, file.chunks

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column("id").to_pylist():
                yield from make(read_chunk(path, chunks[number]))

    return spark.range(0, len(chunks), 1, len(chunks)).mapInArrow(read, schema)


def read_chunk(path: str, chunk: Chunk) -> Iterator[pa.RecordBatch]:
    """The requests of one chunk, as one batch of request_lines.SCHEMA.

    Raises:
        RequestError: the file cannot be read, or has changed since the scan, or a line is no request.
    """
    if chunk.rows:
        yield rows_of_chunk(path, chunk)
        return
    first, _, raw = lines_of_chunk(path, chunk)
    if raw:
        yield read_lines(path, first, raw)


def lines_of_chunk(path: str, chunk: Chunk) -> tuple[int, int, bytes]:
    """The lines of a chunk, without the file's header.

    Returns:
        Number of the first line, its position in the file, and the bytes of the lines.

    Raises:
        RequestError: the file cannot be read, or has changed since the scan.
    """
    if chunk.rows:
        return chunk.first_line, chunk.start, as_lines(rows_of_chunk(path, chunk))
    raw = bytes_of_chunk(path, chunk)
    if chunk.first_line == 1:
        head, end, rest = raw.partition(b"\n")
        if header_if_any(path, head) is not None:
            return 2, len(head) + len(end), rest
    return chunk.first_line, chunk.start, raw
