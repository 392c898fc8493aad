"""Compares the tables of a broker with its store, file by file and byte by byte, and checks the constraints of the tables.

A byte of the store that is not zero must come from exactly one row. So the rows are made into bytes again, and compared with the store's
bytes at their place. The bytes that are not zero are counted by file on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.export.export_store import WRITTEN, RowsOf, entries_of, range_of
from pipeline.files.store_files import StoreFiles
from pipeline.importing.import_store import packed_rows, rows_of_store
from pipeline.importing.load_store import LoadedStore
from pipeline.lake.data_files import rows_for_tasks
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.rows.config_tables import config_rows
from pipeline.rows.index_tables import index_rows
from pipeline.rows.log_records import encoded_records
from pipeline.rows.queue_batches import unpack
from pipeline.rows.timer_rows import timer_rows
from pipeline.rows.unmapped_files import pieces_of
from pipeline.schema import tables as t
from pipeline.schema.arrow_types import arrow_of
from pipeline.settings.settings import BrokerSettings
from pipeline.store.open_log import OpenLog
from pipeline.tasks.computed_once import computed_once
from pipeline.tasks.local_rows import frame_of
from pipeline.tasks.work import SparkTasks, SparkWork, Work, spark_parallelism
from pipeline.verify.verify_constraints import broken_constraints
from pipeline.verify.verify_store import FINDING
from store_format.big_endian import Bytes, Positions
from store_format.errors import StoreError
from store_format.files.mapped_files import MappedFile, offset_to_file_name
from store_format.record.record_check import first_difference, used_bytes
from store_format.store_paths import COMMIT_LOG

# number of bytes of a file, other than zeros, that the rows of a batch give; or what is wrong with one of the rows
_DDL = "path STRING, used BIGINT, text STRING"
_ROWS = arrow_of(_DDL)
Compare = Callable[[pa.RecordBatch], Iterator[tuple[str, int, str | None]]]


def verify_lake(broker: OpenedBroker, path: str, settings: BrokerSettings, progress: Callable[[str], None]) -> Work:
    """Findings, in the columns of FINDING_DDL, about the tables of a broker that was imported from this store.

    Raises:
        StoreError: the broker would not load or start the store, so the store cannot have been imported.
        LakeError: the lake does not hold all of the broker's files.
    """
    broker.require_files()
    progress("loading the store as an import does")
    as_found = broker.is_as_found()
    tasks = SparkTasks(broker.lake.spark)
    loaded, files = rows_of_store(tasks, StoreFiles(path), broker.name, settings, as_found=as_found)
    progress("comparing the tables with the store")
    expected = files.once()
    compared = computed_once(_compared_rows(tasks, broker, loaded))
    findings = [_files(broker, expected.frame), _bytes(compared, expected, loaded.store)]
    entries = broker.table(t.CONSUME_QUEUE_SEGMENT).mapInArrow(unpack, t.CONSUME_QUEUE.schema)
    of_segments = "the rows are not the entries of consume_queue_segment"
    findings.append(_other_rows(broker, t.CONSUME_QUEUE, entries, ["topic", "queueId"], of_segments))
    of_files, text = packed_rows(tasks, loaded, broker.name), "the rows are not those that the queue's files give"
    findings += [_other_rows(broker, table, of_files.frame(table), ["topic", "queueId"], text) for table in of_files.tables]
    config = config_rows(loaded.store, broker.name, as_found=as_found, enable_lmq=settings.value("enableLmq"))
    findings += [_config(broker, table, rows) for table, rows in config.tables.items()]
    index = index_rows(tasks, loaded.store, broker.name, settings)
    findings += [_config(broker, t.CHECKPOINT, index.checkpoint)]
    findings.append(
        _other_rows(broker, t.INDEX_ENTRY, index.entries.frame(t.INDEX_ENTRY), ["file"], "the rows are not the entries of the file")
    )
    for timer in timer_rows(tasks, loaded.store, broker.name, settings):
        text = "the rows are not those that timerlog and timerwheel give"
        findings += [_other_rows(broker, table, timer.frame(table), ["brokerName"], text) for table in timer.tables]
    findings.append(broken_constraints(broker))
    columns = ["code", "path", "text", *(f"CAST(NULL AS BIGINT) AS {name}" for name in FINDING[3:])]
    return SparkWork(reduce(DataFrame.unionByName, findings).orderBy("path", "code").selectExpr(*columns)).once()


def _finding(code: str, path: str, text: Column) -> tuple[Column, Column, Column]:
    return F.lit(code).alias("code"), F.col(path).alias("path"), text


def _files(broker: OpenedBroker, expected: DataFrame) -> DataFrame:
    """Findings: files that only the store or only store_file has, and files with different facts in them."""
    told = [name for name in t.STORE_FILE.names if name not in {"brokerName", "path"}]
    ours = broker.table(t.STORE_FILE).select("path", F.struct(*told).alias("ours"))
    both = expected.select("path", F.struct(*told).alias("theirs")).join(ours, "path", "full_outer")
    text = (
        F.when(F.isnull("ours"), "a file of the store that is not in store_file")
        .when(F.isnull("theirs"), "a row of store_file for which the store has no file")
        .otherwise(F.concat(F.lit("store_file says "), F.to_json("ours"), F.lit(", the store "), F.to_json("theirs")))
    )
    return both.where(~F.col("ours").eqNullSafe(F.col("theirs"))).select(*_finding("TABLE_FILE", "path", text.alias("text")))


def _bytes(compared: DataFrame, expected: Work, store: StoreFiles) -> DataFrame:
    """Findings: rows that give other bytes than the store has, and files with bytes that are in no row or in two rows."""
    wrong = compared.where("text IS NOT NULL").groupBy("path").agg(F.first("text").alias("text"))
    pieces = pieces_of(expected, after_entries=False).spread(spark_parallelism(compared.sparkSession))
    stored = pieces.mapped(partial(_count_used, store), _DDL).frame
    counted = [frame.groupBy("path").agg(F.sum("used").alias(name)) for frame, name in ((stored, "stored"), (compared, "given"))]
    both = counted[0].join(counted[1], "path", "full_outer").na.fill(0).where("stored <> given").join(wrong, "path", "left_anti")
    text = F.format_string("%,d bytes that are not zero, rows for %,d of them", "stored", "given").alias("text")
    told = wrong.select(*_finding("TABLE_DIFFERS", "path", F.col("text")))
    return told.unionByName(both.select(*_finding("TABLE_BYTES", "path", text)))


def _compared_rows(tasks: SparkTasks, broker: OpenedBroker, loaded: LoadedStore) -> DataFrame:
    store = loaded.store
    compare: tuple[Compare, ...] = (
        partial(_compare_records, OpenLog(store), loaded.sizes.commit_log),
        partial(_compare_placed, store, entries_of),
        partial(_compare_placed, store, range_of),
    )
    found = []
    for (table, columns, near), held in zip(WRITTEN, compare, strict=True):
        rows, rows_of = rows_for_tasks(tasks, broker, table, columns, column=near)
        found.append(rows.mapped(partial(_run, held, rows_of), _DDL).frame)
    return reduce(DataFrame.unionByName, found)


def _other_rows(broker: OpenedBroker, table: t.Table, expected: DataFrame, by: list[str], text: str) -> DataFrame:
    """Findings: groups of rows that differ from the expected rows in number or in the hash of all columns; `by` names a group's columns."""
    columns = [name for name in table.names if name != "brokerName"]
    rows = broker.table(table)
    sums = [
        frame.groupBy(*by).agg(F.struct(F.count("*"), F.bit_xor(F.xxhash64(*columns))).alias(name))
        for frame, name in ((expected, "expected"), (rows, "rows"))
    ]
    both = sums[0].join(sums[1], by, "full_outer").where("NOT (expected <=> rows)")
    path = F.concat_ws("/", F.lit(table.name), *[F.col(name).cast("STRING") for name in by])
    return both.withColumn("path", path).select(*_finding("TABLE_DIFFERS", "path", F.lit(text).alias("text")))


def _config(broker: OpenedBroker, table: t.Table, told: pa.Table) -> DataFrame:
    rows, expected = broker.table(table).select(*table.names), frame_of(broker.lake.spark, told)
    differing = rows.exceptAll(expected).unionByName(expected.exceptAll(rows))
    text = F.format_string("%,d rows that only the table or only the store has", "rows").alias("text")
    counted = differing.agg(F.count("*").alias("rows")).where("rows > 0").withColumn("path", F.lit(table.name))
    return counted.select(*_finding("TABLE_DIFFERS", "path", text))


# what tasks do ------------------------------------------------------------------------------------------------------------------------


def _run(compare: Compare, rows_of: RowsOf, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in rows_of(batches):
        rows = [dict(zip(_ROWS.names, found, strict=True)) for found in compare(batch)]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=_ROWS)


def _count_used(store: StoreFiles, pieces: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in pieces:
        for row in batch.to_pylist():
            path = tuple(row["path"].split("/"))
            used = sum(int(np.count_nonzero(store.part(*stretch, *path))) for stretch in store.written(row["start"], row["end"], *path))
            yield pa.RecordBatch.from_pylist([{"path": row["path"], "used": used}], schema=_ROWS)


def _compare_records(log: OpenLog, log_size: int, rows: pa.RecordBatch) -> Iterator[tuple[str, int, str | None]]:
    try:
        content, ends = encoded_records(rows, log_size)
    except StoreError as error:
        yield COMMIT_LOG, 0, str(error)
        return
    offsets, sizes = rows.column("physicOffset").to_numpy(), np.diff(ends)
    starts = offsets // log_size * log_size
    for start in np.unique(starts).tolist():
        inside = starts == start
        file = MappedFile(name=offset_to_file_name(start), from_offset=start, length=log_size, wrote=log_size)
        yield _held_against(log, file, content, ends[:-1][inside], offsets[inside] - start, sizes[inside])


def _held_against(
    log: OpenLog, file: MappedFile, content: Bytes, positions: Positions, stored_at: Positions, sizes: Positions
) -> tuple[str, int, str | None]:
    path = f"{COMMIT_LOG}/{file.name}"
    try:
        stored = log.content(file)
    except StoreError:
        return path, 0, "rows for a file that the store does not have"
    if len(stored) < int((stored_at + sizes).max()):
        return path, 0, f"rows for bytes past the file's {len(stored):,}"
    differs = first_difference(content, positions, stored, stored_at, sizes)
    return path, used_bytes(content, positions, sizes), None if differs < 0 else f"byte {differs}: other bytes than the rows give"


def _compare_placed(
    store: StoreFiles, placed: Callable[[Mapping[str, Any]], tuple[str, int, bytes]], rows: pa.RecordBatch
) -> Iterator[tuple[str, int, str | None]]:
    for path, position, data in map(placed, rows.to_pylist()):
        try:
            stored = store.part(position, position + len(data), *path.split("/")).tobytes()
        except StoreError:
            yield path, 0, "rows for a file that the store does not have"
            continue
        text = None if stored == data else f"bytes from {position} on: others than the row gives"
        yield path, len(data) - data.count(0), text
