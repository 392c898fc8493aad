"""Files of pull requests: JSON lines as in a trace, with a header line where answers were recorded.

A request's number is its line; its id the file's digest and that line, so that reading a file twice gives the same ids. A line that is
no request ends the job before anything is written.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from pipeline.files.store_files import absolute_path, filesystem_of
from pipeline.requests.request_lines import RequestError, parsed_line
from pipeline.settings.settings import BrokerSettings

CHUNK_BYTES = 8 << 20
# a chunk is a task's: a file of less has so many chunks, unless they were not worth a task
_CHUNKS_A_FILE, _LEAST_CHUNK_BYTES = 4, 1 << 20
# no request of a sane client is longer; a file without line ends must not be read whole
LINE_BYTES_MAX = 16 << 20

# a type that is not TAG, or cut off before that is known
_OTHER_TYPE = re.compile(rb'"type"(?!\s*:\s*"TAG")')
# it may be written with these as well
_ESCAPE = b"\\u00"
_TAIL = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Some whole lines of a file: byte range and number of the first line, counting from 1."""

    start: int
    end: int
    first_line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFile:
    """A request file: its digest, the configuration of its first line, its lines and where they are, and whether a filter may be no TAG."""

    path: str
    sha256: str
    header: dict[str, Any] | None
    chunks: tuple[Chunk, ...]
    lines: int
    has_other_filters: bool = True

    def settings(
        self, *, stored: Mapping[str, str] | None = None, properties: str | None = None, options: Sequence[str] = ()
    ) -> BrokerSettings:
        """The broker's settings under which the requests are asked: those of the header over `stored` ones, under all others."""
        header, where = (self.header or {}).get("config"), f"{self.path}, line 1"
        return BrokerSettings.from_sources(stored=stored, header=header, header_where=where, properties=properties, options=options)


def open_file(path: str) -> pa.NativeFile:
    """Open a local path or a URI for reading."""
    filesystem, inside = filesystem_of(path)
    return filesystem.open_input_file(inside)


def scan_file(path: str) -> RequestFile:
    """Read a file once, in pieces: digest, line starts at piece borders, and the header.

    Raises:
        RequestError: no file, an empty one, a line longer than LINE_BYTES_MAX, or a first line that is no object of JSON.
    """
    found = scan_lines(path)
    if not found.chunks:
        raise RequestError(found.path, 1, "at least one request", "an empty file")
    return replace(found, header=header_of(found.path, first_line(found)))


def scan_lines(path: str) -> RequestFile:
    """Read a file once, in pieces: digest and line starts at piece borders. Of its first line nothing is known.

    Raises:
        RequestError: no file, or a line longer than LINE_BYTES_MAX.
    """
    digest = hashlib.sha256()
    chunks: list[Chunk] = []
    start, first_line, lines, at = 0, 1, 0, 0
    has_other_filters, tail = False, b""
    path = absolute_path(path)  # an executor works in another folder
    try:
        file = open_file(path)
    except (OSError, ValueError) as error:
        raise RequestError(path, 1, "a file of requests", getattr(error, "strerror", None) or str(error)) from error
    with file:
        chunk_bytes = min(CHUNK_BYTES, max(-(-file.size() // _CHUNKS_A_FILE), _LEAST_CHUNK_BYTES))
        while piece := file.read(chunk_bytes):
            digest.update(piece)
            end = len(tail) + len(piece) - _TAIL
            has_other_filters, tail = has_other_filters or _has_other_filter(tail + piece, end), piece[-_TAIL:]
            cut = piece.rfind(b"\n") + 1
            if cut:
                lines += piece.count(b"\n")
                chunks.append(Chunk(start=start, end=at + cut, first_line=first_line))
                start, first_line = at + cut, 1 + lines
            at += len(piece)
            if at - start > LINE_BYTES_MAX:
                raise RequestError(path, first_line, f"a line of at most {LINE_BYTES_MAX} bytes", "a longer one")
        if start < at:
            chunks.append(Chunk(start=start, end=at, first_line=first_line))
    return RequestFile(
        path=path,
        sha256=digest.hexdigest(),
        header=None,
        chunks=tuple(chunks),
        lines=lines + (start < at),
        has_other_filters=has_other_filters or _has_other_filter(tail, len(tail)),
    )


def first_line(file: RequestFile) -> bytes:
    """The first line of a file that has lines."""
    with open_file(file.path) as opened:
        return bytes(opened.read(file.chunks[0].end)).split(b"\n", 1)[0]


def _has_other_filter(raw: bytes, end: int) -> bool:
    """Whether a type that may be no TAG begins in the first `end` bytes."""
    found = _OTHER_TYPE.search(raw)
    return (found is not None and found.start() < end) or 0 <= raw.find(_ESCAPE) < end


def header_of(path: str, first: bytes) -> dict[str, Any] | None:
    """The first line, if it is a header."""
    if not first.strip():
        return None
    line = parsed_line(path, 1, first)
    return line if line.get("kind") == "trace" and "request" not in line else None


def header_if_any(path: str, first: bytes) -> dict[str, Any] | None:
    """The first line, if it is a header; a bad line is none."""
    try:
        return header_of(path, first)
    except RequestError:
        return None
