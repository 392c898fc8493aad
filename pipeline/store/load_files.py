"""Load the commit log and the consume queues of a store as the broker does: their files, the bytes in use, the bounds of each queue.

The driver and Spark's workers use the same functions, on one file or one queue at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pipeline.files.store_files import StoreFiles
from store_format.big_endian import Bytes
from store_format.broker_version import DEFAULT_VERSION, BrokerVersion
from store_format.errors import NotAStoreError
from store_format.files.files import Entry
from store_format.files.mapped_files import MappedFile, check_aligned, file_size_of, load
from store_format.layout import (
    CQ_STORE_UNIT_SIZE,
    DEFAULT_COMMIT_LOG_FILE_SIZE,
    DEFAULT_CONSUME_QUEUE_FILE_SIZE,
)
from store_format.log.commit_log import walk_checked
from store_format.queue import consume_queue as cq
from store_format.queue.queue_folders import queue_ids_of, topics_of
from store_format.store.recover_by_queues import RECOVER
from store_format.store.recovery import FileWalk, RecoveredLog, files_to_walk, recover_normally
from store_format.store_paths import COMMIT_LOG, CONSUME_QUEUE, STORE_FOLDERS

# files of a queue that recovery reads; truncation and the search for the min offset mostly read the same ones
_RECOVERED_FILES = 3
# number of topics whose files give the length of queue files, if the setting is not given
SAMPLED_TOPICS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSizes:
    """Lengths of the mapped files, bytes; `extension` is None if the broker reads no extensions (enableConsumeQueueExt)."""

    commit_log: int
    consume_queue: int
    extension: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    """The bounds of the recovered commit log, for the recovery of queues.

    Attributes:
        min_offset: offset of the log's first file, -1 without files.
        max_offset: offset of the log's end.
        truncates_queues: whether load truncates the queues at the log's end: it does if a queue reaches at least as far as the log.
        version: version of the broker that loads the store.
    """

    min_offset: int
    max_offset: int
    truncates_queues: bool
    version: BrokerVersion = DEFAULT_VERSION

    @property
    def min_by_search(self) -> bool:
        """Whether min offsets of queues are found by search."""
        return bool(cq.CORRECT_MIN_OFFSET.of(self.version).value)

    @property
    def deletes_empty_files(self) -> bool:
        """Whether load deletes an empty last file (MappedFileQueue.doLoad), as versions do that recover by the queues' end."""
        return bool(RECOVER.of(self.version).value)


def topics(store: StoreFiles) -> list[str]:
    """Names of the folders below consumequeue, sorted."""
    return topics_of(store.folder(CONSUME_QUEUE))


def queue_ids(store: StoreFiles, topic: str) -> list[int]:
    """The queue ids of a topic, ascending, by `queue_ids_of`."""
    return queue_ids_of(store.path_of(CONSUME_QUEUE, topic), store.folder(CONSUME_QUEUE, topic))


def file_sizes(store: StoreFiles, explicit: Mapping[str, int | None]) -> FileSizes:
    """The lengths of the store's files: from `explicit` settings, else the commonest length of each kind, else 4.9.3's defaults."""
    log_size, queue_size = explicit.get("mappedFileSizeCommitLog"), explicit.get("mappedFileSizeConsumeQueue")
    if log_size is None:
        log_size = _commonest(store.folder(COMMIT_LOG), DEFAULT_COMMIT_LOG_FILE_SIZE)
    if queue_size is None:
        queue_size = _commonest(_sampled_queue_files(store), DEFAULT_CONSUME_QUEUE_FILE_SIZE)
    return FileSizes(commit_log=log_size, consume_queue=queue_size)


def _commonest(entries: Iterable[Entry], default: int) -> int:
    # load refuses an empty file or a folder, so neither counts here
    return file_size_of((entry.length for entry in entries if entry.length and not entry.is_folder), default)


def tells_queue_file_size(store: StoreFiles) -> bool:
    """Whether a queue file of the store shows the length of queue files, so that `file_sizes` does not need the default."""
    return any(entry.length and not entry.is_folder for entry in _sampled_queue_files(store))


def _sampled_queue_files(store: StoreFiles) -> list[Entry]:
    sampled = (entry for topic in topics(store)[:SAMPLED_TOPICS] for entry in _queue_files(store, topic))
    return [entry for entry in sampled if entry.length % CQ_STORE_UNIT_SIZE == 0]


def _queue_files(store: StoreFiles, topic: str) -> list[Entry]:
    return [entry for queue_id in queue_ids(store, topic) for entry in store.folder(CONSUME_QUEUE, topic, str(queue_id))]


def load_log(store: StoreFiles, sizes: FileSizes) -> tuple[MappedFile, ...]:
    """The commit log's files after MappedFileQueue.load.

    Raises:
        NotAStoreError: the directory is no store.
        CorruptStoreError: a file's length or name stops the broker's load, or a file does not start at a multiple of its length.
    """
    entries = store.folder(COMMIT_LOG)
    found = {entry.name: entry for entry in store.folder()}
    if not entries and (found.keys().isdisjoint(STORE_FOLDERS) or (COMMIT_LOG in found and not found[COMMIT_LOG].is_folder)):
        raise NotAStoreError(
            store.root,
            "a store with files under commitlog",
            "none",
            hint="give the directory that storePathRootDir names",
        )
    return _load(store, entries, sizes.commit_log, COMMIT_LOG)


def load_files(store: StoreFiles, size: int, *folder: str) -> tuple[MappedFile, ...]:
    """The files of a folder after MappedFileQueue.load; `size` is their length, bytes."""
    return _load(store, store.folder(*folder), size, *folder)


def ends_empty(store: StoreFiles, *folder: str) -> bool:
    """Whether the last file of a folder of mapped files is empty."""
    entries = store.folder(*folder)
    return bool(entries) and entries[-1].length == 0 and not entries[-1].is_folder


def _load(store: StoreFiles, entries: Sequence[Entry], size: int, *folder: str) -> tuple[MappedFile, ...]:
    where = store.path_of(*folder)
    files = load(where, [(entry.name, entry.length, entry.mtime_ms) for entry in entries], size)
    check_aligned(where, files, size)
    return files


def walk_log_file(content: Bytes, file: MappedFile, *, check_crc: bool, version: BrokerVersion = DEFAULT_VERSION) -> FileWalk:
    """The walk over one file of the commit log, which has the bytes `content`, as recovery by a version of the broker does it."""
    end, ended = walk_checked(content, file.length, check_crc=check_crc, version=version)
    return FileWalk(name=file.name, end=end, ended=ended)


def recover_log(
    store: StoreFiles, files: tuple[MappedFile, ...], *, check_crc: bool, version: BrokerVersion = DEFAULT_VERSION
) -> RecoveredLog:
    """The commit log after a clean shutdown and load by a version of the broker."""
    contents = ((file, store.content(COMMIT_LOG, file.name)) for file in files_to_walk(files))
    walks = [walk_log_file(content, file, check_crc=check_crc, version=version) for file, content in contents]
    return recover_normally(files, walks)


def load_queue(store: StoreFiles, topic: str, queue_id: int, sizes: FileSizes) -> tuple[MappedFile, ...]:
    """The files of a queue after MappedFileQueue.load."""
    return load_files(store, sizes.consume_queue, CONSUME_QUEUE, topic, str(queue_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedQueue:
    """A queue after load: its files and bounds.

    Attributes:
        recovered_physic_offset: end in the log of the last entry's message after recover, -1 without entries.
        max_physic_offset: the same after the queue was truncated at the log's end.
        cut_entries: number of entries that were truncated.
    """

    topic: str
    queue_id: int
    files: tuple[MappedFile, ...]
    min_offset: int
    max_offset: int
    recovered_physic_offset: int
    max_physic_offset: int
    cut_entries: int


def recover_queue(store: StoreFiles, topic: str, queue_id: int, sizes: FileSizes, log: LogBounds | None) -> LoadedQueue:
    """A queue after load. If `log` is None, the queue is only recovered, and not truncated at the log's end."""

    @lru_cache(_RECOVERED_FILES)
    def units(name: str) -> cq.Units:
        return cq.units_of(store.content(CONSUME_QUEUE, topic, str(queue_id), name))

    def read(file: MappedFile) -> cq.Units:
        return units(file.name)

    recovered = cq.recover(load_queue(store, topic, queue_id, sizes), read)
    recovered_physic_offset, recovered_max_offset = recovered.max_physic_offset, recovered.max_offset
    if log is not None and log.truncates_queues:
        recovered = cq.truncate_dirty_logic_files(recovered, log.max_offset, read)
    minimum = 0 if log is None else cq.correct_min_offset(recovered.files, log.min_offset, read, by_search=log.min_by_search)
    return LoadedQueue(
        topic=topic,
        queue_id=queue_id,
        files=recovered.files,
        min_offset=minimum,
        max_offset=recovered.max_offset,
        recovered_physic_offset=recovered_physic_offset,
        max_physic_offset=recovered.max_physic_offset,
        cut_entries=recovered_max_offset - recovered.max_offset,
    )
