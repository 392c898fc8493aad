"""Computes the state of a store after the broker's load and start, by tasks over its files; nothing is written.

Broker source (4.9.3): DefaultMessageStore.load, recover and start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline.files.store_files import StoreFiles
from pipeline.importing.loaded_queues import LOADED_QUEUE, QueueTotals, totals_of
from pipeline.importing.log_survey import FileSurvey, survey_log
from pipeline.importing.start_store import bounds, start_store
from pipeline.importing.store_source import StoreReader, ext_file_row, read_table
from pipeline.importing.unfinished_dispatch import undispatched_records
from pipeline.rows.queue_batches import LogIndex
from pipeline.rows.topic_partitions import NULL_PARTITION, can_name_a_folder
from pipeline.schema.arrow_types import arrow_table
from pipeline.settings.quantities import counted
from pipeline.settings.settings import BrokerSettings
from pipeline.store import load_files as lf
from pipeline.store.loaded_extension import has_extension
from pipeline.store.refused_parts import refuse_parts
from pipeline.store.store_settings import ext_size
from pipeline.tasks.work import Tasks, Work
from store_format.broker_version import BrokerVersion
from store_format.files.changed_files import FileChange
from store_format.files.mapped_files import MappedFile
from store_format.layout import CQ_STORE_UNIT_SIZE
from store_format.log.commit_log import WalkEnd
from store_format.store.recover_by_queues import RECOVER, Seam
from store_format.store.recovery import FileWalk, RecoveredLog, files_to_walk, recover_normally
from store_format.store_paths import ABORT_FILE, COMMIT_LOG

ENABLE_EXTENSION = "enableConsumeQueueExt"
# bytes at the start of a log file in which its first message is looked for; the driver's recovery takes stores with a longer one
_HEAD_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedStore:
    """A store after load and start.

    Attributes:
        store: the store's files, with the changes of load and start.
        sizes: lengths of the mapped files.
        log: the commit log.
        surveys: the survey of each file of the commit log.
        queues: rows of LOADED_QUEUE.
        queue_count: number of queues.
        entry_count: number of entries in all queues.
        notes: the changes that load made, for people.
        lost: whole messages that load cut off the log.
        version: version of the broker that loaded it.
    """

    store: StoreFiles
    sizes: lf.FileSizes
    log: RecoveredLog
    surveys: tuple[FileSurvey, ...]
    queues: Work
    queue_count: int
    entry_count: int
    notes: tuple[str, ...]
    lost: int
    version: BrokerVersion

    @property
    def cuts(self) -> dict[str, tuple[int, ...]]:
        """The positions at which tasks that share a log file may start, by the file's name."""
        return {file.name: tuple(found.cuts) for file, found in zip(self.log.files, self.surveys, strict=True)}

    @property
    def messages(self) -> int:
        """The number of rows for commit_log."""
        return sum(found.messages for found in self.surveys)

    @property
    def max_store_timestamp(self) -> int | None:
        """The greatest storeTimestamp of the rows for commit_log, ms; None without rows."""
        return max((found.max_store_timestamp for found in self.surveys if found.max_store_timestamp is not None), default=None)

    @property
    def log_index(self) -> LogIndex:
        """The files and walked positions of the commit log, for looking entries up."""
        return LogIndex(files=self.log.files, walked=tuple(found.walked for found in self.surveys))

    @property
    def names_folders(self) -> bool:
        """Whether every topic can name the folder of a partition."""
        return all(found.names_folders for found in self.surveys) and all(map(can_name_a_folder, lf.topics(self.store)))

    @property
    def has_null_partition(self) -> bool:
        """Whether a topic would name a partition that is read as NULL."""
        return any(found.has_null_partition for found in self.surveys) or NULL_PARTITION in lf.topics(self.store)


def load_store(tasks: Tasks, store: StoreFiles, broker: str, settings: BrokerSettings) -> LoadedStore:
    """Load and start a store as the broker does.

    Tasks read a store that has a log and was shut down cleanly, if load deletes none of its queues' files and start adds nothing. If its
    version recovers by the queues' end, load must change nothing at all, and `_ends_with_queues` must be true. This process reads any other
    store record by record, in the broker's order.

    Args:
        tasks: what does the work.
        store: the store's files.
        broker: value of brokerName in the rows.
        settings: the broker's settings for recovery; file sizes that they do not have are inferred from the files.

    Raises:
        StoreError: the broker would not load the store, its start would never end, or a part of it is not modelled.
    """
    store.check_exists()
    refuse_parts(store, settings)
    sizes = lf.file_sizes(store, {name: settings.explicit(name) for name in ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue")})
    if settings.value(ENABLE_EXTENSION):
        sizes = replace(sizes, extension=ext_size(store, settings))
    by_queues = bool(RECOVER.of(settings.version).value)
    files = () if by_queues and lf.ends_empty(store, COMMIT_LOG) else lf.load_log(store, sizes)
    if not files or any(entry.name == ABORT_FILE for entry in store.folder()):
        return _started(tasks, store, broker, settings, sizes)
    surveys = survey_log(tasks, store, files, check_crc=bool(settings.value("checkCRCOnRecover")), version=settings.version)
    walks = [FileWalk(name=files[one.index].name, end=one.end, ended=WalkEnd(one.ended)) for one in surveys]
    log = recover_normally(files, walks[-len(files_to_walk(files)) :])
    queues, totals = _load_queues(tasks, store, broker, settings, sizes, log)
    reput_from = max(totals.max_physic_offset, log.min_offset, 0)
    notes = _notes(store, files, log, totals.cut_entries)
    if totals.deleted_files or (by_queues and (notes or not _ends_with_queues(store, log, totals.recovered_physic_offset, settings))):
        return _started(tasks, store, broker, settings, sizes)
    if reput_from < log.max_offset and undispatched_records(tasks, store, log.files, reput_from, settings.version):
        return _started(tasks, store, broker, settings, sizes)
    kept = {file.name for file in log.files}
    return LoadedStore(
        # load cut the store, so it no longer counts as shut down cleanly: an abort file is added, as start does
        store=store.changed({(ABORT_FILE,): FileChange(length=0, is_new=True)}, frozenset()) if notes else store,
        sizes=sizes,
        log=log,
        surveys=tuple(found for found in surveys if files[found.index].name in kept),
        queues=queues,
        queue_count=totals.queues,
        entry_count=totals.wrote // CQ_STORE_UNIT_SIZE,
        notes=notes,
        lost=0,
        version=settings.version,
    )


def _ends_with_queues(store: StoreFiles, log: RecoveredLog, reached: int, settings: BrokerSettings) -> bool:
    """Whether a recovery by the queues' end walks no more than the log's last two files, and finds nothing to dispatch.

    Args:
        store: the store's files.
        log: the commit log as the walks over its last three files found it.
        reached: offset in the log at which the queues' entries end.
        settings: the broker's settings.
    """
    if reached != log.max_offset or (settings.value("messageIndexEnable") and settings.value("messageIndexSafe")):
        return False
    most_files = settings.value("commitLogRecoverMaxNum")
    seam = Seam(physic_offset=reached, timestamp=0, index_timestamp=None, most_files=most_files, version=settings.version)
    heads = [store.part(0, min(_HEAD_BYTES, file.length), COMMIT_LOG, file.name) for file in log.files[-2:]]
    return any(seam.matches(head, check_crc=bool(settings.value("checkCRCOnRecover"))) for head in heads)


def _started(tasks: Tasks, store: StoreFiles, broker: str, settings: BrokerSettings, sizes: lf.FileSizes) -> LoadedStore:
    started = start_store(store, settings)
    log = RecoveredLog(files=started.log_files, ended=None)
    rows: list[tuple[Any, ...]] = []
    for queue in started.queues:
        least, most = bounds(queue)
        shared = (broker, queue.topic, queue.queue_id, least, most, None, queue.max_physic_offset, None, queue.has_folder)
        extension = () if queue.extension is None else queue.extension.files
        ext = [ext_file_row(file) for file in extension]
        rows += [(*shared, file.name, file.from_offset, file.length, file.wrote, file.mtime_ms, ext, None) for file in queue.files]
        if not queue.files:
            rows.append((*shared, None, None, None, None, None, ext, None))
    return LoadedStore(
        store=started.store,
        sizes=sizes,
        log=log,
        surveys=tuple(survey_log(tasks, started.store, log.files, check_crc=None, version=settings.version)),
        queues=tasks.of_rows(arrow_table(LOADED_QUEUE, rows)),
        queue_count=len(started.queues),
        entry_count=sum(queue.max_offset - queue.files[0].from_offset // CQ_STORE_UNIT_SIZE for queue in started.queues if queue.files),
        notes=started.notes,
        lost=started.lost,
        version=settings.version,
    )


def _load_queues(
    tasks: Tasks, store: StoreFiles, broker: str, settings: BrokerSettings, sizes: lf.FileSizes, log: RecoveredLog
) -> tuple[Work, QueueTotals]:
    """The queues, cut at the log's end, and their totals. If no queue reaches the log's end, load cuts none, and they are read again."""
    for cut in (True, False):
        log_bounds = lf.LogBounds(min_offset=log.min_offset, max_offset=log.max_offset, truncates_queues=cut, version=settings.version)
        queues = read_table(tasks, StoreReader(LOADED_QUEUE, store, broker, sizes, log_bounds)).once()
        totals = totals_of(queues)
        if totals.recovered_physic_offset >= log.max_offset:
            break
    return queues, totals


def with_extension(settings: BrokerSettings, store: StoreFiles) -> BrokerSettings:
    """The settings; enableConsumeQueueExt, if it is not set, becomes true for a store with extension files."""
    if settings.explicit(ENABLE_EXTENSION) is not None or not has_extension(store):
        return settings
    return BrokerSettings({**settings.given, ENABLE_EXTENSION: True})


def _notes(store: StoreFiles, files: Sequence[MappedFile], log: RecoveredLog, cut_entries: int) -> tuple[str, ...]:
    kept = {file.name for file in log.files}
    notes = [
        f"{store.path_of(COMMIT_LOG, file.name)}: the broker's load would delete it, it lies past the log's end"
        for file in files
        if file.name not in kept
    ]
    ended = log.ended
    if ended is not None and (ended.ended in {WalkEnd.BAD_RECORD, WalkEnd.BAD_CRC} or notes or cut_entries):
        notes.append(
            f"{store.path_of(COMMIT_LOG, ended.name)}, byte {ended.end}: {ended.ended.name}, the broker's load would cut the log there"
        )
    if cut_entries:
        notes.append(
            f"the broker's load would cut {counted(cut_entries, 'entry', 'entries')} off the consume queues, they lie past the log's end"
        )
    return tuple(notes)
