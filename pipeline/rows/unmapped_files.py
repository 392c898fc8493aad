"""Reads the parts of a store that no other table has: files that are not mapped, empty folders, bytes outside of records and entries.

Broker source (4.9.3): MappedFileQueue.load reads every file in a folder of mapped files, and the broker does not start if one is no mapped
file. Other folders may have any files; their bytes are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.files.store_files import StoreFiles
from pipeline.rows.log_batches import used_ranges
from pipeline.schema.arrow_types import arrow_of, arrow_schema
from pipeline.schema.tables import STORE_FILE, STORE_FILE_RANGE
from pipeline.store import load_files as lf
from pipeline.tasks.task_rows import TaskRows, rows_made
from pipeline.tasks.work import Batches, Tasks, Work, of_items
from store_format.errors import StoreError
from store_format.files.files import Entry, FilePath
from store_format.layout import CQ_STORE_UNIT_SIZE
from store_format.store_paths import COMMIT_LOG, CONSUME_QUEUE, kind_of

FOLDER = "folder"
# greatest depth of folders: the walk calls itself for each level
_DEEPEST = 64
_TOPICS_A_TASK = 256
# bytes of a file that a task reads and maps at once
_PIECE_BYTES = 64 << 20
_PIECES_DDL = "path STRING, start BIGINT, end BIGINT"


def walk_tree(store: StoreFiles, *folder: str) -> Iterator[tuple[FilePath, Entry | None]]:
    """The path and entry of every file in a folder and below, and the path of every empty folder with None."""
    if len(folder) > _DEEPEST:
        raise StoreError(store.path_of(*folder), f"folders at most {_DEEPEST} deep", "deeper ones", hint="no broker makes such folders")
    entries = store.folder(*folder)
    if not entries and folder:
        yield folder, None
    for entry in entries:
        path = (*folder, entry.name)
        if entry.is_folder:
            yield from walk_tree(store, *path)
        else:
            yield path, entry


def beside_mapped_files(store: StoreFiles, *, has_log: bool) -> Iterator[tuple[FilePath, Entry | None]]:
    """The files and empty folders outside of the folders of commit log and topics; `has_log` is whether the commit log has files."""
    for entry in store.folder():
        if not entry.is_folder:
            yield (entry.name,), entry
        elif entry.name == COMMIT_LOG:
            if not has_log:
                yield (entry.name,), None
        elif entry.name == CONSUME_QUEUE:
            below = store.folder(CONSUME_QUEUE)
            if not below:
                yield (entry.name,), None
            yield from (((entry.name, one.name), one) for one in below if not one.is_folder)
        else:
            yield from walk_tree(store, entry.name)


def beside_queues(store: StoreFiles, topic: str) -> Iterator[tuple[FilePath, Entry | None]]:
    """The files and empty folders in the folder of a topic that belong to no queue."""
    folder = (CONSUME_QUEUE, topic)
    queues = set(map(str, lf.queue_ids(store, topic)))
    entries = store.folder(*folder)
    if not entries:
        yield folder, None
    for entry in entries:
        path = (*folder, entry.name)
        if not entry.is_folder:
            yield path, entry
        elif entry.name not in queues:
            yield from walk_tree(store, *path)


def _rows(broker: str, found: Iterator[tuple[FilePath, Entry | None]]) -> pa.RecordBatch:
    rows = [
        {
            "brokerName": broker,
            "kind": FOLDER if entry is None else kind_of(path),
            "name": path[-1],
            "length": 0 if entry is None else entry.length,
            "mtimeMs": None if entry is None else entry.mtime_ms,
            "path": "/".join(path),
        }
        for path, entry in found
    ]
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(STORE_FILE))


def other_files(tasks: Tasks, store: StoreFiles, broker: str, *, has_log: bool) -> Work:
    """The rows of store_file for all files and empty folders but mapped files and folders of queues.

    If there are more than _TOPICS_A_TASK topics, tasks look into their folders.
    """
    topics = lf.topics(store)
    groups = [topics[start : start + _TOPICS_A_TASK] for start in range(0, len(topics), _TOPICS_A_TASK)]

    def of_group(group: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return (_rows(broker, beside_queues(store, topic)) for topic in group)

    beside = _rows(broker, beside_mapped_files(store, has_log=has_log))
    if len(groups) <= 1:
        found = [beside, *(rows for group in groups for rows in of_group(group))]
        return tasks.of_rows(pa.Table.from_batches(found))
    of_topics = of_items(tasks, groups, of_group, STORE_FILE.schema).once()
    return of_topics.joined(tasks.of_rows(pa.Table.from_batches([beside])))


def pieces_of(files: Work, *, after_entries: bool) -> Work:
    """The pieces (path, start, end) of files of store_file, each small enough to be read at once.

    Args:
        files: rows of store_file.
        after_entries: whether files of the commit log are left out, and the pieces of queue files begin after the entries.
    """
    return files.select(["kind", "path", "length", "wrote"]).mapped(partial(_pieces, after_entries), _PIECES_DDL)


def _pieces(after_entries: bool, files: Batches) -> Batches:
    left_out = [COMMIT_LOG, FOLDER] if after_entries else [FOLDER]
    for batch in files:
        wrote = batch.column("wrote").fill_null(0).to_numpy(zero_copy_only=False) if after_entries else np.zeros(len(batch), np.int64)
        first = pa.array(wrote // CQ_STORE_UNIT_SIZE * CQ_STORE_UNIT_SIZE)
        has_bytes = pc.and_(pc.less(first, batch.column("length")), pc.invert(pc.is_in(batch.column("kind"), pa.array(left_out))))
        columns = [batch.column("path"), first, batch.column("length")]
        rows = pa.RecordBatch.from_arrays(columns, names=["path", "first", "length"]).filter(has_bytes)
        pieces = []
        for row in rows.to_pylist():
            starts = range(row["first"], row["length"], _PIECE_BYTES)
            pieces += [{"path": row["path"], "start": start, "end": min(start + _PIECE_BYTES, row["length"])} for start in starts]
        yield pa.RecordBatch.from_pylist(pieces, schema=arrow_of(_PIECES_DDL))


def file_ranges(files: Work, store: StoreFiles, broker: str, parallelism: int) -> TaskRows:
    """The rows of store_file_range for rows of store_file: the bytes after the entries of queue files, and all bytes of other files."""
    return rows_made(STORE_FILE_RANGE, pieces_of(files, after_entries=True).spread(parallelism), partial(_read, store, broker))


def _read(store: StoreFiles, broker: str, pieces: Batches) -> Batches:
    for batch in pieces:
        for row in batch.to_pylist():
            path = tuple(row["path"].split("/"))
            for start, end in store.written(row["start"], row["end"], *path):
                yield from used_ranges(broker, path, store.part(start, end, *path), start)
