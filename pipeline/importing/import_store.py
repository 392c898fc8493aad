"""Imports a store directory into Delta tables, in the state after the broker's load and start.

All checks come before the first write. Then the tables that are made from files are written in parallel, then the tables that are made from
consume_queue_segment. The last write is lake_version, the only commit point.
"""

from __future__ import annotations

import datetime as dt
import math
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.files.store_files import StoreFiles, is_uri
from pipeline.importing.found_store import find_store
from pipeline.importing.load_store import LoadedStore, load_store, with_extension
from pipeline.importing.store_source import StoreReader, read_table
from pipeline.lake.delta_sql import Placement
from pipeline.lake.lake import Lake, LakeError
from pipeline.lake.lake_writer import LakeWriter
from pipeline.rows.config_tables import config_rows
from pipeline.rows.index_tables import index_rows
from pipeline.rows.property_batches import read_properties
from pipeline.rows.queue_batches import SEGMENT_ENTRIES, QueueReader, read_odd_entries, read_segments, unpack
from pipeline.rows.topic_partitions import NULL_PARTITION
from pipeline.rows.unmapped_files import FOLDER, file_ranges, other_files
from pipeline.schema import tables as t
from pipeline.schema.arrow_types import arrow_table
from pipeline.settings.settings import BrokerSettings
from pipeline.store import load_files as lf
from store_format.errors import StoreError
from store_format.index.index_file import IndexSizes
from store_format.layout import CQ_STORE_UNIT_SIZE
from store_format.store_paths import COMMIT_LOG, CONSUME_QUEUE

# with more (topic, queueId) pairs than this, partitions cost more than they save, and `--layout auto` clusters the tables
PARTITIONS_MAX = 2000
# bytes of the records whose rows go into one file, for one queue
FILE_BYTES = 128 << 20
_FILES_A_STRETCH = 8
# below these sizes (bytes of the log, entries, queues) one task fewer is cheaper
_LOG_BYTES_A_TASK = 8 << 20
_ENTRIES_A_TASK = 1 << 17
_QUEUES_A_TASK = 64
# packed entries in one file, about 100 MB
_ENTRIES_A_FILE = 1 << 23
# tables that are written at once: writing a table is mostly waiting
_TABLES_AT_ONCE = 4

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The result of an import: the broker's name, the lake's version and layout, the store's bounds and counts, and notes for people."""

    broker: str
    lake_version: int
    layout: t.Layout
    min_phy_offset: int
    max_phy_offset: int
    messages: int
    entries: int
    queues: int
    notes: tuple[str, ...]


def import_store(
    lake: Lake,
    store_path: str,
    *,
    broker: str,
    layout: t.Layout | None,
    settings: BrokerSettings,
    as_found: bool = False,
    run_id: str,
    now: Callable[[], dt.datetime],
    progress: Progress,
) -> Imported:
    """Import one store into the lake; its rows replace all rows of the same broker.

    Args:
        lake: the lake to write to.
        store_path: directory or URI of the store, which is only read.
        broker: value of brokerName in the rows.
        layout: partitioned or clustered; None decides by the number of queues.
        settings: the broker's settings: file sizes, checkCRCOnRecover.
        as_found: read the files as they are, without the changes of load and start.
        run_id: id of this run.
        now: returns the time of the wall clock.
        progress: called with a line for each step.

    Raises:
        StoreError: the store cannot be used.
        LakeError: the lake cannot take the store, or another run writes to the lake.
        After any error the lake is as before.
    """
    store = StoreFiles(store_path)
    _refuse_lake_inside(store, lake)
    store.check_exists()
    given = settings
    if not as_found:
        settings = with_extension(settings, store)
    progress("looking at the files" if as_found else "recovering the commit log and the queues as the broker's load does")
    loaded, files = rows_of_store(lake.spark, store, broker, settings, as_found=as_found)
    config = config_rows(store, broker, as_found=as_found)
    index = index_rows(lake.spark, loaded.store, broker, settings)
    writer = LakeWriter(lake, run_id=run_id, what="import", broker=broker)
    placement = _placement(writer, loaded, layout)
    progress(f"writing {loaded.messages:,} messages and {loaded.queue_count:,} queues")
    rows = _rows_of_log(loaded, broker, writer.spark) | _rows_of_queues(loaded, broker, writer.spark)
    rows[t.STORE_FILE], rows[t.INDEX_ENTRY] = files, index.entries
    tasks = max(_tasks_of_log(loaded, writer.spark), _tasks_of_queues(loaded, writer.spark))
    log_ranges, ranges = rows[t.STORE_FILE_RANGE], file_ranges(files, loaded.store, broker, tasks)
    rows[t.STORE_FILE_RANGE] = log_ranges.unionByName(ranges)
    broker_row = _broker_row(loaded, broker, settings, index.sizes, placement.layout, as_found)
    _replace(writer, placement, {**rows, **config.tables, t.CHECKPOINT: index.checkpoint, t.BROKER: broker_row})
    progress("unpacking the consume queues")
    _replace(writer, placement, _rows_of_segments(writer, loaded))
    return Imported(
        broker=broker,
        lake_version=writer.commit(now()),
        layout=placement.layout,
        min_phy_offset=loaded.log.min_offset,
        max_phy_offset=loaded.log.max_offset,
        messages=loaded.messages,
        entries=loaded.entry_count,
        queues=loaded.queue_count,
        notes=(*loaded.notes, *config.notes, *index.notes, *_inferred(given, settings)),
    )


def _inferred(given: BrokerSettings, settings: BrokerSettings) -> list[str]:
    """A note for each setting that was inferred from the files."""
    names = settings.given.keys() - given.given.keys()
    return [f"{name}={str(settings.value(name)).lower()}, as the store has files for it; --set says otherwise" for name in sorted(names)]


def _refuse_lake_inside(store: StoreFiles, lake: Lake) -> None:
    if is_uri(store.root) or is_uri(lake.root):
        return
    root = os.path.realpath(store.root)
    if os.path.commonpath((root, os.path.realpath(lake.root))) == root:
        raise LakeError(f"{lake.root}: expected a directory outside the store, found one in {store.root}, which is never written to")


def _placement(writer: LakeWriter, loaded: LoadedStore, asked: t.Layout | None) -> Placement:
    """The placement of rows in tables by queue: the layout of the lake's other brokers, else `asked`, else by the number of queues."""
    root, fits = writer.lake.root, not loaded.has_null_partition
    few = loaded.queue_count <= PARTITIONS_MAX and fits
    layout: t.Layout = asked or ("partitioned" if few and not writer.was_clustered else "clustered")
    for other, found in writer.others.items():
        if asked not in {None, found}:
            raise LakeError(f"{root} is {found}, as broker {other!r} was imported; it cannot be {asked} for another one")
        layout = found
    if layout == "partitioned" and writer.was_clustered:
        raise LakeError(f"{root} was clustered once, Delta does not let it become {layout} again; import into another --lake")
    if layout == "partitioned" and not fits:
        raise StoreError(
            loaded.store.root,
            "topics that can be the value of a partition",
            repr(NULL_PARTITION),
            hint="import it with --layout clustered, into a lake that is clustered",
        )
    return Placement(layout, named_folders=loaded.names_folders)


def _replace(writer: LakeWriter, placement: Placement, rows: Mapping[t.Table, DataFrame | pa.Table]) -> None:
    with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
        steps = [pool.submit(writer.replace_broker, table, frame, placement) for table, frame in rows.items()]
        try:
            for step in steps:
                step.result()
        finally:
            pool.shutdown(cancel_futures=True)


def spark_parallelism(spark: SparkSession) -> int:
    """The number of tasks after a shuffle in this session, the least number of tasks for a write."""
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 8)


def _pieces_of_log(loaded: LoadedStore, size: int) -> int:
    """The number of pieces of `size` bytes in the commit log."""
    return math.ceil((loaded.log.max_offset - loaded.log.min_offset) / size)


def _tasks_of_log(loaded: LoadedStore, spark: SparkSession) -> int:
    return max(min(spark_parallelism(spark), _pieces_of_log(loaded, _LOG_BYTES_A_TASK)), 1)


def _tasks_of_queues(loaded: LoadedStore, spark: SparkSession) -> int:
    busy = max(math.ceil(loaded.entry_count / _ENTRIES_A_TASK), math.ceil(loaded.queue_count / _QUEUES_A_TASK))
    return max(min(spark_parallelism(spark), busy), 1)


def _rows_of_log(loaded: LoadedStore, broker: str, spark: SparkSession) -> dict[t.Table, DataFrame]:
    log = loaded.log
    bounds = lf.LogBounds(min_offset=log.min_offset, max_offset=log.max_offset, truncates_queues=False)
    tasks_max = _pieces_of_log(loaded, _LOG_BYTES_A_TASK)
    commit_log, segments, ranges = (
        read_table(spark, StoreReader(table, loaded.store, broker, loaded.sizes, bounds, loaded.cuts), tasks_max)
        for table in (t.COMMIT_LOG, t.COMMIT_LOG_SEGMENT, t.STORE_FILE_RANGE)
    )
    # a slot is a part of the log with the rows of a few files; a queue's rows are written slot by slot, so a huge queue has many writers
    slot = F.floor(F.col("physicOffset") / F.lit(FILE_BYTES * min(spark_parallelism(spark), _FILES_A_STRETCH)))
    parts = max(_tasks_of_log(loaded, spark), _pieces_of_log(loaded, FILE_BYTES))
    placed = commit_log.repartition(parts, "topic", "queueId", slot)
    return {
        t.COMMIT_LOG: placed.sortWithinPartitions("topic", "queueId", "queueOffset", "physicOffset"),
        t.COMMIT_LOG_SEGMENT: segments,
        t.STORE_FILE_RANGE: ranges,
    }


def _rows_of_queues(loaded: LoadedStore, broker: str, spark: SparkSession) -> dict[t.Table, DataFrame]:
    return rows_of_queue_files(loaded, broker, spark) | {t.QUEUE: loaded.queues.select(*t.QUEUE.names).distinct()}


def rows_of_queue_files(loaded: LoadedStore, broker: str, spark: SparkSession) -> dict[t.Table, DataFrame]:
    """The rows of the tables that are packed from each queue file.

    Segments of the same age are stored together. A segment's age is the number of times that its queue has doubled since, so pulls at the
    ends of queues read one or two files of a table.
    """
    place = ("age", "topic", "queueId", "fromOffset", "segment")
    parts = max(_tasks_of_queues(loaded, spark), math.ceil(loaded.entry_count / _ENTRIES_A_FILE))
    placed = segments_by_age(loaded.queues).repartitionByRange(parts, *place).sortWithinPartitions(*place)
    reader = QueueReader(loaded.store, broker, loaded.log_index, loaded.version)
    return {
        t.CONSUME_QUEUE_SEGMENT: placed.mapInArrow(partial(read_segments, reader), t.CONSUME_QUEUE_SEGMENT.schema),
        t.CONSUME_QUEUE_PROPERTIES: placed.mapInArrow(partial(read_properties, reader), t.CONSUME_QUEUE_PROPERTIES.schema),
    }


def segments_by_age(queues: DataFrame) -> DataFrame:
    """The rows of loaded_queue, once for each `segment` of each file, with its `age`: log2 of one plus the number of later segments."""
    last = f"(wrote DIV {CQ_STORE_UNIT_SIZE} - 1)"
    later_segments = f"(maxOffset - fromOffset DIV {CQ_STORE_UNIT_SIZE}) DIV {SEGMENT_ENTRIES} - segment"
    segments = F.expr(f"explode(sequence(0L, {last} DIV {SEGMENT_ENTRIES}))")
    numbered = queues.where(f"name IS NOT NULL AND {last} >= 0").withColumn("segment", segments)
    return numbered.withColumn("age", F.expr(f"CAST(log2(1 + greatest({later_segments}, 0)) AS INT)"))


def rows_of_store(
    spark: SparkSession, store: StoreFiles, broker: str, settings: BrokerSettings, *, as_found: bool
) -> tuple[LoadedStore, DataFrame]:
    """The store in the form that an import needs, and its rows of store_file, followed by the columns of the queues' rows."""
    if not as_found:
        loaded = load_store(spark, store, broker, settings)
        return loaded, _rows_of_files(loaded, broker, spark)
    found = find_store(spark, store, broker, settings)
    return found.loaded, _rows_of_files(found.loaded, broker, spark).unionByName(found.odd, allowMissingColumns=True)


def _rows_of_files(loaded: LoadedStore, broker: str, spark: SparkSession) -> DataFrame:
    log_files = [(COMMIT_LOG, f.name, f.from_offset, f.length, f.wrote, f.mtime_ms, f"{COMMIT_LOG}/{f.name}") for f in loaded.log.files]
    ddl = "kind STRING, name STRING, fromOffset BIGINT, length BIGINT, wrote BIGINT, mtimeMs BIGINT, path STRING"
    log = spark.createDataFrame(log_files, ddl)
    folder = F.concat_ws("/", F.lit(CONSUME_QUEUE), "topic", F.col("queueId").cast("STRING"))
    queues = (
        loaded.queues.where("name IS NOT NULL OR hasFolder")
        .withColumn("kind", F.when(F.isnull("name"), FOLDER).otherwise(CONSUME_QUEUE))
        .withColumn("path", F.concat_ws("/", folder, "name"))
        .withColumn("name", F.coalesce("name", F.col("queueId").cast("STRING")))
        .withColumn("length", F.coalesce("length", F.lit(0)))
    )
    others = other_files(spark, loaded.store, broker, has_log=bool(loaded.log.files)).localCheckpoint(eager=False)
    all_files = queues.unionByName(others, allowMissingColumns=True).unionByName(log, allowMissingColumns=True)
    return all_files.withColumn("brokerName", F.lit(broker))


def _rows_of_segments(writer: LakeWriter, loaded: LoadedStore) -> dict[t.Table, DataFrame]:
    segments = writer.written(t.CONSUME_QUEUE_SEGMENT).where(F.col("brokerName") == writer.broker)
    spread = segments.repartition(_tasks_of_queues(loaded, writer.spark), "topic", "queueId", F.floor(F.col("segment") / 64))
    ordered = spread.sortWithinPartitions("topic", "queueId", "segment")
    read_odd = partial(read_odd_entries, QueueReader(loaded.store, writer.broker, loaded.log_index))
    odd = segments.where(F.size("oddEntries") > 0).mapInArrow(read_odd, t.ODD_ENTRY.schema)
    return {
        t.CONSUME_QUEUE: ordered.mapInArrow(unpack, t.CONSUME_QUEUE.schema),
        t.ODD_ENTRY: odd.dropDuplicates(["physicOffset", "size"]),
    }


def _broker_row(
    loaded: LoadedStore,
    broker: str,
    settings: BrokerSettings,
    index: IndexSizes | None,
    layout: t.Layout,
    as_found: bool,
) -> pa.Table:
    row = {
        "brokerName": broker,
        "store": loaded.store.root,
        "properties": settings.as_texts(),
        "minPhyOffset": loaded.log.min_offset,
        "maxPhyOffset": loaded.log.max_offset,
        "mappedFileSizeCommitLog": loaded.sizes.commit_log,
        "mappedFileSizeConsumeQueue": loaded.sizes.consume_queue,
        "maxHashSlotNum": None if index is None else index.hash_slot_num,
        "maxIndexNum": None if index is None else index.index_num,
        "maxStoreTimestamp": loaded.max_store_timestamp,
        "layout": layout,
        "brokerRole": settings.value("brokerRole"),
        "asFound": as_found,
        "followedFrom": None,
    }
    return arrow_table(t.BROKER, [tuple(row[name] for name in t.BROKER.names)])
