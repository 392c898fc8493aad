"""Rows of queues after load, and what an import makes of them: totals, bounds, rows of store_file, and segments by age."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.rows.queue_batches import SEGMENT_ENTRIES
from pipeline.rows.unmapped_files import FOLDER
from pipeline.schema.arrow_types import arrow_of, arrow_schema
from pipeline.schema.table import Column, Table
from pipeline.schema.tables import EXT_FILES_TYPE, QUEUE, STORE_FILE
from pipeline.tasks.work import Batches, Work
from store_format.layout import CQ_STORE_UNIT_SIZE
from store_format.store_paths import CONSUME_QUEUE

LOADED_QUEUE = Table(
    "loaded_queue",
    "Queues as the broker's load leaves them, and their files: one row a file, one without file for a queue that has none left.",
    (
        Column("brokerName", "STRING", "broker"),
        Column("topic", "STRING", "topic"),
        Column("queueId", "INT", "queue"),
        Column("minOffset", "BIGINT", "of the queue"),
        Column("maxOffset", "BIGINT", "of the queue"),
        Column("recoveredPhysicOffset", "BIGINT", "end in the commit log of the last message that recover found"),
        Column("maxPhysicOffset", "BIGINT", "the same after the log's end cut the queues"),
        Column("cutEntries", "BIGINT", "how many it cut off; in the queue's first row"),
        Column("hasFolder", "BOOLEAN", "whether the queue has a folder"),
        Column("name", "STRING", "of the file"),
        Column("fromOffset", "BIGINT", "of the file"),
        Column("length", "BIGINT", "of the file"),
        Column("wrote", "BIGINT", "bytes in use"),
        Column("mtimeMs", "BIGINT", "of the file"),
        Column("extFiles", EXT_FILES_TYPE, "of the queue's extension"),
        Column("deletedFiles", "INT", "files that load deletes: of its extension, or an empty last file (5.x); in the queue's first row"),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTotals:
    """Sums and greatest values over the rows of loaded_queue; the offsets are -1 if no queue has one.

    Attributes:
        recovered_physic_offset, max_physic_offset: greatest values of the columns of these names.
        queues: number of queues.
        wrote: bytes in use of all files.
        cut_entries, deleted_files: sums of the columns of these names.
    """

    recovered_physic_offset: int
    max_physic_offset: int
    queues: int
    wrote: int
    cut_entries: int
    deleted_files: int


_GREATEST = ("recoveredPhysicOffset", "maxPhysicOffset")
_SUMS = ("queues", "wrote", "cutEntries", "deletedFiles")
_TOTALS_DDL = ", ".join(f"{name} BIGINT" for name in (*_GREATEST, *_SUMS))
_SUMMED = ("topic", "queueId", *_GREATEST, *_SUMS[1:])
_OF_FILES = ("topic", "queueId", "hasFolder", "name", "fromOffset", "length", "wrote", "mtimeMs")
# rows in a batch of segments
_SEGMENTS_A_BATCH = 1 << 13


def totals_of(queues: Work) -> QueueTotals:
    """The totals of rows of loaded_queue; all rows of a queue must lie in one partition, one after the other."""
    parts = queues.select(_SUMMED).mapped(_totals, _TOTALS_DDL).rows()
    recovered, most = (max((part[name] for part in parts), default=-1) for name in _GREATEST)
    count, wrote, cut, deleted = (sum(part[name] for part in parts) for name in _SUMS)
    return QueueTotals(
        recovered_physic_offset=recovered, max_physic_offset=most, queues=count, wrote=wrote, cut_entries=cut, deleted_files=deleted
    )


def _totals(batches: Batches) -> Batches:
    greatest, sums = dict.fromkeys(_GREATEST, -1), dict.fromkeys(_SUMS, 0)
    last: tuple[str, int] | None = None
    for batch in batches:
        if not len(batch):
            continue
        for name in _GREATEST:
            greatest[name] = max(greatest[name], pc.max(pc.fill_null(batch.column(name), -1)).as_py())
        for name in _SUMS[1:]:
            sums[name] += pc.sum(pc.fill_null(batch.column(name), 0)).as_py()
        topic, number = batch.column("topic"), batch.column("queueId")
        codes = topic.dictionary_encode().indices.to_numpy()
        changes = np.count_nonzero((np.diff(codes) != 0) | (np.diff(number.to_numpy()) != 0))
        sums["queues"] += int(changes) + ((topic[0].as_py(), number[0].as_py()) != last)
        last = (topic[-1].as_py(), number[-1].as_py())
    yield pa.RecordBatch.from_pylist([greatest | sums], schema=arrow_of(_TOTALS_DDL))


def queue_rows(queues: Work) -> Work:
    """The rows of `queue` for rows of loaded_queue."""
    return queues.select(QUEUE.names).distinct(QUEUE.key)


def file_rows(queues: Work, broker: str) -> Work:
    """The rows of store_file for rows of loaded_queue: the queues' files, and the folders of queues that have none."""
    return queues.select(_OF_FILES).mapped(partial(_files, broker), STORE_FILE.schema)


def _files(broker: str, batches: Batches) -> Batches:
    for batch in batches:
        yield _files_of(broker, batch.filter(pc.or_kleene(batch.column("name").is_valid(), batch.column("hasFolder"))))


def _files_of(broker: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    # Spark may be set to send large strings
    topic, number, name = (rows.column(column).cast(pa.string()) for column in ("topic", "queueId", "name"))
    path = pc.binary_join_element_wise(CONSUME_QUEUE, topic, number, name, "/", null_handling="skip")
    schema = arrow_schema(STORE_FILE)
    columns = {column: rows.column(column) for column in schema.names if column in rows.schema.names} | {
        "brokerName": pa.repeat(pa.scalar(broker, pa.string()), len(rows)),
        "kind": pc.if_else(name.is_valid(), CONSUME_QUEUE, FOLDER),
        "name": pc.coalesce(name, number),
        "length": pc.coalesce(rows.column("length"), pa.scalar(0, pa.int64())),
        "path": path,
    }
    return pa.RecordBatch.from_arrays([columns[field.name].cast(field.type) for field in schema], schema=schema)


def segments_by_age(queues: Work) -> Work:
    """The rows of loaded_queue, once for each `segment` of each file, with its `age`: log2 of one plus the number of later segments."""
    return queues.mapped(_segments, f"{LOADED_QUEUE.schema}, segment BIGINT, age INT")


def _segments(batches: Batches) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        files = batch.filter(batch.column("name").is_valid())
        wrote, first, most = (files.column(name).to_numpy(zero_copy_only=False) for name in ("wrote", "fromOffset", "maxOffset"))
        counts = -(-(wrote // CQ_STORE_UNIT_SIZE) // SEGMENT_ENTRIES)
        row = np.repeat(np.arange(len(files)), counts)
        segment = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        later = np.maximum((most - first // CQ_STORE_UNIT_SIZE)[row] // SEGMENT_ENTRIES - segment, 0)
        age = np.frexp(1 + later)[1] - 1
        for start in range(0, len(row), _SEGMENTS_A_BATCH):
            part = slice(start, start + _SEGMENTS_A_BATCH)
            found = files.take(pa.array(row[part]))
            arrays = [*found.columns, pa.array(segment[part]), pa.array(age[part].astype(np.int32))]
            yield pa.RecordBatch.from_arrays(arrays, names=[*found.schema.names, "segment", "age"])
