"""A store as the broker's load and start leave it, found out by jobs over its files; nothing is written.

Broker source (4.9.3): DefaultMessageStore.load, recover and start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from pipeline import loaded_store as ls
from pipeline.log_survey import FileSurvey, survey_log
from pipeline.queue_batches import LogIndex
from pipeline.settings import BrokerSettings
from pipeline.store_files import StoreFiles
from pipeline.store_source import LOADED_QUEUE, StoreReader, read_table
from pipeline.topic_partitions import NULL_PARTITION, can_name_a_folder
from pipeline.unfinished_dispatch import undispatched_records
from store_format.commit_log import WalkEnd
from store_format.errors import CorruptStoreError
from store_format.layout import CQ_STORE_UNIT_SIZE
from store_format.mapped_files import MappedFile
from store_format.recovery import FileWalk, RecoveredLog, files_to_walk, recover_normally


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedStore:
    """A store after load and start.

    Attributes:
        store: its files.
        sizes: lengths of the mapped files.
        log: the commit log.
        surveys: what each file of it holds.
        queues: rows of LOADED_QUEUE.
        queue_count: queues that there are.
        entry_count: entries in all of them.
        notes: what load changed, for people.
    """

    store: StoreFiles
    sizes: ls.FileSizes
    log: RecoveredLog
    surveys: tuple[FileSurvey, ...]
    queues: DataFrame
    queue_count: int
    entry_count: int
    notes: tuple[str, ...]

    @property
    def cuts(self) -> dict[str, tuple[int, ...]]:
        """Where tasks that share a file may start, by its name."""
        return {file.name: tuple(found.cuts) for file, found in zip(self.log.files, self.surveys, strict=True)}

    @property
    def messages(self) -> int:
        """Rows that commit_log gets."""
        return sum(found.messages for found in self.surveys)

    @property
    def max_store_timestamp(self) -> int | None:
        """The greatest of these rows, ms."""
        return max((found.max_store_timestamp for found in self.surveys if found.max_store_timestamp is not None), default=None)

    @property
    def log_index(self) -> LogIndex:
        """The commit log as the entries' look-up needs it."""
        return LogIndex(files=self.log.files, walked=tuple(found.walked for found in self.surveys))

    @property
    def names_folders(self) -> bool:
        """Whether each topic can name the folder of a partition."""
        return all(found.names_folders for found in self.surveys) and all(map(can_name_a_folder, ls.topics(self.store)))

    @property
    def has_null_partition(self) -> bool:
        """Whether a topic would make a partition that reads back as NULL."""
        return any(found.has_null_partition for found in self.surveys) or NULL_PARTITION in ls.topics(self.store)


def load_store(spark: SparkSession, store: StoreFiles, broker: str, settings: BrokerSettings) -> LoadedStore:
    """Load a store as the broker does after a clean shutdown.

    Args:
        spark: the session.
        store: the files.
        broker: name that the rows bear.
        settings: file sizes where they are given, checkCRCOnRecover.

    Raises:
        StoreError: the broker would not load it, or its start would change it in a way that cannot be computed yet.
    """
    store.check_exists()
    _refuse_unsupported(store)
    sizes = ls.file_sizes(store, {name: settings.explicit(name) for name in ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue")})
    files = ls.load_log(store, sizes)
    surveys = survey_log(spark, store, files, check_crc=bool(settings.value("checkCRCOnRecover")))
    walks = [FileWalk(name=files[one.index].name, end=one.end, ended=WalkEnd(one.ended)) for one in surveys]
    log = recover_normally(files, walks[-len(files_to_walk(files)) :])
    queues, totals = _load_queues(spark, store, broker, sizes, log)
    _refuse_unfinished_dispatch(spark, store, log, max(totals["maxPhysicOffset"], log.min_offset, 0))
    kept = {file.name for file in log.files}
    return LoadedStore(
        store=store,
        sizes=sizes,
        log=log,
        surveys=tuple(found for found in surveys if files[found.index].name in kept),
        queues=queues,
        queue_count=totals["queues"],
        entry_count=totals["wrote"] // CQ_STORE_UNIT_SIZE,
        notes=_notes(store, files, log),
    )


def _load_queues(spark: SparkSession, store: StoreFiles, broker: str, sizes: ls.FileSizes, log: RecoveredLog) -> tuple[DataFrame, Row]:
    """The queues and their totals: read as cut at the log's end, and once more if no queue reaches it, for then load cuts none."""
    for cut in (True, False):
        bounds = ls.LogBounds(min_offset=log.min_offset, max_offset=log.max_offset, truncates_queues=cut)
        queues = read_table(spark, StoreReader(LOADED_QUEUE, store, broker, sizes, bounds)).localCheckpoint(eager=False)
        (totals,) = queues.agg(
            F.coalesce(F.max("recoveredPhysicOffset"), F.lit(-1)).alias("recoveredPhysicOffset"),
            F.coalesce(F.max("maxPhysicOffset"), F.lit(-1)).alias("maxPhysicOffset"),
            F.count_distinct("topic", "queueId").alias("queues"),
            F.coalesce(F.sum("wrote"), F.lit(0)).alias("wrote"),
        ).collect()
        if totals["recoveredPhysicOffset"] >= log.max_offset:
            break
    return queues, totals


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


def _notes(store: StoreFiles, files: Sequence[MappedFile], log: RecoveredLog) -> tuple[str, ...]:
    kept = {file.name for file in log.files}
    notes = [
        f"{store.path_of(ls.COMMIT_LOG, file.name)}: deleted by load, it lies past the log's end" for file in files if file.name not in kept
    ]
    if log.ended is not None and log.ended.ended in {WalkEnd.BAD_RECORD, WalkEnd.BAD_CRC}:
        notes.append(
            f"{store.path_of(ls.COMMIT_LOG, log.ended.name)}, byte {log.ended.end}: {log.ended.ended.name}, load cuts the log there"
        )
    return tuple(notes)
