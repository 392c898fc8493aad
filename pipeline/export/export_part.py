"""Exports a part of a broker's messages as a smaller store, which a broker can load and use.

Broker source (4.9.3): CommitLog.recoverNormally, ConsumeQueue.recover, fillPreBlank and correctMinOffset, DefaultMessageStore.start.
Rules: messages keep their queueOffset, so the groups' offsets stay right. They get a new physicOffset, and with it a new message id. They
follow each other in the order of the old log; a BLANK fills the rest of a file. A queue begins with its first message of the part, after
pre-blank units.
Surprises: a pre-blank unit has physicOffset 0. If the log began at 0, load would take the unit for the queue's first entry, so the new log
begins with its second file. A message without an entry, such as a prepared one of a transaction, is in no part. The log ends with a message
that has an entry, so a start dispatches nothing again.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.export.export_store import Exported, Progress, close_files, create_files, folder_beside, written
from pipeline.export.part_files import write_checkpoint, write_config, write_index
from pipeline.export.part_plan import LogPlan, Part, entries_of_part, moved_messages
from pipeline.export.store_folder import OpenFiles, StoreFolder
from pipeline.files.store_files import local_path
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.rows.log_records import RECORD_COLUMNS, write_records
from pipeline.schema import tables as t
from pipeline.tasks.work import SparkWork
from store_format.big_endian import Bytes
from store_format.errors import StoreError
from store_format.files.mapped_files import FILE_NAME_DIGITS, offset_to_file_name
from store_format.layout import CQ_STORE_UNIT_SIZE, CQ_UNIT, PRE_BLANK
from store_format.log.append import encode_blank
from store_format.store_paths import COMMIT_LOG, CONSUME_QUEUE

_PRE_BLANK = np.array([PRE_BLANK], CQ_UNIT).tobytes()


def export_part(broker: OpenedBroker, store: str, *, part: Part, run_id: str, progress: Progress) -> Exported:
    """Write a part of a broker's messages as a store.

    `store` is a local directory to create; it may exist if it is empty.

    Raises:
        OutputError: the directory cannot be created.
        LakeError: a topic is unknown, the part has no message, or the store was imported as found.
        StoreError: the message of an entry is missing, or a file cannot be written.
        After any error there is no directory `store`.
    """
    broker.require_started()
    sizes = broker.row()
    assert sizes is not None
    with folder_beside(store, broker.lake, run_id) as folder:
        progress("choosing the messages")
        entries = entries_of_part(broker, part)
        plan, moved = moved_messages(entries, sizes["mappedFileSizeCommitLog"])
        progress(f"writing {plan.end - plan.file_size:,} bytes of commit log, and the queues")
        queued = entries.join(moved.select("physicOffset", "newOffset"), "physicOffset")
        files = SparkWork(_log_files(moved, plan).unionByName(_queue_files(entries, sizes["mappedFileSizeConsumeQueue"]))).once()
        made, _ = written(files, folder, _create)
        messages, size = _write_log(broker, folder, moved, plan)
        size += _write_queues(folder, queued, sizes)
        progress("writing index, checkpoint and config")
        made += _write_others(broker, folder, part, plan, moved, sizes)
        written(files, folder, close_files)
    return Exported(store=local_path(store), broker=broker.name, files=made, messages=messages, bytes=size)


def _log_files(moved: DataFrame, plan: LogPlan) -> DataFrame:
    start = (F.col("file") * plan.file_size).alias("start")
    files = moved.withColumn("file", F.floor(F.col("newOffset") / plan.file_size)).groupBy(start)
    found = files.agg(F.max(F.col("newOffset") + F.col("size")).alias("end"), F.max("storeTimestamp").alias("mtimeMs"))
    path = F.concat_ws("/", F.lit(COMMIT_LOG), _file_name(F.col("start")))
    return _files(found, COMMIT_LOG, path, plan.file_size, wrote=F.col("end") - F.col("start"), blanks=F.lit(0))


def _queue_files(entries: DataFrame, size: int) -> DataFrame:
    """The files of consume queues; `blanks` is the number of pre-blank units before a file's first entry."""
    units = size // CQ_STORE_UNIT_SIZE
    start = (F.floor(F.col("queueOffset") / units) * units).alias("start")
    found = entries.groupBy("topic", "queueId", start).agg(F.min("queueOffset").alias("first"), F.max("storeTimestamp").alias("mtimeMs"))
    name = _file_name(F.col("start") * CQ_STORE_UNIT_SIZE)
    path = F.concat_ws("/", F.lit(CONSUME_QUEUE), "topic", F.col("queueId").cast("STRING"), name)
    return _files(found, CONSUME_QUEUE, path, size, wrote=F.lit(0), blanks=F.col("first") - F.col("start"))


def _files(found: DataFrame, kind: str, path: Column, length: int, **numbers: Column) -> DataFrame:
    """Rows with kind, path, length and mtimeMs as in store_file, then the columns `numbers`."""
    counts = [column.cast("BIGINT").alias(name) for name, column in numbers.items()]
    return found.select(F.lit(kind).alias("kind"), path.alias("path"), F.lit(length).cast("BIGINT").alias("length"), "mtimeMs", *counts)


def _file_name(offset: Column) -> Column:
    return F.lpad(offset.cast("STRING"), FILE_NAME_DIGITS, "0")


def _write_log(broker: OpenedBroker, folder: StoreFolder, moved: DataFrame, plan: LogPlan) -> tuple[int, int]:
    """Write the messages to the commit log; returns their number and their bytes."""
    rows = broker.table(t.COMMIT_LOG).select(*RECORD_COLUMNS).join(moved.select("physicOffset", "newOffset"), "physicOffset")
    count, size = written(SparkWork(rows.sortWithinPartitions("newOffset")), folder, partial(_write_records, plan.file_size))
    expected = moved.count()
    if count != expected:
        raise StoreError("commit_log", f"a row for each of {expected} messages", f"{count} rows", hint="import the store again")
    with OpenFiles(folder) as files:
        for offset, length in plan.blanks:
            start = offset // plan.file_size * plan.file_size
            size += files.write(f"{COMMIT_LOG}/{offset_to_file_name(start)}", offset - start, encode_blank(length))
    return count, size


def _write_queues(folder: StoreFolder, queued: DataFrame, sizes: dict[str, Any]) -> int:
    queue_size = sizes["mappedFileSizeConsumeQueue"]
    file = F.floor(F.col("queueOffset") * CQ_STORE_UNIT_SIZE / queue_size)
    placed = queued.repartition("topic", "queueId", file).sortWithinPartitions("topic", "queueId", "queueOffset")
    return written(SparkWork(placed), folder, partial(_write_units, queue_size))[1]


def _write_others(broker: OpenedBroker, folder: StoreFolder, part: Part, plan: LogPlan, moved: DataFrame, sizes: dict[str, Any]) -> int:
    """Write the files that are neither commit log nor queue; returns their number."""
    newest = moved.orderBy(F.col("newOffset").desc()).head()
    assert newest is not None
    count, index_msg_timestamp = write_index(broker, folder, plan, sizes)
    write_checkpoint(folder, newest["storeTimestamp"], index_msg_timestamp)
    return count + 2 + write_config(broker, folder, part.topics)


# what tasks do ----------------------------------------------------------


def _create(opened: OpenFiles, files: pa.RecordBatch) -> tuple[int, int]:
    made, _ = create_files(opened, files)
    return made, sum(opened.write(row["path"], 0, _PRE_BLANK * row["blanks"]) for row in files.to_pylist() if row["blanks"])


def _write_records(log_size: int, files: OpenFiles, rows: pa.RecordBatch) -> tuple[int, int]:
    def opened(start: int) -> tuple[Bytes, int]:
        return files.log_file(offset_to_file_name(start), log_size), start

    return len(rows), write_records(rows, log_size, opened, at="newOffset")


def _write_units(queue_size: int, files: OpenFiles, rows: pa.RecordBatch) -> tuple[int, int]:
    """Write entries to their queue files, one write for each run of consecutive entries of a file; returns their number and bytes."""
    topics = rows.column("topic").dictionary_encode()
    codes = topics.indices.to_numpy(zero_copy_only=False)
    queue_ids, offsets = (rows.column(name).to_numpy() for name in ("queueId", "queueOffset"))
    units = np.empty(len(rows), CQ_UNIT)
    for name, column in (("physicOffset", "newOffset"), ("size", "size"), ("tagsCode", "tagsCode")):
        units[name] = rows.column(column).to_numpy()
    a_file = queue_size // CQ_STORE_UNIT_SIZE
    breaks = (np.diff(codes) != 0) | (np.diff(queue_ids) != 0) | (np.diff(offsets) != 1) | (np.diff(offsets // a_file) != 0)
    starts = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(rows)]
    size = 0
    for start, stop in pairwise(starts):
        file, position = divmod(int(offsets[start]), a_file)
        topic = topics.dictionary[int(codes[start])].as_py()
        path = f"{CONSUME_QUEUE}/{topic}/{queue_ids[start]}/{offset_to_file_name(file * queue_size)}"
        size += files.write(path, position * CQ_STORE_UNIT_SIZE, units[start:stop].tobytes())
    return len(rows), size
