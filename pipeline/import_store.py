"""Store directory -> Delta tables, as the broker's load and start would leave the store.

The order follows the data: the commit log's end first (it cuts the queues), then its records, then the queues that point into it, then
the config files; `lake_version` last, as the only commit point.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline import loaded_store as ls
from pipeline import tables as t
from pipeline.config_tables import config_rows
from pipeline.lake import Lake, LakeError, LakeWriter
from pipeline.queue_batches import LogIndex, QueueFile, QueueReader, odd_entry_batches, unpack_segments
from pipeline.settings import BrokerSettings
from pipeline.store_files import StoreFiles
from pipeline.store_source import LOADED_QUEUE, NAME, StoreDataSource, read_options
from pipeline.unfinished_dispatch import undispatched_records
from store_format.commit_log import WalkEnd
from store_format.errors import CorruptStoreError
from store_format.mapped_files import MappedFile
from store_format.recovery import FileWalk, RecoveredLog, files_to_walk, recover_normally

# above so many (topic, queueId) a partition each costs more than it saves: `--layout auto` clusters instead
PARTITIONS_MAX = 2000
# rows of one queue that go into one file, by the bytes of their records
FILE_BYTES = 128 << 20
_TABLES_AT_ONCE = 3

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What an import did."""

    broker: str
    lake_version: int
    layout: t.Layout
    min_phy_offset: int
    max_phy_offset: int
    messages: int
    entries: int
    queues: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """The store after load: log, bounds and options for its reader."""

    log: RecoveredLog
    bounds: ls.LogBounds
    options: Mapping[str, str]
    queues: DataFrame
    notes: tuple[str, ...]


def import_store(
    lake: Lake,
    store_path: str,
    *,
    broker: str,
    layout: t.Layout | None,
    settings: BrokerSettings,
    run_id: str,
    now: Callable[[], dt.datetime],
    progress: Progress,
) -> Imported:
    """Import one store into the lake, in the place of what the lake holds of this broker.

    Args:
        lake: where to.
        store_path: directory or URI of the store; it is only read.
        broker: name the store goes under.
        layout: partitioned or clustered; None decides by the number of queues.
        settings: the broker's settings: file sizes, checkCRCOnRecover.
        run_id: of this run.
        now: the wall clock.
        progress: told of each step.

    Raises:
        StoreError: the store cannot be used; the lake is as before.
    """
    store = StoreFiles(store_path)
    store.check_exists()
    _refuse_unsupported(store)
    sizes = ls.file_sizes(store, {name: settings.explicit(name) for name in ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue")})
    progress("recovering the commit log and the queues as the broker's load does")
    loaded = _load(lake.spark, store, broker, sizes, check_crc=bool(settings.value("checkCRCOnRecover")))
    queue_count, escaped = _queues_and_longest_topic(loaded.queues)
    chosen = _layout(lake, layout, queue_count)
    writer = LakeWriter(lake, run_id=run_id, what="import", broker=broker)
    progress("preparing the tables")
    with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
        list(pool.map(lambda table: writer.prepare(table, chosen, topics_escaped=escaped), t.IMPORTED))
    _write_log(writer, loaded, sizes, progress)
    _write_queues(writer, store, broker, loaded, progress)
    progress("writing config and bounds")
    rows = config_rows(lake.spark, store, broker)
    _in_parallel([partial(writer.replace_broker, table, frame) for table, frame in rows.tables.items()])
    writer.replace_broker(t.BROKER, _broker_row(writer, store, broker, loaded, sizes, settings, chosen))
    messages, entries = writer.written(t.COMMIT_LOG), writer.written(t.CONSUME_QUEUE_SEGMENT)
    counts = (
        messages.where(F.col("brokerName") == broker).count(),
        entries.where(F.col("brokerName") == broker).agg(F.sum("entryCount")).first(),
    )
    version = writer.commit(now())
    return Imported(
        broker=broker,
        lake_version=version,
        layout=chosen,
        min_phy_offset=loaded.bounds.min_offset,
        max_phy_offset=loaded.bounds.max_offset,
        messages=counts[0],
        entries=int((counts[1] or [0])[0] or 0),
        queues=queue_count,
        notes=(*loaded.notes, *rows.notes),
    )


def _in_parallel(steps: Iterable[Callable[[], None]]) -> None:
    with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
        for done in [pool.submit(step) for step in steps]:
            done.result()


def _refuse_unsupported(store: StoreFiles) -> None:
    names = {entry.name for entry in store.folder()}
    if "abort" in names:
        raise CorruptStoreError(
            store.path_of("abort"),
            "no abort file, as after a clean shutdown",
            "one: the broker was killed or still runs",
            hint="copy the store after a clean shutdown; what an abnormal recovery changes cannot be computed yet",
        )
    if any(store.folder(ls.CONSUME_QUEUE_EXT, topic.name) for topic in store.folder(ls.CONSUME_QUEUE_EXT)):
        raise CorruptStoreError(
            store.path_of(ls.CONSUME_QUEUE_EXT),
            "no consume queue extension",
            "files of one",
            hint="stores written with enableConsumeQueueExt=true cannot be imported yet",
        )


def _load(spark: SparkSession, store: StoreFiles, broker: str, sizes: ls.FileSizes, *, check_crc: bool) -> _Loaded:
    spark.dataSource.register(StoreDataSource)
    log_files = ls.load_log(store, sizes)
    log = recover_normally(log_files, _walk_last_files(spark, store, log_files, check_crc=check_crc))
    recovered = _read(spark, read_options(store, broker, sizes, None), LOADED_QUEUE)
    furthest = _max_of(recovered, "maxPhysicOffset")
    bounds = ls.LogBounds(min_offset=log.min_offset, max_offset=log.max_offset, truncates_queues=furthest >= log.max_offset)
    options = read_options(store, broker, sizes, bounds)
    queues = _read(spark, options, LOADED_QUEUE).localCheckpoint()
    reput_from = max(_max_of(queues, "maxPhysicOffset"), bounds.min_offset, 0)
    _refuse_unfinished_dispatch(spark, store, log, reput_from)
    return _Loaded(log=log, bounds=bounds, options=options, queues=queues, notes=_log_notes(store, log_files, log))


def _read(spark: SparkSession, options: Mapping[str, str], table: t.Table) -> DataFrame:
    return spark.read.format(NAME).options(**options).option("table", table.name).load()


def _max_of(rows: DataFrame, column: str) -> int:
    row = rows.agg(F.max(column)).first()
    return -1 if row is None or row[0] is None else int(row[0])


def _walk_last_files(spark: SparkSession, store: StoreFiles, files: tuple[MappedFile, ...], *, check_crc: bool) -> list[FileWalk]:
    last = files_to_walk(files)
    names = spark.createDataFrame([(file.from_offset, file.length) for file in last], "fromOffset BIGINT, length BIGINT")

    def walk(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                file = next(file for file in last if file.from_offset == row["fromOffset"])
                walked = ls.walk_log_file(store, file, check_crc=check_crc)
                yield pa.RecordBatch.from_pylist([{"fromOffset": file.from_offset, "end": walked.end, "ended": int(walked.ended)}])

    rows = names.repartition(len(last), "fromOffset").mapInArrow(walk, "fromOffset BIGINT, end BIGINT, ended BIGINT").collect()
    ends = {row["fromOffset"]: row for row in rows}
    return [FileWalk(name=file.name, end=ends[file.from_offset]["end"], ended=WalkEnd(ends[file.from_offset]["ended"])) for file in last]


def _refuse_unfinished_dispatch(spark: SparkSession, store: StoreFiles, log: RecoveredLog, reput_from: int) -> None:
    if reput_from >= log.max_offset:
        return
    waiting = undispatched_records(spark, store, log.files, reput_from)
    if waiting:
        raise CorruptStoreError(
            store.path_of(ls.CONSUME_QUEUE),
            f"consume queues up to the commit log's end, offset {log.max_offset}",
            f"none past {reput_from}: start would dispatch {waiting} messages again",
            hint="start the broker once and stop it cleanly; what such a start writes cannot be computed yet",
        )


def _log_notes(store: StoreFiles, files: tuple[MappedFile, ...], log: RecoveredLog) -> tuple[str, ...]:
    kept = {file.name for file in log.files}
    notes = [
        f"{store.path_of(ls.COMMIT_LOG, file.name)}: deleted by load, it lies past the log's end" for file in files if file.name not in kept
    ]
    if log.ended is not None and log.ended.ended in {WalkEnd.BAD_RECORD, WalkEnd.BAD_CRC}:
        notes.append(
            f"{store.path_of(ls.COMMIT_LOG, log.ended.name)}, byte {log.ended.end}: {log.ended.ended.name}, load cuts the log there"
        )
    return tuple(notes)


def _queues_and_longest_topic(queues: DataFrame) -> tuple[int, int]:
    # a folder's name escapes at most every byte of a topic as %XX
    specials = F.length(F.regexp_replace("topic", "[A-Za-z0-9_-]", ""))
    row = queues.agg(F.count_distinct("topic", "queueId"), F.max(F.octet_length("topic") + specials * 2)).first()
    return (0, 0) if row is None else (int(row[0]), int(row[1] or 0))


def _layout(lake: Lake, asked: t.Layout | None, queues: int) -> t.Layout:
    """The lake's layout, where it has one already; else the one asked for, else by the number of queues."""
    row = lake.table(t.BROKER).select("brokerName", "layout").first()
    if row is None:
        return asked or ("partitioned" if queues <= PARTITIONS_MAX else "clustered")
    if asked not in {None, row["layout"]}:
        raise LakeError(
            f"{lake.root}: the lake is {row['layout']} since broker {row['brokerName']!r} was imported, it cannot become {asked}; "
            "import into another --lake"
        )
    found: t.Layout = row["layout"]
    return found


def _write_log(writer: LakeWriter, loaded: _Loaded, sizes: ls.FileSizes, progress: Progress) -> None:
    spark, options = writer.spark, loaded.options
    progress(f"commit log: {len(loaded.log.files)} files of {sizes.commit_log:,} bytes")
    rows = _read(spark, options, t.COMMIT_LOG)
    parts = max(spark_parallelism(spark), math.ceil((loaded.bounds.max_offset - loaded.bounds.min_offset) / FILE_BYTES))
    # a queue's rows go to one file each FILE_BYTES of the log, so that one huge queue has many writers
    slot = F.floor(F.col("physicOffset") / F.lit(FILE_BYTES * spark_parallelism(spark)))
    placed = rows.repartition(parts, "topic", "queueId", slot).sortWithinPartitions("topic", "queueId", "queueOffset", "physicOffset")
    writer.replace_broker(t.COMMIT_LOG, placed)
    _in_parallel(
        [
            partial(writer.replace_broker, t.COMMIT_LOG_SEGMENT, _read(spark, options, t.COMMIT_LOG_SEGMENT)),
            partial(writer.replace_broker, t.STORE_FILE_RANGE, _read(spark, options, t.STORE_FILE_RANGE)),
        ]
    )


def spark_parallelism(spark: SparkSession) -> int:
    """Tasks that a shuffle of this session makes: what a write is spread over at least."""
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 8)


def _write_queues(writer: LakeWriter, store: StoreFiles, broker: str, loaded: _Loaded, progress: Progress) -> None:
    spark = writer.spark
    queues = loaded.queues
    log_files = [("commitlog", f.name, f.from_offset, f.length, f.wrote, f.mtime_ms) for f in loaded.log.files]
    log_rows = spark.createDataFrame(log_files, "kind STRING, name STRING, fromOffset BIGINT, length BIGINT, wrote BIGINT, mtimeMs BIGINT")
    files = queues.where("name IS NOT NULL").withColumn("kind", F.lit("consumequeue"))
    all_files = files.unionByName(log_rows, allowMissingColumns=True).withColumn("brokerName", F.lit(broker))
    _in_parallel(
        [
            partial(writer.replace_broker, t.STORE_FILE, all_files),
            partial(writer.replace_broker, t.QUEUE, queues.select(*t.QUEUE.names).distinct()),
        ]
    )
    progress("consume queues")
    reader = QueueReader(store, broker, _log_index(writer, broker, loaded, store))
    parts = spark_parallelism(spark)
    of_broker = (F.col("brokerName") == broker) & (F.col("kind") == "consumequeue") & (F.col("wrote") > 0)
    placed = writer.written(t.STORE_FILE).where(of_broker).repartitionByRange(parts, "topic", "queueId", "fromOffset")
    placed = placed.sortWithinPartitions("topic", "queueId", "fromOffset")
    writer.replace_broker(t.CONSUME_QUEUE_SEGMENT, placed.mapInArrow(partial(_read_segments, reader), t.CONSUME_QUEUE_SEGMENT.schema))
    segments = writer.written(t.CONSUME_QUEUE_SEGMENT).where(F.col("brokerName") == broker)
    spread = segments.repartition(parts, "topic", "queueId", F.floor(F.col("segment") / 64))
    ordered = spread.sortWithinPartitions("topic", "queueId", "segment")
    writer.replace_broker(t.CONSUME_QUEUE, ordered.mapInArrow(_unpack, t.CONSUME_QUEUE.schema))
    odd = segments.where(F.size("oddEntries") > 0).mapInArrow(partial(_read_odd_entries, reader), t.ODD_ENTRY.schema)
    writer.replace_broker(t.ODD_ENTRY, odd.dropDuplicates(["physicOffset", "size"]))


def _log_index(writer: LakeWriter, broker: str, loaded: _Loaded, store: StoreFiles) -> LogIndex:
    size = loaded.log.files[0].length
    segments = writer.written(t.COMMIT_LOG_SEGMENT).where(F.col("brokerName") == broker)
    ends = segments.groupBy(F.floor(F.col("firstPhysicOffset") / size).alias("file")).agg(F.max("endPhysicOffset").alias("end")).collect()
    walked = {row["file"] * size: row["end"] - row["file"] * size for row in ends}
    return LogIndex(files=loaded.log.files, walked=tuple(walked.get(file.from_offset, 0) for file in loaded.log.files))


def _read_segments(reader: QueueReader, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.select(["topic", "queueId", "name", "fromOffset", "length", "wrote"]).to_pylist():
            file = MappedFile(name=row["name"], from_offset=row["fromOffset"], length=row["length"], wrote=row["wrote"])
            yield from reader.segments(QueueFile(topic=row["topic"], queue_id=row["queueId"], file=file))


def _unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from unpack_segments(batch)


def _read_odd_entries(reader: QueueReader, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from odd_entry_batches(reader, batch)


def _broker_row(
    writer: LakeWriter,
    store: StoreFiles,
    broker: str,
    loaded: _Loaded,
    sizes: ls.FileSizes,
    settings: BrokerSettings,
    layout: t.Layout,
) -> DataFrame:
    newest = writer.written(t.COMMIT_LOG).where(F.col("brokerName") == broker).agg(F.max("storeTimestamp")).first()
    row = {
        "brokerName": broker,
        "store": store.root,
        "properties": {name: str(value) for name, value in settings.as_dict().items()},
        "minPhyOffset": loaded.bounds.min_offset,
        "maxPhyOffset": loaded.bounds.max_offset,
        "mappedFileSizeCommitLog": sizes.commit_log,
        "mappedFileSizeConsumeQueue": sizes.consume_queue,
        "maxStoreTimestamp": None if newest is None else newest[0],
        "layout": layout,
    }
    return writer.spark.createDataFrame([tuple(row[name] for name in t.BROKER.names)], t.BROKER.schema)
