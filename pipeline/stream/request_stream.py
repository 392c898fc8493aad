"""A folder of request files as a Spark stream: `spark.readStream.format("pull-request-files")`.

A batch is an entry of the request log (`request_log`). A task reads chunks of complete lines: one large chunk, or several small ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pipeline.requests.request_file import Chunk
from pipeline.requests.request_lines import REQUEST_ARROW, SCHEMA, BadLine, RequestError, changed_file, read_good_lines
from pipeline.requests.request_source import lines_of_chunk
from pipeline.schema.capture_tables import RAW_BYTES_MAX
from pipeline.stream.frame_pulls import FRAME_TYPE, OF_FRAME, is_frame, pull_of_line
from pipeline.stream.request_log import FoundFile, PlannedFile, RequestLog, found_file, list_requests, require_inside

NAME = "pull-request-files"
HEARTBEAT = "heartbeat"
# seq = number of the file in the batch * LINES_A_FILE + number of the line
LINES_A_FILE = 1 << 40
# most bytes of the small chunks that one task reads: reading them takes less time than starting another task
_PART_BYTES = 1 << 20
# A row is a request, a bad line (has `error`), a frame (has `frame`; other columns may be NULL), or a heartbeat (has only `timestamp`).
STREAM_SCHEMA = (
    f"{SCHEMA}, source STRING, sourceDigest STRING, config STRING, position BIGINT, error STRING, raw BINARY, frame {FRAME_TYPE}"
)
_OF_FILE = {"source": pa.string(), "sourceDigest": pa.string(), "config": pa.string()}
_OF_BAD = {"position": pa.int64(), "error": pa.string(), "raw": pa.binary()}
_FRAME = pa.struct({name: pa.int64() if kind == "BIGINT" else pa.string() for name, kind in OF_FRAME.items()})
_ARROW = pa.schema([*REQUEST_ARROW, *_OF_FILE.items(), *_OF_BAD.items(), ("frame", _FRAME)])


class RequestStream(DataSource):
    """The data source; its options are `folder`, `log` (path of the request log), `answered` (of RequestLog) and `maxFilesPerTrigger`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return NAME

    def schema(self) -> str:
        """The columns of the stream's rows."""
        return STREAM_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """A reader for the options of the source."""
        return RequestStreamReader(
            self.options["folder"], self.options["log"], int(self.options["maxFilesPerTrigger"]), int(self.options["answered"])
        )


@dataclass(frozen=True, slots=True)
class FileChunk:
    """One chunk of a file, or None if the file cannot be read. `number` is the file's number in the batch."""

    number: int
    planned: PlannedFile
    chunk: Chunk | None

    @property
    def request_bytes(self) -> int:
        """As `request_bytes` of Chunk; 0 for a file that cannot be read."""
        return 0 if self.chunk is None else self.chunk.request_bytes


@dataclass
class LinesPartition(InputPartition):
    """The chunks that one task reads."""

    chunks: list[FileChunk]


class RequestStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches in a process on the driver, and reads their chunks in tasks."""

    def __init__(self, folder: str, log: str, files_max: int, answered: int = 0) -> None:
        self.folder, self.log, self.files_max, self.answered = folder, log, files_max, answered
        self._opened: RequestLog | None = None
        self._until: list[FoundFile] | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 (Spark's name)
        """The offset before the first entry."""
        return {"entry": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        """At most `files_max` files in a batch; a batch of large files has fewer."""
        return ReadMaxFiles(self.files_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        """Restrict the stream to the files that exist now."""
        self._until = list_requests(self.folder)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 (Spark's name)
        """The offset of the next entry: an entry planned before a crash, or a new one if there are new files."""
        log = self._request_log()
        if start["entry"] < log.newest:
            return {"entry": start["entry"] + 1}
        most = limit.max_files if isinstance(limit, ReadMaxFiles) else self.files_max
        return {"entry": log.plan(list_requests(self.folder) if self._until is None else self._until, most)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """The partitions of a batch, each of at most _PART_BYTES or of one chunk."""
        log = self._request_log()
        files = [planned for number in range(start["entry"] + 1, end["entry"] + 1) for planned in log.files(number)]
        of_files = [(number, planned, (None,) if planned.problem else planned.chunks) for number, planned in enumerate(files)]
        return _parts(FileChunk(number, planned, chunk) for number, planned, chunks in of_files for chunk in chunks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition: requests, heartbeats, frames and bad lines."""
        assert isinstance(partition, LinesPartition)
        for one in partition.chunks:
            yield from self._rows(one)

    def _rows(self, one: FileChunk) -> Iterator[pa.RecordBatch]:
        planned, chunk = one.planned, one.chunk
        if chunk is None:
            yield _bad_rows(planned, [(0, planned.problem or "", b"")])
            return
        require_inside(planned.file.path)  # again: a link may have taken the place of the file
        first, position, raw = lines_of_chunk(planned.file.path, chunk)
        if found_file(planned.file.path) != planned.file:
            raise changed_file(planned.file.path, first)
        good, bad = read_good_lines(planned.file.path, first, raw)
        if len(good):
            yield _good_rows(planned, one.number, good)
        yield from _other_rows(planned, one.number, position, bad)

    def _request_log(self) -> RequestLog:
        if self._opened is None:
            self._opened = RequestLog(self.log, self.answered)
        return self._opened


def _parts(chunks: Iterable[FileChunk]) -> list[InputPartition]:
    parts: list[LinesPartition] = []
    room = 0
    for chunk in chunks:
        if not parts or chunk.request_bytes > room:
            parts.append(LinesPartition([]))
            room = _PART_BYTES
        parts[-1].chunks.append(chunk)
        room -= chunk.request_bytes
    return [*parts]


def _good_rows(planned: PlannedFile, number: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    values = (planned.file.path, planned.sha256, planned.config)
    of_file = [pa.repeat(pa.scalar(value, type_), len(batch)) for value, type_ in zip(values, _OF_FILE.values(), strict=True)]
    of_bad = [pa.nulls(len(batch), type_) for type_ in (*_OF_BAD.values(), _FRAME)]
    numbered = pa.array(batch.column("seq").to_numpy() + number * LINES_A_FILE)
    return pa.RecordBatch.from_arrays([numbered, *batch.columns[1:-1], pa.nulls(len(batch), pa.string()), *of_file, *of_bad], schema=_ARROW)


def _other_rows(planned: PlannedFile, number: int, position: int, others: list[BadLine]) -> Iterator[pa.RecordBatch]:
    """Rows for the lines of a chunk that are no requests: heartbeats, frames and bad lines."""
    times: list[int] = []
    pulls: list[dict[str, Any]] = []
    bad: list[tuple[int, str, bytes]] = []
    for line in others:
        error, beat = line.error, heartbeat_of(line.raw)
        if beat is not None:
            times.append(beat)
            continue
        if is_frame(line.raw):
            try:
                pulls.append(pull_of_line(error.path, error.line, line.raw))
                continue
            except RequestError as of_frame:
                error = of_frame
        bad.append((position + line.position, str(error), line.raw[:RAW_BYTES_MAX]))
    if times:
        yield _heartbeats(planned, times)
    if pulls:
        yield _pulls_of_frames(planned, number, pulls)
    if bad:
        yield _bad_rows(planned, bad)


def _pulls_of_frames(planned: PlannedFile, number: int, pulls: list[dict[str, Any]]) -> pa.RecordBatch:
    of_file = {"source": planned.file.path, "sourceDigest": planned.sha256, "config": planned.config}
    rows = [pull | of_file | {"seq": pull["seq"] + number * LINES_A_FILE} for pull in pulls]
    return pa.RecordBatch.from_pylist(rows, schema=_ARROW)


def heartbeat_of(raw: bytes) -> int | None:
    """The timestamp in ms of a heartbeat line; None for any other line."""
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict) or line.get("kind") != HEARTBEAT or line.keys() != {"kind", "timestamp"}:
        return None
    time = line["timestamp"]
    return time if isinstance(time, int) and not isinstance(time, bool) and -(2**63) <= time < 2**63 else None


def _heartbeats(planned: PlannedFile, times: list[int]) -> pa.RecordBatch:
    """Rows for heartbeats with these timestamps."""
    rows = [{"source": planned.file.path, "sourceDigest": planned.sha256, "timestamp": time} for time in times]
    return pa.RecordBatch.from_pylist(rows, schema=_ARROW)


def _bad_rows(planned: PlannedFile, bad: list[tuple[int, str, bytes]]) -> pa.RecordBatch:
    rows = [
        {"source": planned.file.path, "sourceDigest": planned.sha256, "position": position, "error": error, "raw": raw}
        for position, error, raw in bad
    ]
    return pa.RecordBatch.from_pylist(rows, schema=_ARROW)
