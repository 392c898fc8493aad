"""The data source `spark.read.format("rocketmq-store")`, which reads a store directory as DataFrames.

A partition is a mapped file, a part of a mapped file, or a group of topics.
Options: `path` is the store, `table` one of TABLES; `brokerName`, and the file sizes. The reader recovers the log and the queues while it
plans, for users who look at a store. An import already knows the log's bounds and calls `read_table` instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pipeline.files.store_files import StoreFiles
from pipeline.importing.loaded_queues import LOADED_QUEUE
from pipeline.rows.log_batches import Stretch, stretch_batches
from pipeline.rows.queue_batches import LogIndex, QueueFile, QueueReader, unpack_segments
from pipeline.schema.arrow_types import arrow_schema
from pipeline.schema.table import Table
from pipeline.schema.tables import COMMIT_LOG, COMMIT_LOG_SEGMENT, CONSUME_QUEUE, STORE_FILE_RANGE
from pipeline.settings.settings import BrokerSettings
from pipeline.store.load_files import FileSizes, LogBounds, ends_empty, file_sizes, load_log, queue_ids, recover_log, recover_queue, topics
from pipeline.store.loaded_extension import LoadedExtension, has_extension, recover_extension
from pipeline.store.store_settings import ext_size
from pipeline.store.told_rules import told_rules
from pipeline.tasks.work import Tasks, Work, of_items
from store_format import store_paths
from store_format.broker_version import DEFAULT_VERSION, BrokerVersion
from store_format.files.mapped_files import MappedFile, truncate_dirty_files
from store_format.store_paths import COMMIT_LOG as COMMIT_LOG_FOLDER

NAME = "rocketmq-store"

LOG_TABLES = (COMMIT_LOG, COMMIT_LOG_SEGMENT, STORE_FILE_RANGE)
TABLES = {table.name: table for table in (*LOG_TABLES, CONSUME_QUEUE, LOADED_QUEUE)}
# most partitions of loaded_queue; with fewer partitions, most topics in each
_TOPIC_GROUPS = 64
_TOPICS_A_GROUP = 8


class StoreDataSource(DataSource):
    """The data source; register it with `spark.dataSource.register(StoreDataSource)`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return NAME

    def schema(self) -> str:
        """The columns of the table that the option `table` names."""
        return self._table().schema

    def _table(self) -> Table:
        name = self.options.get("table", COMMIT_LOG.name)
        if name not in TABLES:
            raise ValueError(f"option table: expected one of {', '.join(TABLES)}, found {name!r}")
        return TABLES[name]

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of the table that the option `table` names."""
        options, store = self.options, StoreFiles(self.options["path"])
        store.check_exists()
        explicit = {name: int(options[name]) for name in ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue") if name in options}
        sizes = file_sizes(store, explicit)
        if has_extension(store):
            sizes = replace(sizes, extension=ext_size(store, BrokerSettings({})))
        told = told_rules(store.root)
        version = DEFAULT_VERSION if told is None else told.version
        return StoreReader(self._table(), store, options.get("brokerName", ""), sizes, version=version)


@dataclass
class LogFilePartition(InputPartition):
    """One file of the commit log."""

    stretch: Stretch


@dataclass
class TopicsPartition(InputPartition):
    """All queues of some topics."""

    topics: tuple[str, ...]


@dataclass
class QueueFilePartition(InputPartition):
    """One file of a consume queue, with the commit log it points into."""

    file: QueueFile
    log: LogIndex


class StoreReader(DataSourceReader):
    """Plans and reads one table of a store."""

    def __init__(
        self,
        table: Table,
        store: StoreFiles,
        broker: str,
        sizes: FileSizes,
        log: LogBounds | None = None,
        version: BrokerVersion = DEFAULT_VERSION,
    ) -> None:
        self.table, self.store, self.broker, self.sizes, self.log, self.version = table, store, broker, sizes, log, version

    def partitions(self) -> list[InputPartition]:
        """The partitions: mapped files or parts of them, or groups of topics for the table of queues."""
        if self.table.name == LOADED_QUEUE.name:
            return self._topic_partitions()
        files = self._log_files()
        if self.table in LOG_TABLES:
            return [LogFilePartition(Stretch(file, 0, file.wrote)) for file in files]
        return self._queue_file_partitions(files)

    def _topic_partitions(self) -> list[InputPartition]:
        names = topics(self.store)
        count = min(_TOPIC_GROUPS, -(-len(names) // _TOPICS_A_GROUP))
        return [TopicsPartition(tuple(names[start::count])) for start in range(count)]

    def _log_files(self) -> tuple[MappedFile, ...]:
        files = load_log(self.store, self.sizes)
        if self.log is None:
            return recover_log(self.store, files, check_crc=True, version=self.version).files
        return truncate_dirty_files(files, self.log.max_offset)

    def _queue_file_partitions(self, log_files: tuple[MappedFile, ...]) -> list[InputPartition]:
        queues = [(topic, queue_id) for topic in topics(self.store) for queue_id in queue_ids(self.store, topic)]
        bounds = self.log or self._bounds(log_files, queues)
        index = LogIndex(files=log_files, walked=tuple(file.wrote for file in log_files))
        return [
            QueueFilePartition(QueueFile(topic=topic, queue_id=queue_id, file=file, extension=extension), index)
            for topic, queue_id in queues
            for extension in [recover_extension(self.store, topic, queue_id, self.sizes, bounds).files]
            for file in recover_queue(self.store, topic, queue_id, self.sizes, bounds).files
            if file.wrote
        ]

    def _bounds(self, log_files: tuple[MappedFile, ...], queues: list[tuple[str, int]]) -> LogBounds:
        ends = [recover_queue(self.store, topic, queue_id, self.sizes, None).max_physic_offset for topic, queue_id in queues]
        end = log_files[-1].from_offset + log_files[-1].wrote
        return LogBounds(min_offset=log_files[0].from_offset, max_offset=end, truncates_queues=max(ends, default=-1) >= end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The Arrow batches of one partition."""
        if isinstance(partition, LogFilePartition):
            yield from (
                batch for _, batch in read_stretch(self.store, self.broker, partition.stretch, frozenset({self.table.name}), self.version)
            )
        elif isinstance(partition, QueueFilePartition):
            for segments in QueueReader(self.store, self.broker, partition.log, self.version).segments(partition.file):
                yield from unpack_segments(segments)
        elif isinstance(partition, TopicsPartition):
            for topic in partition.topics:
                for queue_id in queue_ids(self.store, topic):
                    yield self._loaded_queue(topic, queue_id)

    def _loaded_queue(self, topic: str, queue_id: int) -> pa.RecordBatch:
        if (
            self.log is not None
            and self.log.deletes_empty_files
            and ends_empty(self.store, store_paths.CONSUME_QUEUE, topic, str(queue_id))
        ):
            deleting = {"brokerName": self.broker, "topic": topic, "queueId": queue_id, "deletedFiles": 1}
            return pa.RecordBatch.from_pylist([deleting], schema=arrow_schema(LOADED_QUEUE))
        queue = recover_queue(self.store, topic, queue_id, self.sizes, self.log)
        extension = LoadedExtension() if self.log is None else recover_extension(self.store, topic, queue_id, self.sizes, self.log)
        shared = {
            "brokerName": self.broker,
            "topic": topic,
            "queueId": queue_id,
            "minOffset": queue.min_offset,
            "maxOffset": queue.max_offset,
            "recoveredPhysicOffset": queue.recovered_physic_offset,
            "maxPhysicOffset": queue.max_physic_offset,
            "hasFolder": True,
            "extFiles": [ext_file_row(file) for file in extension.files],
        }
        files = [
            {
                "name": file.name,
                "fromOffset": file.from_offset,
                "length": file.length,
                "wrote": file.wrote,
                "mtimeMs": file.mtime_ms,
            }
            for file in queue.files
        ]
        rows = [shared | file for file in files or [{}]]
        rows[0]["cutEntries"], rows[0]["deletedFiles"] = queue.cut_entries, extension.deleted
        return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(LOADED_QUEUE))


def read_stretch(
    store: StoreFiles, broker: str, stretch: Stretch, wanted: frozenset[str], version: BrokerVersion
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows that the wanted tables of LOG_TABLES have for a stretch of the log, each batch with its table's name."""
    file = stretch.file
    end = file.length if stretch.end == file.wrote else stretch.end
    content = store.stretch(stretch.start, end, file.length, COMMIT_LOG_FOLDER, file.name)
    return stretch_batches(broker, stretch, content, wanted, version)


def ext_file_row(file: MappedFile) -> dict[str, object]:
    """The value of loaded_queue.extFiles for a file of a queue's extension."""
    return {"name": file.name, "fromOffset": file.from_offset, "length": file.length, "wrote": file.wrote}


def read_table(tasks: Tasks, reader: StoreReader) -> Work:
    """The rows that `reader` reads, by one task for each partition; this process plans the partitions.

    Spark would plan a Python data source in two new processes that import everything again.
    """
    return of_items(tasks, reader.partitions(), reader.read, reader.table.schema)
