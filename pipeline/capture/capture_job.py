"""`pullsim capture`: read a file of packets into the tables pull_request, offset_history, offset_reset, subscription and bad_request.

One task reads the capture from start to end, and packs its TCP segments by connection. Then each connection goes through one task in the
order of the file. A task keeps only the incomplete frames of a connection in memory, so memory does not depend on the size of the file.
At last, each pull gets the subscription of its group from the heartbeats, group by group, in the order of time.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa

from pipeline.capture.connection import Connection
from pipeline.capture.exchanges import BAD, OFFSET, PULL, RESET, SUBSCRIPTION, Row
from pipeline.capture.packets import Bad, read_packets, with_a_packet
from pipeline.capture.registrations import BATCH_ROWS, batches_of, with_registrations
from pipeline.capture.segments import COLUMNS, PackedSegments, pack_segments
from pipeline.files.store_files import filesystem_of, refuse_pipe
from pipeline.lake.lake import Lake
from pipeline.lake.lake_writer import LakeWriter
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.schema import capture_tables as ct
from pipeline.schema.arrow_types import arrow_of
from pipeline.schema.table import Table
from pipeline.settings.quantities import counted
from pipeline.tasks.work import DriverTasks, SparkTasks, Tasks, Work
from store_format.errors import StoreError, without_credentials

BUFFER_BYTES = 1 << 20
DEFAULT_BROKER = "broker"
_BATCH_BYTES = 8 << 20
_SEGMENTS = "first STRING, second STRING, number BIGINT, matrix BINARY, payload BINARY, position BIGINT, error STRING"
_SEGMENTS_ARROW = arrow_of(_SEGMENTS)
# columns with the same value in every row of a capture
_OF_SOURCE = {"brokerName", "source", "sourceDigest"}
_KINDS = {
    PULL: ct.PULL_REQUEST,
    OFFSET: ct.OFFSET_HISTORY,
    RESET: ct.OFFSET_RESET,
    SUBSCRIPTION: ct.SUBSCRIPTION,
    BAD: ct.BAD_REQUEST,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """Result of reading a capture: numbers of pulls, of answered pulls, and of rows of offset_history and bad_request."""

    broker: str
    pulls: int
    answered: int
    offsets: int
    bad: int
    lake_version: int


def broker_of(lake: Lake, name: str | None) -> OpenedBroker:
    """The broker of captured traffic: the broker `name`, or the lake's only broker if `name` is None.

    In a lake without brokers, any name is accepted; None stands for "broker".

    Raises:
        LakeError: the lake has several brokers and no name was given, or it does not have the named broker.
    """
    return OpenedBroker(lake, lake.broker(name) if lake.brokers() else name or DEFAULT_BROKER)


@contextmanager
def open_capture(path: str) -> Iterator[BinaryIO]:
    """Open a capture file for reading from its start.

    Raises:
        StoreError: the file cannot be opened.
    """
    try:
        refuse_pipe(path)
        filesystem, inside = filesystem_of(path)
        with filesystem.open_input_stream(inside, buffer_size=BUFFER_BYTES) as stream:
            yield cast(BinaryIO, io.BufferedReader(stream, BUFFER_BYTES))
    except (OSError, pa.ArrowInvalid) as error:
        raise StoreError(path, "a capture file that every executor can open", getattr(error, "strerror", None) or str(error)) from error


def digest_of(path: str) -> str:
    """The SHA-256 of a file in hexadecimal; errors as in `open_capture`."""
    with open_capture(path) as file:
        digest = hashlib.sha256()
        while read := file.read(BUFFER_BYTES):
            digest.update(read)
        return digest.hexdigest()


def run_capture(
    broker: OpenedBroker,
    path: str,
    *,
    run_id: str,
    now: Callable[[], dt.datetime],
    progress: Callable[[str], None],
) -> Captured:
    """Read a capture into the lake, by tasks of its session, or by this process if it has none; replace rows of the same file.

    Raises:
        StoreError: the file cannot be opened, is no capture, or has no packet that can be read; nothing was written then.
        LakeError: another run is writing to the lake.
        NoSessionError: the lake has no session, and only Spark writes one of its tables; nothing of this run is visible then.
    """
    progress(f"reading {path}")
    digest, lake = digest_of(path), broker.lake
    tasks: Tasks = SparkTasks(lake.spark) if lake.has_session else DriverTasks()
    found = captured_rows(tasks, path, digest).once()
    writer = LakeWriter(lake, run_id=run_id, what="capture", broker=broker.name)
    rows, answered = ({row["kind"]: row[name] for row in found.summed(("kind",), name).rows()} for name in ("rows", "answered"))
    progress(f"writing {counted(rows.get(PULL, 0), 'pull')}")
    of_source = {"brokerName": broker.name, "source": without_credentials(path), "sourceDigest": digest}
    parts = {kind: _part(found, kind, of_source) for kind in _KINDS}
    parts[PULL] = with_registrations(parts[PULL], parts[SUBSCRIPTION])
    for kind, table in _KINDS.items():
        writer.replace_source(table, parts[kind], digest)
    return Captured(
        broker=broker.name,
        pulls=rows.get(PULL, 0),
        answered=answered.get(PULL, 0),
        offsets=rows.get(OFFSET, 0),
        bad=rows.get(BAD, 0),
        lake_version=writer.commit(now()),
    )


def _part(found: Work, kind: str, of_source: Mapping[str, str]) -> Work:
    """The rows of one table."""
    table = _KINDS[kind]
    return found.part(kind, table.names, {name: text for name, text in of_source.items() if name in table.names})


def _own(table: Table) -> list[str]:
    """The columns of a table that are filled from packets."""
    return [name for name in table.names if name not in _OF_SOURCE]


def captured_rows(tasks: Tasks, path: str, digest: str) -> Work:
    """The rows of a capture as (kind, rows, answered, a struct for each kind), without the columns that are equal in all rows.

    `rows` is 1, and `answered` 1 for a pull that was answered, else 0.
    """
    segments = tasks.of_items([path]).mapped(partial(_segments, path), _SEGMENTS)
    return segments.grouped(("first", "second"), ("number",)).mapped(partial(_rows, digest), _schema())


def _schema() -> str:
    structs = []
    for kind, table in _KINDS.items():
        own = set(_own(table))
        fields = ", ".join(f"`{column.name}`: {column.type}" for column in table.columns if column.name in own)
        structs.append(f"{kind} STRUCT<{fields}>")
    return ", ".join(["kind STRING", "rows BIGINT", "answered BIGINT", *structs])


def _segments(path: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read the file as packed segments and bad parts; runs in one task, because the input has one row."""
    for batch in batches:
        if not len(batch):
            continue
        gathered: list[Row] = []
        size = 0
        with open_capture(path) as file:
            for found in pack_segments(with_a_packet(read_packets(file, path), path)):
                gathered.append(_segment_row(found))
                size += len(gathered[-1]["payload"]) + len(gathered[-1].get("matrix", b""))
                if size >= _BATCH_BYTES or len(gathered) >= BATCH_ROWS:
                    yield pa.RecordBatch.from_pylist(gathered, schema=_SEGMENTS_ARROW)
                    gathered, size = [], 0
        if gathered:
            yield pa.RecordBatch.from_pylist(gathered, schema=_SEGMENTS_ARROW)


def _segment_row(found: PackedSegments | Bad) -> Row:
    if isinstance(found, Bad):
        return {"number": -1, "payload": found.raw, "position": found.position, "error": found.error}
    first, second = found.connection
    return {"first": first, "second": second, "number": found.number, "matrix": found.matrix.tobytes(), "payload": found.payload}


def _rows(digest: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of the tables from packed segments, which are sorted by connection."""
    found = ({"kind": kind, "rows": 1, "answered": int(_is_answered(kind, row)), kind: row} for kind, row in _found(digest, batches))
    return batches_of(found, arrow_of(_schema()))


def _is_answered(kind: str, row: Row) -> bool:
    return kind == PULL and row.get("recordedCode") is not None


def _found(digest: str, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, Row]]:
    connection: Connection | None = None
    for batch in batches:
        for index in range(len(batch)):
            row: dict[str, Any] = {name: batch.column(place)[index].as_py() for place, name in enumerate(batch.schema.names)}
            if row["error"] is not None:
                yield BAD, {"position": row["position"], "error": row["error"], "raw": row["payload"]}
                continue
            ends = (row["first"], row["second"])
            if connection is None or connection.ends != ends:
                if connection is not None:
                    yield from connection.end()
                connection = Connection(ends, digest)
            matrix = np.frombuffer(row["matrix"], "<i8").reshape(-1, COLUMNS)
            yield from connection.feed(PackedSegments(ends, row["number"], matrix, row["payload"]))
    if connection is not None:
        yield from connection.end()
