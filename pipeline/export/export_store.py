"""Exports the Delta tables of a broker as a store directory.

The files have the imported bytes, or the bytes after the broker's start if start changed the store.
First the files are created with their full length. Then many tasks write records, entries and all other bytes to their positions. Then the
files get their times. All this happens in a temporary folder next to the store, which is renamed as the last step.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import pyarrow as pa

from pipeline.export.store_folder import OpenFiles, StoreFolder
from pipeline.files.output_file import OutputError
from pipeline.files.store_files import is_uri, local_path
from pipeline.files.whole_folder import whole_folder
from pipeline.lake.data_files import rows_for_tasks
from pipeline.lake.lake import Lake
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.lake.session import tasks_at_once
from pipeline.rows.log_records import RECORD_COLUMNS, write_records
from pipeline.rows.unmapped_files import FOLDER
from pipeline.schema import tables as t
from pipeline.schema.arrow_types import arrow_of
from pipeline.tasks.work import DriverTasks, SparkTasks, SparkWork, Tasks, Work
from store_format.errors import StoreError, shown
from store_format.files.mapped_files import offset_to_file_name
from store_format.layout import CQ_STORE_UNIT_SIZE
from store_format.store_paths import COMMIT_LOG, CONSUME_QUEUE

Progress = Callable[[str], None]
Batches = Iterator[pa.RecordBatch]
RowsOf = Callable[[Batches], Batches]
# writes the rows of a batch; returns their number and the bytes written
Write = Callable[[OpenFiles, pa.RecordBatch], tuple[int, int]]
_COUNT_DDL = "count BIGINT, bytes BIGINT"
_COUNT = arrow_of(_COUNT_DDL)
_SEGMENT = ("topic", "queueId", "firstQueueOffset", "fileFirstOffset", "entryCount", "entries")
# a table, its columns, and the column by whose values rows are grouped into tasks
WrittenTable = tuple[t.Table, tuple[str, ...], str]
# the tables with the bytes of files
WRITTEN: tuple[WrittenTable, ...] = (
    (t.COMMIT_LOG, RECORD_COLUMNS, "physicOffset"),
    (t.CONSUME_QUEUE_SEGMENT, _SEGMENT, "firstQueueOffset"),
    (t.STORE_FILE_RANGE, ("path", "position", "bytes"), "position"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The result of an export: the store's directory, the broker, and the numbers of files, messages and bytes."""

    store: str
    broker: str
    files: int
    messages: int
    bytes: int


def export_store(broker: OpenedBroker, store: str, *, run_id: str, progress: Progress) -> Exported:
    """Write the store of one broker, by tasks of the lake's session, or by this process if the lake has none.

    `store` is a local directory to create; it may exist if it is empty.

    Raises:
        OutputError: the directory cannot be created.
        LakeError: an earlier pullsim, which did not keep all files, filled the lake, or the store was followed.
        StoreError: the tables do not have the imported bytes, or a file cannot be written.
        NoSessionError: the lake has no session, and only Spark reads one of its tables.
        After any error there is no directory `store`.
    """
    row = broker.require_files()
    tasks: Tasks = SparkTasks(broker.lake.spark) if broker.lake.has_session else DriverTasks()
    with folder_beside(store, broker.lake, run_id) as folder:
        files = _files(tasks, broker)
        made, messages, size = _write_all(tasks, broker, folder, files, row["mappedFileSizeCommitLog"], progress)
        progress("setting the times of the files")
        written(files, folder, close_files)
    return Exported(store=local_path(store), broker=broker.name, files=made, messages=messages, bytes=size)


@contextmanager
def folder_beside(store: str, lake: Lake, run_id: str) -> Iterator[StoreFolder]:
    """A new folder, which is renamed to `store` at the end, and removed after an error; `store` must not lie in the lake."""
    target = store if is_uri(store) else os.path.realpath(local_path(store))
    root = lake.root if is_uri(lake.root) else os.path.realpath(lake.root)
    if target == root or target.startswith(f"{root}/"):
        raise OutputError(f"{store}: expected a directory outside the lake, found one in {lake.root}")
    with whole_folder(store, run_id) as folder:
        yield StoreFolder(folder)


def _files(tasks: Tasks, broker: OpenedBroker) -> Work:
    """The rows of store_file, in tasks that all run at the same time."""
    columns = ("kind", "path", "length", "wrote", "mtimeMs")
    if not broker.lake.has_session:
        return tasks.of_rows(broker.rows(t.STORE_FILE)).select(columns)
    return SparkWork(broker.table(t.STORE_FILE)).select(columns).spread(tasks_at_once(broker.lake.spark)).once()


def _write_all(
    tasks: Tasks, broker: OpenedBroker, folder: StoreFolder, files: Work, log_size: int, progress: Progress
) -> tuple[int, int, int]:
    """Write all files of a store; returns the numbers of files and records, and all bytes."""
    writes: tuple[Write, ...] = (partial(_write_records, log_size), partial(_write_placed, entries_of), partial(_write_placed, range_of))
    progress("making the files")
    with ThreadPoolExecutor(len(writes) + 2) as pool:
        created = pool.submit(written, files, folder, create_files)
        jobs = [pool.submit(_write_rows, tasks, broker, folder, *each, created) for each in zip(WRITTEN, writes, strict=True)]
        expected = pool.submit(_records_of, tasks, broker)
        try:
            made, _ = created.result()
            progress(f"writing {made:,} files")
            found = [job.result() for job in jobs]
        except BaseException:  # for example Ctrl-C
            tasks.cancel()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
    messages = found[0][0]
    if messages != expected.result():
        told = f"{expected.result()} records, as commit_log_segment says"
        raise StoreError("commit_log", told, str(messages), hint="import the store again")
    return made, messages, sum(size for _, size in found)


def _write_rows(
    tasks: Tasks, broker: OpenedBroker, folder: StoreFolder, what: WrittenTable, write: Write, created: Future[tuple[int, int]]
) -> tuple[int, int]:
    """Plan the work on a table, wait for `created`, and write the table's rows."""
    table, columns, near = what
    work, rows_of = rows_for_tasks(tasks, broker, table, columns, column=near)
    created.result()
    return written(work, folder, write, rows_of)


def _records_of(tasks: Tasks, broker: OpenedBroker) -> int:
    work, rows_of = rows_for_tasks(tasks, broker, t.COMMIT_LOG_SEGMENT, ("recordCount",), column="firstPhysicOffset")
    return _total(work.mapped(partial(_count_records, rows_of), _COUNT_DDL))[0]


def written(work: Work, folder: StoreFolder, write: Write, rows_of: RowsOf = iter) -> tuple[int, int]:
    """Write the rows of `work`, or those that `rows_of` makes of them, with `write`; returns the numbers of rows and bytes.

    A task keeps its files open from one batch to the next, since a page fault in a mapped file costs more than writing the page.
    """

    def run(batches: Batches) -> Batches:
        with OpenFiles(folder) as files:
            counts = [write(files, batch) for batch in rows_of(batches)]
        rows, size = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
        yield pa.RecordBatch.from_pylist([{"count": rows, "bytes": size}], schema=_COUNT)

    return _total(work.mapped(run, _COUNT_DDL))


def _total(counted: Work) -> tuple[int, int]:
    """The sums of the counts and bytes that tasks return."""
    rows = counted.rows()
    return sum(row["count"] for row in rows), sum(row["bytes"] for row in rows)


# what tasks do ----------------------------------------------------------


def create_files(opened: OpenFiles, files: pa.RecordBatch) -> tuple[int, int]:
    """Create the files of rows of store_file, filled with zeros; returns the number of files, and 0 for the bytes."""
    made = 0
    for row in files.to_pylist():
        path, length, used = row["path"], row["length"], (row["wrote"] or 0) if row["kind"] == COMMIT_LOG else 0
        is_described = row["kind"] == FOLDER or (length is not None and 0 <= used <= length)
        if path is None or not is_described:
            found = f"path {shown(path)}, length {length} and wrote {used}"
            raise StoreError("store_file", "files with a path, and with 0 <= wrote <= length", found, hint="import the store again")
        if row["kind"] == FOLDER:
            opened.folder.create_folder(path)
        else:
            opened.folder.create(path, length, used)
            made += 1
    return made, 0


def close_files(opened: OpenFiles, files: pa.RecordBatch) -> tuple[int, int]:
    """Set the modification times of the files of rows of store_file, after all writes; returns the number of files, and 0 for the bytes."""
    for row in files.to_pylist():
        if row["kind"] != FOLDER:
            opened.folder.close(row["path"], max(row["mtimeMs"] or 0, 0))
    return len(files), 0


def _count_records(rows_of: RowsOf, batches: Batches) -> Batches:
    count = sum(sum(batch.column("recordCount").to_pylist()) for batch in rows_of(batches))
    yield pa.RecordBatch.from_pylist([{"count": count, "bytes": 0}], schema=_COUNT)


def _write_records(log_size: int, files: OpenFiles, rows: pa.RecordBatch) -> tuple[int, int]:
    return len(rows), write_records(rows, log_size, lambda start: (files.log_file(offset_to_file_name(start), log_size), start))


def _write_placed(placed: Callable[[Mapping[str, Any]], tuple[str, int, bytes]], files: OpenFiles, rows: pa.RecordBatch) -> tuple[int, int]:
    return len(rows), sum(files.write(*placed(row)) for row in rows.to_pylist())


# the path, the position and the bytes of a row of store_file_range
range_of = itemgetter("path", "position", "bytes")


def entries_of(segment: Mapping[str, Any]) -> tuple[str, int, bytes]:
    """The path of the queue file, the position in it and the bytes of the entries in a row of consume_queue_segment."""
    first, file_first, count, entries = (segment[name] for name in ("firstQueueOffset", "fileFirstOffset", "entryCount", "entries"))
    topic, queue_id = segment["topic"], segment["queueId"]
    path = f"{CONSUME_QUEUE}/{topic}/{queue_id}/{offset_to_file_name(file_first * CQ_STORE_UNIT_SIZE)}"
    if len(entries) < count * CQ_STORE_UNIT_SIZE:
        raise StoreError("consume_queue_segment", f"{count} entries at offset {first} of {path}", f"{len(entries)} bytes")
    return path, (first - file_first) * CQ_STORE_UNIT_SIZE, entries[: count * CQ_STORE_UNIT_SIZE]
