"""Files of pull requests: JSON lines, with a header line if answers were recorded; or Parquet, whose rows are read like lines.

The number of a request is the number of its line. Its id consists of the file's digest and this number, so it is the same each time the
file is read. A line that is no request ends the job before anything is written.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from pipeline.files.store_files import absolute_path, filesystem_of, refuse_pipe
from pipeline.requests.parquet_requests import MAGIC, Rows, rows_of, scan_rows, size_of
from pipeline.requests.request_lines import LINE_BYTES_MAX, RequestError, changed_file, parsed_line
from pipeline.settings.settings import RULES_VERSION, BrokerSettings
from store_format.broker_version import DEFAULT_VERSION

CHUNK_BYTES = 8 << 20
# a chunk is read by one task; a small file is divided into _CHUNKS_A_FILE chunks, each of at least _LEAST_CHUNK_BYTES
_CHUNKS_A_FILE, _LEAST_CHUNK_BYTES = 4, 1 << 20
# about the bytes of a request in a line
_LINE_BYTES = 128
# one process never answers more bytes of requests alone, so a Parquet file is not read on once more are found
_MANY_BYTES = 1 << 30

# a filter type that is not TAG, or that is cut off
_OTHER_TYPE = re.compile(rb'"type"(?!\s*:\s*"TAG")')
# a maxMsgNums that has more than two digits, or is cut off
_LARGE_MAX = re.compile(rb'"maxMsgNums"(?!\s*:\s*-?[0-9]{1,2}\s*[,}])')
# an escape with which a name or the type may be written
_ESCAPE = b"\\u00"
_TAIL = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Complete lines of a file: their range of bytes, and the number of the first line, counted from 1.

    In a Parquet file, the range is a range of rows in the row group.

    Attributes:
        text_bytes: bytes of the texts of rows; 0 for lines.
        crc: CRC-32 of the lines when they were scanned; None for rows, and in a log of an older version.
        file_length: bytes of the Parquet file when it was scanned; None for lines.
        mtime_ns: time of the Parquet file when it was scanned, in ns since 1970; None for lines, and if the file system has no times.
    """

    start: int
    end: int
    first_line: int
    row_group: int | None = None
    text_bytes: int = 0
    crc: int | None = None
    file_length: int | None = None
    mtime_ns: int | None = None

    @property
    def rows(self) -> Rows | None:
        """The rows in a Parquet file; None for lines."""
        return None if self.row_group is None else Rows(self.row_group, self.start, self.end, self.first_line)

    @property
    def request_bytes(self) -> int:
        """About how many bytes the requests have as JSON lines."""
        count = self.end - self.start
        return count if self.row_group is None else max(count * _LINE_BYTES, self.text_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFile:
    """A request file that was scanned once.

    Attributes:
        path: absolute path or URI.
        sha256: digest of the content.
        header: header in the first line; None if there is none.
        chunks: ranges of complete lines, in order.
        lines: number of lines.
        is_blank: whether there are no lines but blank ones.
        has_other_filters: whether a filter may be of another type than TAG.
        has_large_max: whether a maxMsgNums may be greater than 99.
    """

    path: str
    sha256: str
    header: dict[str, Any] | None
    chunks: tuple[Chunk, ...]
    lines: int
    is_blank: bool = False
    has_other_filters: bool = True
    has_large_max: bool = True

    @property
    def is_parquet(self) -> bool:
        """Whether the requests are rows of a Parquet file."""
        return bool(self.chunks) and self.chunks[0].rows is not None

    def settings(
        self, *, stored: Mapping[str, str] | None = None, properties: str | None = None, options: Sequence[str] = ()
    ) -> BrokerSettings:
        """The broker's settings for the requests.

        Later sources win: `stored` (imported with the store), the file's header, `properties`, `options`.
        """
        header, where = header_config(self.header), f"{self.path}, line 1"
        return BrokerSettings.from_sources(stored=stored, header=header, header_where=where, properties=properties, options=options)


# what a recorder puts into the header of a trace and of look-ups
_RECORDED = frozenset({"loaded", "consumeQueueFileMtimesMs"})


def header_config(header: Mapping[str, Any] | None) -> Any:
    """The settings in a header: its `config`, with its `version` as rulesVersion; None if it has neither.

    A recorder writes `version` unless it is 4.9.3, and `loaded`, whether the store was loaded. A store that was not loaded is not
    readable: DefaultMessageStore.shutdown is true until start, and getMessage then returns null.
    """
    if header is None:
        return None
    config = header.get("config", {})
    if not isinstance(config, dict):
        return config
    is_recorded = not _RECORDED.isdisjoint(header)
    version = {RULES_VERSION: header.get("version", DEFAULT_VERSION.value)} if is_recorded or "version" in header else {}
    found = version | config | ({"readable": False} if header.get("loaded") is False else {})
    return found or header.get("config")


def open_file(path: str) -> pa.NativeFile:
    """Open a local path or a URI for reading; raises OSError for what cannot be opened, and for a pipe or a device."""
    refuse_pipe(path)
    filesystem, inside = filesystem_of(path)
    return filesystem.open_input_file(inside)


def scan_file(path: str) -> RequestFile:
    """Read a request file once, and its header.

    Raises:
        RequestError: the file does not exist, or is empty or blank, or a line is longer than LINE_BYTES_MAX, or the first line is no JSON
            object.
    """
    found = scan_lines(path)
    if found.is_blank:
        raise RequestError(found.path, 1, "at least one request", "only blank lines" if found.lines else "an empty file")
    if found.is_parquet:
        return found
    return replace(found, header=header_of(found.path, first_line(found)))


def scan_lines(path: str) -> RequestFile:
    """Read a request file once, for its digest and chunks; `header` of the result is None.

    Raises:
        RequestError: the file does not exist, a line is longer than LINE_BYTES_MAX, or a Parquet file is damaged, changes during the scan,
            or has a row that is no request.
    """
    digest = hashlib.sha256()
    chunks: list[Chunk] = []
    start, first_line, lines, at, crc = 0, 1, 0, 0, 0
    has_other_filters, has_large_max, tail, is_blank = False, False, b"", True
    path = absolute_path(path)  # executors have another working directory
    try:
        file = open_file(path)
    except (OSError, ValueError) as error:
        raise RequestError(path, 1, "a file of requests", getattr(error, "strerror", None) or str(error)) from error
    with file:
        if _is_parquet(file):
            return _scan_rows(path, file)
        chunk_bytes = min(CHUNK_BYTES, max(-(-file.size() // _CHUNKS_A_FILE), _LEAST_CHUNK_BYTES))
        while piece := file.read(chunk_bytes):
            digest.update(piece)
            is_blank = is_blank and not piece.strip()
            end = len(tail) + len(piece) - _TAIL
            has_other_filters = has_other_filters or _is_found(_OTHER_TYPE, tail + piece, end)
            has_large_max = has_large_max or _is_found(_LARGE_MAX, tail + piece, end)
            tail = (tail + piece)[-_TAIL:]
            cut = piece.rfind(b"\n") + 1
            crc = zlib.crc32(memoryview(piece)[:cut], crc)
            if cut:
                lines += piece.count(b"\n")
                chunks.append(Chunk(start=start, end=at + cut, first_line=first_line, crc=crc))
                start, first_line, crc = at + cut, 1 + lines, 0
            crc = zlib.crc32(memoryview(piece)[cut:], crc)
            at += len(piece)
            if at - start > LINE_BYTES_MAX:
                raise RequestError(path, first_line, f"a line of at most {LINE_BYTES_MAX} bytes", "a longer one")
        if start < at:
            chunks.append(Chunk(start=start, end=at, first_line=first_line, crc=crc))
    return RequestFile(
        path=path,
        sha256=digest.hexdigest(),
        header=None,
        chunks=tuple(chunks),
        lines=lines + (start < at),
        is_blank=is_blank,
        has_other_filters=has_other_filters or _is_found(_OTHER_TYPE, tail, len(tail)),
        has_large_max=has_large_max or _is_found(_LARGE_MAX, tail, len(tail)),
    )


def _is_parquet(file: pa.NativeFile) -> bool:
    """Whether a file begins as a Parquet file; the file must be at its start, and is left there."""
    begin = file.read(len(MAGIC))
    file.seek(0)
    return bool(begin == MAGIC)


def _scan_rows(path: str, file: pa.NativeFile) -> RequestFile:
    """As `scan_lines`, for a Parquet file."""
    filesystem, inside = filesystem_of(path)
    before = length, mtime = _length_and_time(path)
    digest = hashlib.sha256()
    while piece := file.read(CHUNK_BYTES):
        digest.update(piece)
    found, has_other_filters, has_large_max = scan_rows(filesystem, inside, path)
    if _length_and_time(path) != before:
        raise changed_file(path, 1)
    return RequestFile(
        path=path,
        sha256=digest.hexdigest(),
        header=None,
        chunks=tuple(
            Chunk(
                start=rows.start,
                end=rows.end,
                first_line=rows.first,
                row_group=rows.group,
                text_bytes=rows.text_bytes,
                file_length=length,
                mtime_ns=mtime,
            )
            for rows in found
        ),
        lines=found[-1].first + found[-1].end - found[-1].start - 1 if found else 0,
        is_blank=not found,
        has_other_filters=has_other_filters,
        has_large_max=has_large_max,
    )


def request_bytes(path: str) -> int:
    """About how many bytes the requests of a file have as JSON lines; 0 if the file cannot be read.

    Raises:
        RequestError: the file begins as a Parquet file, but is none.
    """
    try:
        with open_file(path) as file:
            if not _is_parquet(file):
                return int(file.size())
    except (OSError, ValueError):
        return 0
    filesystem, inside = filesystem_of(path)
    return size_of(filesystem, inside, path, _LINE_BYTES, _MANY_BYTES)


def first_line(file: RequestFile) -> bytes:
    """The first line of a request file that is not empty."""
    return bytes_of_chunk(file.path, file.chunks[0]).split(b"\n", 1)[0]


def bytes_of_chunk(path: str, chunk: Chunk) -> bytes:
    """The lines of a chunk, as they were scanned.

    Raises:
        RequestError: the file cannot be read, or has changed since the scan.
    """
    try:
        with open_file(path) as file:
            raw = bytes(file.read_at(chunk.end - chunk.start, chunk.start))
    except (OSError, ValueError) as error:
        raise RequestError(path, chunk.first_line, "a file that every executor can open", str(error)) from error
    if len(raw) < chunk.end - chunk.start or chunk.crc not in {None, zlib.crc32(raw)}:
        raise changed_file(path, chunk.first_line)
    return raw


def rows_of_chunk(path: str, chunk: Chunk) -> pa.RecordBatch:
    """The rows of a chunk of a Parquet file, as they were scanned, in the form of parquet_requests.rows_of.

    Raises:
        RequestError: the file cannot be read, or has changed since the scan.
    """
    assert chunk.rows is not None
    found = rows_of(*filesystem_of(path), path, chunk.rows)
    if chunk.file_length is not None and _length_and_time(path) != (chunk.file_length, chunk.mtime_ns):
        raise changed_file(path, chunk.first_line)
    return found


def _length_and_time(path: str) -> tuple[int | None, int | None]:
    """The bytes of a file, and its time in ns since 1970."""
    filesystem, inside = filesystem_of(path)
    info = filesystem.get_file_info(inside)
    return info.size, info.mtime_ns


def _is_found(pattern: re.Pattern[bytes], raw: bytes, end: int) -> bool:
    """Whether a match of the pattern, or an escape that may hide one, begins in the first `end` bytes."""
    found = pattern.search(raw)
    return (found is not None and found.start() < end) or 0 <= raw.find(_ESCAPE) < end


def header_of(path: str, first: bytes) -> dict[str, Any] | None:
    """The header in the first line; None if the first line is blank or a request.

    Raises:
        RequestError: the line is no JSON object.
    """
    if not first.strip():
        return None
    line = parsed_line(path, 1, first)
    return line if line.get("kind") == "trace" and "request" not in line else None


def header_if_any(path: str, first: bytes) -> dict[str, Any] | None:
    """The header in the first line; None if the first line is no header."""
    try:
        return header_of(path, first)
    except RequestError:
        return None
