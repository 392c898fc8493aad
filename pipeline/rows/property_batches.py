"""Makes Arrow batches of consume_queue_properties from consume queue files."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.rows import queue_batches as qb
from pipeline.schema.arrow_types import arrow_schema
from pipeline.schema.tables import CONSUME_QUEUE_PROPERTIES, CONSUME_QUEUE_SEGMENT
from store_format.layout import CQ_STORE_UNIT_SIZE
from store_format.queue.entry_properties import find_properties

# most bytes of properties in one row; a segment whose messages have more gets several rows
ROW_BYTES = 8 << 20


def property_batches(reader: qb.QueueReader, queue_file: qb.QueueFile) -> Iterator[pa.RecordBatch]:
    """The batches with the properties of the file's entries, segment by segment; a batch has about ROW_BYTES."""
    starts = queue_file.starts
    if not starts:
        return
    units = reader.units(queue_file)[starts.start : starts[-1] + qb.SEGMENT_ENTRIES + qb.SCAN_ENTRIES - 1]
    found = find_properties(
        reader.log.files,
        lambda index: reader.log_content(reader.log.files[index]),
        units["physicOffset"].astype(np.int64),
        units["size"].astype(np.int32),
        version=reader.version,
    )
    first = queue_file.file.from_offset // CQ_STORE_UNIT_SIZE + starts.start
    rows: list[dict[str, object]] = []
    size = 0
    for start in range(0, len(starts) * qb.SEGMENT_ENTRIES, qb.SEGMENT_ENTRIES):
        segment = qb.segment_at(queue_file.file, starts.start + start)
        for at, stop in row_parts(found.lengths, start, min(start + qb.SEGMENT_ENTRIES + qb.SCAN_ENTRIES - 1, len(units))):
            part = found[at:stop]
            properties = part.bytes_of(lambda file: reader.log_content(reader.log.files[file])).tobytes()
            rows.append(
                {
                    "brokerName": reader.broker,
                    "topic": queue_file.topic,
                    "queueId": queue_file.queue_id,
                    "segment": segment,
                    "firstQueueOffset": first + at,
                    "lengths": part.lengths.astype("<i4").tobytes(),
                    "properties": properties,
                }
            )
            size += len(properties) + 4 * len(part)
            if size >= ROW_BYTES:
                yield _batch(rows)
                rows, size = [], 0
    if rows:
        yield _batch(rows)


def _batch(rows: list[dict[str, object]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(CONSUME_QUEUE_PROPERTIES))


def row_parts(lengths: NDArray[np.int64], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Divide the entries [start, end) into parts with at most ROW_BYTES of properties, or with one entry.

    `lengths` has the bytes of each entry's properties.
    """
    ends = np.cumsum(np.maximum(lengths[start:end], 0))
    at = 0
    while at < end - start:
        before = int(ends[at - 1]) if at else 0
        stop = max(int(np.searchsorted(ends, before + ROW_BYTES, side="right")), at + 1)
        yield start + at, start + stop
        at = stop


def read_packed(reader: qb.QueueReader, files: Iterator[pa.RecordBatch], wanted: frozenset[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of consume_queue_segment and consume_queue_properties for rows of loaded_queue; each batch comes with its table's name.

    Each row of `files` has a `segment`.
    """
    for queue_file in qb.queue_files(files):
        if CONSUME_QUEUE_SEGMENT.name in wanted:
            yield from ((CONSUME_QUEUE_SEGMENT.name, rows) for rows in reader.segments(queue_file))
        if CONSUME_QUEUE_PROPERTIES.name in wanted:
            yield from ((CONSUME_QUEUE_PROPERTIES.name, rows) for rows in property_batches(reader, queue_file))
