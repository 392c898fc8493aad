"""Imports a store directory into Delta tables, in the state after the broker's load and start.

All checks come before the first write. Then tasks read the log and the queues and write the tables' files, and the driver commits table by
table. The last write is lake_version, the only commit point.
"""

from __future__ import annotations

import datetime as dt
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial, reduce
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.delta.delta_sql import Placement
from pipeline.delta.table_files import FileWriter
from pipeline.files.object_store import is_s3, require_keys
from pipeline.files.store_files import StoreFiles, filesystem_of, is_uri
from pipeline.importing.found_store import find_store
from pipeline.importing.load_store import LoadedStore, load_store, with_extension
from pipeline.importing.loaded_queues import file_rows, queue_rows, segments_by_age
from pipeline.importing.store_source import LOG_TABLES, read_stretch
from pipeline.lake.lake import Lake, LakeError
from pipeline.lake.lake_writer import LakeWriter
from pipeline.lake.session import INTERPRETED_PLANS, temporary_settings
from pipeline.rows.config_tables import config_rows
from pipeline.rows.index_tables import index_rows
from pipeline.rows.log_batches import Stretch
from pipeline.rows.property_batches import read_packed
from pipeline.rows.queue_batches import QueueReader, read_entries
from pipeline.rows.timer_rows import TIMER_TABLES, timer_rows
from pipeline.rows.topic_partitions import NULL_PARTITION
from pipeline.rows.unmapped_files import file_ranges, other_files
from pipeline.schema import tables as t
from pipeline.schema.arrow_types import arrow_schema, arrow_table
from pipeline.settings.quantities import counted
from pipeline.settings.settings import BrokerSettings
from pipeline.store import load_files as lf
from pipeline.tasks.task_rows import TaskRows, rows_as_they_are
from pipeline.tasks.work import Batches, DriverTasks, NoSessionError, SparkTasks, Tasks, Work, items_of, of_items, threads
from store_format.broker_version import BrokerVersion
from store_format.errors import StoreError, without_credentials
from store_format.files.mapped_files import MappedFile
from store_format.index.index_file import IndexSizes
from store_format.store_paths import COMMIT_LOG, CONSUME_QUEUE

# with more (topic, queueId) pairs than this, partitions cost more than they save, and `--layout auto` clusters the tables
PARTITIONS_MAX = 2000
# pieces of PIECE_BYTES in a stretch of the log: fewest, most, and queues for each further piece; a stretch becomes one file a queue
_PIECES_LEAST, _PIECES_MOST, _QUEUES_A_PIECE = 2, 4, 128
# least number of stretches for each task that runs at once, so that tasks end at about the same time
_STRETCHES_A_TASK = 3
# below these sizes (entries, queues) one task fewer is cheaper
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


def broker_of(store_path: str, given: str | None, settings: BrokerSettings) -> str:
    """The name of a store's broker in the lake: `given`, else that of the settings, else that of the store's folder."""
    return given or settings.broker_name or os.path.basename(os.path.abspath(store_path)) or "broker"


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
    if is_s3(lake.root):
        require_keys(lake.root)
    store.check_exists()
    given = settings
    if not as_found:
        settings = with_extension(settings, store)
    progress("looking at the files" if as_found else "recovering the commit log and the queues as the broker's load does")
    tasks = SparkTasks(lake.spark) if lake.has_session else DriverTasks()
    with _short_plans(lake):
        loaded, files = rows_of_store(tasks, store, broker, settings, as_found=as_found)
    config = config_rows(store, broker, as_found=as_found, enable_lmq=settings.value("enableLmq"))
    index = index_rows(tasks, loaded.store, broker, settings)
    lake.at = lake.newest()  # the import depends on nothing that was read of the lake before
    writer = LakeWriter(lake, run_id=run_id, what="import", broker=broker)
    placement = _placement(writer, loaded, layout)
    progress(f"writing {counted(loaded.messages, 'message')} and {counted(loaded.queue_count, 'queue')}")
    timer = timer_rows(tasks, store, broker, settings)
    rows = (*_rows_of_files_and_queues(tasks, loaded, files, broker), index.entries, *timer)
    broker_row = _broker_row(loaded, broker, settings, index.sizes, placement.layout, as_found)
    small = {**config.tables, t.CHECKPOINT: index.checkpoint, t.BROKER: broker_row}
    _replace(tasks, writer, placement, rows, small | ({} if timer else {table: arrow_table(table, ()) for table in TIMER_TABLES}))
    return Imported(
        broker=broker,
        lake_version=writer.commit(now()),
        layout=placement.layout,
        min_phy_offset=loaded.log.min_offset,
        max_phy_offset=loaded.log.max_offset,
        messages=loaded.messages,
        entries=loaded.entry_count,
        queues=loaded.queue_count,
        notes=(
            *loaded.notes,
            *config.notes,
            *index.notes,
            *_inferred(given, settings),
            *_assumed(loaded.store if as_found else store, given, loaded),
        ),
    )


def _rows_of_files_and_queues(tasks: Tasks, loaded: LoadedStore, files: Work, broker: str) -> tuple[TaskRows, ...]:
    stretches = _stretches(tasks, loaded)
    return (  # the driver's threads take the work in this order: the longest first
        packed_rows(tasks, loaded, broker),
        _rows_of_entries(tasks, loaded, broker),
        *(_rows_of_log(work, loaded.store, stretches, broker, loaded.version) for work in tasks.at_once(stretches)),
        rows_as_they_are(t.QUEUE, queue_rows(loaded.queues)),
        rows_as_they_are(t.STORE_FILE, files),
        file_ranges(files, loaded.store, broker, max(len(stretches), _tasks_of_queues(tasks, loaded))),
    )


def _inferred(given: BrokerSettings, settings: BrokerSettings) -> list[str]:
    """A note for each setting that was inferred from the files."""
    names = settings.given.keys() - given.given.keys()
    return [f"{name}={str(settings.value(name)).lower()}, as the store has files for it; --set says otherwise" for name in sorted(names)]


def _assumed(store: StoreFiles, given: BrokerSettings, loaded: LoadedStore) -> list[str]:
    """A note if neither a setting nor a file of the store tells how long queue files are: answers depend on this length."""
    name = "mappedFileSizeConsumeQueue"
    if given.explicit(name) is not None or lf.tells_queue_file_size(store):
        return []
    note = (
        f"{store.path_of(CONSUME_QUEUE)}: no queue file tells how long the broker's queue files were; took its default, {name}="
        f"{loaded.sizes.consume_queue}. Pulls that skip to the next file get other answers with another length: if broker.conf sets one, "
        f"import again with --properties broker.conf or --set {name}=BYTES"
    )
    return [note]


def _refuse_lake_inside(store: StoreFiles, lake: Lake) -> None:
    if is_uri(store.root) != is_uri(lake.root):
        return
    root, inside = (place if is_uri(place) else os.path.realpath(place) for place in (store.root, lake.root))
    if os.path.commonpath((root, inside)) == os.path.commonpath((root,)):
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


@contextmanager
def _short_plans(lake: Lake) -> Iterator[None]:
    """If there is a session, let Spark interpret the plans of the block: functions in tasks do the work, compiling takes longer."""
    with temporary_settings(lake.spark, INTERPRETED_PLANS) if lake.has_session else nullcontext():
        yield


def _replace(tasks: Tasks, writer: LakeWriter, placement: Placement, rows: Sequence[TaskRows], small: Mapping[t.Table, pa.Table]) -> None:
    """Replace the broker's rows in tables: by `rows`, which tasks make, and by the tables of `small`."""
    tables = dict.fromkeys(table for one in rows for table in one.tables)
    writers = {table: writer.replacing_writer(table, placement) for table in tables}
    if not writer.lake.has_session and (left := next((table for table, found in writers.items() if found is None), None)):
        raise NoSessionError(f"only Spark writes the table {left.name}: it is clustered, or a topic cannot name a folder")
    with _short_plans(writer.lake) if all(writers.values()) else nullcontext(), threads(tasks, _TABLES_AT_ONCE) as pool:
        written = [pool.submit(one.files, [found for table in one.tables if (found := writers[table])]) for one in rows]
        replaced = []
        for table in [table for table in tables if not writers[table]]:
            all_rows = reduce(lambda left, right: left.joined(right), (one.rows(table) for one in rows if table in one.tables))
            replaced.append(pool.submit(writer.replace_broker, table, _distinct(table, all_rows).frame, placement))
        files = [file for step in written for file in step.result()]
        for step in replaced:
            step.result()
    for table, found in writers.items():
        if found is not None:
            mine = [file for file in files if file["table"] == table.name]
            writer.replace_broker(table, _distinct_files(tasks, table, found, mine), placement)
    for table, given in small.items():
        if table not in t.IMPORTED_OF_5 or given.num_rows or table.name in writer.lake.at.tables:
            writer.replace_broker(table, given, placement)


def _distinct(table: t.Table, rows: Work) -> Work:
    """The rows of a table; several entries may give the same row of odd_entry, of which one is kept."""
    return rows.distinct(table.key) if table is t.ODD_ENTRY else rows


def _distinct_files(tasks: Tasks, table: t.Table, writer: FileWriter, files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The files of a table; those of odd_entry are written again, because their rows may repeat."""
    if table is not t.ODD_ENTRY or not files:
        return files
    paths = [f"{writer.folder}/{file['path']}" for file in files]
    rows = of_items(tasks, paths, _rows_of_parquet, table.schema)
    return rows_as_they_are(table, _distinct(table, rows)).files((writer,))


def _rows_of_parquet(path: str) -> Iterator[pa.RecordBatch]:
    """The rows of a Parquet file; Spark's own reader would take brackets in a path for a pattern."""
    filesystem, inside = filesystem_of(path)
    yield from pq.read_table(inside, filesystem=filesystem).to_batches()


def _stretches(tasks: Tasks, loaded: LoadedStore) -> list[Stretch]:
    """The stretches of the log that tasks read and write sorted by queue: long enough that the files of many queues are not tiny."""
    cuts = loaded.cuts
    pieces = [_pieces(file, cuts[file.name]) for file in loaded.log.files]
    wanted = min(max(math.ceil(loaded.queue_count / _QUEUES_A_PIECE), _PIECES_LEAST), _PIECES_MOST)
    together = max(min(wanted, sum(map(len, pieces)) // (_STRETCHES_A_TASK * tasks.parallelism)), 1)
    return [Stretch(file, *run) for file, found in zip(loaded.log.files, pieces, strict=True) for run in _joined(found, together)]


def _pieces(file: MappedFile, cuts: Sequence[int]) -> list[tuple[int, int]]:
    return [*pairwise((0, *(cut for cut in cuts if cut < file.wrote), file.wrote))]


def _joined(pieces: Sequence[tuple[int, int]], together: int) -> list[tuple[int, int]]:
    runs = [pieces[first : first + together] for first in range(0, len(pieces), together)]
    return [(run[0][0], run[-1][1]) for run in runs]


def _tasks_of_queues(tasks: Tasks, loaded: LoadedStore) -> int:
    busy = max(math.ceil(loaded.entry_count / _ENTRIES_A_TASK), math.ceil(loaded.queue_count / _QUEUES_A_TASK))
    return max(min(tasks.parallelism, busy), 1)


def _rows_of_log(work: Work, store: StoreFiles, stretches: Sequence[Stretch], broker: str, version: BrokerVersion) -> TaskRows:
    def read(items: Batches, wanted: frozenset[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
        for stretch in items_of(items, stretches):
            yield from read_stretch(store, broker, stretch, wanted, version)

    return TaskRows(work=work, tables=LOG_TABLES, read=read)


def packed_rows(tasks: Tasks, loaded: LoadedStore, broker: str) -> TaskRows:
    """The rows of the tables that are packed from each queue file.

    Segments of the same age are stored together. A segment's age is the number of times that its queue has doubled since, so pulls at the
    ends of queues read one or two files of a table.
    """
    placed = _placed(tasks, loaded, ("age", "topic", "queueId", "fromOffset", "segment"))
    reader = QueueReader(loaded.store, broker, loaded.log_index, loaded.version)
    return TaskRows(work=placed, tables=(t.CONSUME_QUEUE_SEGMENT, t.CONSUME_QUEUE_PROPERTIES), read=partial(read_packed, reader))


def _rows_of_entries(tasks: Tasks, loaded: LoadedStore, broker: str) -> TaskRows:
    placed = _placed(tasks, loaded, ("topic", "queueId", "fromOffset", "segment"))
    reader = QueueReader(loaded.store, broker, loaded.log_index, loaded.version)
    return TaskRows(work=placed, tables=(t.CONSUME_QUEUE, t.ODD_ENTRY), read=partial(read_entries, reader))


def _placed(tasks: Tasks, loaded: LoadedStore, place: Sequence[str]) -> Work:
    """The segments of the queue files in the order of the columns `place`, over tasks of about equal size."""
    parts = max(_tasks_of_queues(tasks, loaded), math.ceil(loaded.entry_count / _ENTRIES_A_FILE))
    return segments_by_age(loaded.queues).ordered(parts, place)


def rows_of_store(tasks: Tasks, store: StoreFiles, broker: str, settings: BrokerSettings, *, as_found: bool) -> tuple[LoadedStore, Work]:
    """The store in the form that an import needs, and its rows of store_file."""
    if not as_found:
        loaded = load_store(tasks, store, broker, settings)
        return loaded, _rows_of_files(tasks, loaded, broker)
    found = find_store(tasks, store, broker, settings)
    return found.loaded, _rows_of_files(tasks, found.loaded, broker).joined(found.odd)


def _rows_of_files(tasks: Tasks, loaded: LoadedStore, broker: str) -> Work:
    of_log = [
        {
            "brokerName": broker,
            "kind": COMMIT_LOG,
            "name": file.name,
            "fromOffset": file.from_offset,
            "length": file.length,
            "wrote": file.wrote,
            "mtimeMs": file.mtime_ms,
            "path": f"{COMMIT_LOG}/{file.name}",
        }
        for file in loaded.log.files
    ]
    log = tasks.of_rows(pa.Table.from_pylist(of_log, arrow_schema(t.STORE_FILE)))
    others = other_files(tasks, loaded.store, broker, has_log=bool(loaded.log.files))
    return file_rows(loaded.queues, broker).joined(others).joined(log)


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
        "store": without_credentials(loaded.store.root),
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
