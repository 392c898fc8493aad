"""Runs a broker's store through load, start and a clean shutdown, on files that are only read.

Broker source (4.9.3): DefaultMessageStore.load, recover, start, shutdown, recoverTopicQueueTable; MappedFileQueue.load.
Rule: load recovers the queues, then the log. If a queue reaches the log's end, load truncates all queues there. Start dispatches the
messages after the last message in any queue.
Surprises: start does not repair a single damaged queue, because another queue has a later message. Without a commit log all queues are
deleted and the index stays. A clean shutdown keeps the abort file if dispatching went past the log's end.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from pipeline.files.store_files import StoreFiles, is_uri
from pipeline.store.load_files import queue_ids, topics
from pipeline.store.store_settings import StoreSettings
from store_format.big_endian import Bytes
from store_format.errors import CorruptStoreError
from store_format.files.changed_files import ChangedFiles, FilePath
from store_format.files.mapped_files import MappedFile, check_aligned, load, min_offset
from store_format.index.index_dispatch import RunningIndex
from store_format.index.index_service import is_index_file_name, load_index
from store_format.log.dispatch_request import DeliverTimestamp
from store_format.queue.consume_queue_ext import UnitUnderflowError
from store_format.queue.extension_dispatch import Extension
from store_format.queue.running_queue import Queue
from store_format.store.checkpoint import StoreCheckpoint, decode_checkpoint, encode_checkpoint
from store_format.store.dispatcher import BitMapOf, Dispatcher, DispatchError, DispatchSettings
from store_format.store.recover_abnormally import recover_abnormally, walk_and_dispatch
from store_format.store.recovery import FileWalk, RecoveredLog, files_to_walk, recover_normally
from store_format.store.reput import Reput
from store_format.store_paths import ABORT_FILE, CHECKPOINT_FILE, COMMIT_LOG, CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX, LOCK_FILE
from udfs.broker.schedule import deliver_timestamp

Started = Literal["ok", "timeout"]


@dataclass(slots=True, kw_only=True)
class MessageStore:
    """DefaultMessageStore over `files`; its changes are in `changed`.

    Attributes:
        bit_map_of: as in Dispatcher; None where no consumer has filter data.
        changed: the files and their changes.
        log_files: the commit log's mapped files.
        queues: consumeQueueTable.
        is_aborted: whether the store has an abort file.
        dispatcher: the dispatcher; it counts the messages of load, then those of start.
        index: the index and its files.
        failure: why load or start failed, empty if neither did.
    """

    files: StoreFiles
    settings: StoreSettings
    bit_map_of: BitMapOf | None = None
    changed: ChangedFiles = field(init=False)
    log_files: tuple[MappedFile, ...] = ()
    queues: dict[tuple[str, int], Queue] = field(default_factory=dict)
    checkpoint: StoreCheckpoint = field(default_factory=StoreCheckpoint)
    is_aborted: bool = False
    dispatcher: Dispatcher = field(init=False)
    index: RunningIndex = field(init=False)
    failure: str = ""
    _behind: int = 0

    def __post_init__(self) -> None:
        settings = self.settings
        self.changed = changed_files(self.files)
        self.index = RunningIndex(store=self.changed, sizes=settings.index_sizes, files=[], writable=self._writable)
        self.dispatcher = Dispatcher(
            store=self.changed,
            settings=DispatchSettings(
                is_slave=settings.is_slave, enable_multi_dispatch=settings.enable_multi_dispatch, enable_lmq=settings.enable_lmq
            ),
            queues=self.queues,
            new_queue=self._new_queue,
            index=self.index if settings.message_index_enable else None,
            bit_map_of=self.bit_map_of,
        )

    # load ---------------------------------------------------------------------------------------------------------------------------

    def load(self) -> bool:
        """DefaultMessageStore.load; returns False where the broker would not start."""
        self.is_aborted = self._has(ABORT_FILE)
        named = [(topic, queue_id) for topic in topics(self.files) for queue_id in queue_ids(self.files, topic)]
        try:
            self.log_files = self._mapped(self.settings.commit_log_size, COMMIT_LOG)
            for topic, queue_id in named:
                self._load_queue(topic, queue_id)
        except CorruptStoreError as error:
            self.failure = str(error)
            return False
        self._check_aligned()
        self.checkpoint = decode_checkpoint(self.files.read(CHECKPOINT_FILE))
        self._load_index()
        try:
            self._recover()
        except (DispatchError, UnitUnderflowError, CorruptStoreError) as error:
            self.failure = str(error)
            return False
        finally:
            self._note_checkpoint()
        self.index.settle()
        if self.settings.delays is None:
            self.failure = "messageDelayLevel is not what the broker can read"
        return not self.failure

    def _check_aligned(self) -> None:
        """Raise CorruptStoreError for files that the broker loads but this class does not support; `failure` never names them."""
        folders: list[tuple[FilePath, tuple[MappedFile, ...], int]] = [((COMMIT_LOG,), self.log_files, self.settings.commit_log_size)]
        for queue in self.queues.values():
            folders.append((queue.folder, queue.files, queue.file_size))
            if queue.extension is not None:
                folders.append((queue.extension.folder, queue.extension.files, queue.extension.file_size))
        for folder, files, size in folders:
            check_aligned(self.files.path_of(*folder), files, size)

    def _has(self, name: str) -> bool:
        return any(entry.name == name for entry in self.files.folder())

    def _mapped(self, size: int, *folder: str) -> tuple[MappedFile, ...]:
        entries = self.files.folder(*folder)
        return load(self.files.path_of(*folder), [(entry.name, entry.length, entry.mtime_ms) for entry in entries], size)

    def _new_queue(self, topic: str, queue_id: int) -> Queue:
        extension = None
        if self.settings.enable_consume_queue_ext:
            extension = Extension(folder=(CONSUME_QUEUE_EXT, topic, str(queue_id)), file_size=self.settings.ext_size)
        folder = (CONSUME_QUEUE, topic, str(queue_id))
        return Queue(topic=topic, queue_id=queue_id, folder=folder, file_size=self.settings.consume_queue_size, extension=extension)

    def _load_queue(self, topic: str, queue_id: int) -> None:
        queue = self.queues[topic, queue_id] = self._new_queue(topic, queue_id)
        queue.has_folder = True
        queue.files = self._mapped(self.settings.consume_queue_size, *queue.folder)
        if queue.extension is not None:
            queue.extension.files = self._mapped(self.settings.ext_size, *queue.extension.folder)

    def _load_index(self) -> None:
        names = [entry.name for entry in self.files.folder(INDEX) if not entry.is_folder and is_index_file_name(entry.name)]
        loaded = load_index(
            [(name, self.files.content(INDEX, name)) for name in names],
            self.settings.index_sizes,
            last_exit_ok=not self.is_aborted,
            index_msg_timestamp=self.checkpoint.index_msg_timestamp,
        )
        for name in loaded.deleted:
            self.changed.delete((INDEX, name))
        for file in loaded.files:
            if len(self.files.content(INDEX, file.name)) < self.settings.index_sizes.file_length:
                self.changed.set_length((INDEX, file.name), self.settings.index_sizes.file_length)
        self.index.files = list(loaded.files)

    def _writable(self, path: FilePath) -> Bytes:
        """A copy of a file's bytes that can be written to in memory."""
        if is_uri(self.files.root) or not len(self.files.content(*path)):
            return self.files.content(*path).copy()
        return np.memmap(self.files.path_of(*path), np.uint8, mode="c").view(np.ndarray)

    def _recover(self) -> None:
        for queue in self.queues.values():
            queue.recover(self.changed)
        reached = max((queue.max_physic_offset for queue in self.queues.values()), default=-1)
        if not self.log_files:
            for queue in self.queues.values():
                queue.destroy(self.changed)
        else:
            log = self._recover_abnormally() if self.is_aborted else self._recover_normally()
            self._keep_log_files(log.files)
            if reached >= log.max_offset:
                for queue in self.queues.values():
                    queue.truncate_dirty_logic_files(self.changed, log.max_offset)
        self._recover_topic_queue_table()

    def _read_log(self, file: MappedFile) -> Bytes:
        return self.files.content(COMMIT_LOG, file.name)

    def _recover_normally(self) -> RecoveredLog:
        walks = (self._walk(file) for file in files_to_walk(self.log_files))
        return recover_normally(self.log_files, walks)

    def _walk(self, file: MappedFile) -> FileWalk:
        check_crc = self.settings.check_crc_on_recover
        end, ended = walk_and_dispatch(self._read_log(file), 0, file.length, None, None, check_crc=check_crc)
        return FileWalk(name=file.name, end=end, ended=ended)

    def _recover_abnormally(self) -> RecoveredLog:
        settings = self.settings
        by_index = settings.message_index_enable and settings.message_index_safe
        return recover_abnormally(
            self.log_files,
            self._read_log,
            None if settings.duplication_enable else self.dispatcher.dispatch,
            min_timestamp=self.checkpoint.min_timestamp_index if by_index else self.checkpoint.min_timestamp,
            check_crc=settings.check_crc_on_recover,
        )

    def _keep_log_files(self, files: tuple[MappedFile, ...]) -> None:
        kept = {file.name for file in files}
        for file in self.log_files:
            if file.name not in kept:
                self.changed.delete((COMMIT_LOG, file.name))
        self.log_files = files

    def _recover_topic_queue_table(self) -> None:
        for queue in self.queues.values():
            queue.correct_min_offset(self.changed, min_offset(self.log_files))

    def _note_checkpoint(self) -> None:
        """Copy the times that dispatching set to the checkpoint."""
        physic, logics = self.dispatcher.physic_msg_timestamp, self.dispatcher.logics_msg_timestamp
        if physic is not None:
            self.checkpoint = replace(self.checkpoint, physic_msg_timestamp=physic)
        if logics is not None:
            self.checkpoint = replace(self.checkpoint, logics_msg_timestamp=logics)
        if self.index.index_msg_timestamp is not None:
            self.checkpoint = replace(self.checkpoint, index_msg_timestamp=self.index.index_msg_timestamp)

    # start and shutdown -------------------------------------------------------------------------------------------------------------

    def start(self) -> Started:
        """DefaultMessageStore.start, after a successful load; returns "timeout" where it would never end."""
        settings = self.settings
        reached = max((queue.max_physic_offset for queue in self.queues.values()), default=-1)
        reput = Reput(
            files=self.log_files,
            read=self._read_log,
            dispatch=self.dispatcher.dispatch,
            deliver_timestamp=self._deliver_timestamp(),
            is_master=settings.is_master,
            duplication_enable=settings.duplication_enable,
            reput_from_offset=max(reached, min_offset(self.log_files), 0),
        )
        self.dispatcher.count, self.dispatcher.first_offset = 0, None
        caught_up = reput.catch_up()
        self._note_checkpoint()
        self.index.settle()
        if not caught_up:
            self.failure = f"the messages from {reput.reput_from_offset} of the commit log on are never dispatched"
            return "timeout"
        self._recover_topic_queue_table()
        self._behind = reput.behind
        if not self.is_aborted:
            self.changed.create((ABORT_FILE,), 0)
        self.is_aborted = True
        return "ok"

    def _deliver_timestamp(self) -> DeliverTimestamp | None:
        delays = self.settings.delays
        if not delays:
            return None
        return lambda level, stored: deliver_timestamp(min(level, len(delays)), stored, delays)

    def shutdown(self) -> None:
        """DefaultMessageStore.shutdown, after a start that ended."""
        former = self.files.read(CHECKPOINT_FILE)
        flushed = np.frombuffer(encode_checkpoint(self.checkpoint, former), np.uint8)
        self._overwrite(CHECKPOINT_FILE, former, flushed)
        self._overwrite(LOCK_FILE, self.files.read(LOCK_FILE), np.frombuffer(b"lock", np.uint8))
        if self._behind == 0:
            self.changed.delete((ABORT_FILE,))
            self.is_aborted = False

    def _overwrite(self, name: str, former: bytes | None, data: Bytes) -> None:
        if former is None:
            self.changed.create((name,), len(data))
        if former is None or len(former) < len(data) or former[: len(data)] != data.tobytes():
            self.changed.set_length((name,), len(data))
            self.changed.write((name,), 0, data)


def changed_files(files: StoreFiles) -> ChangedFiles:
    """The files of a store, without changes."""

    def has(path: FilePath) -> bool:
        return any(entry.name == path[-1] and not entry.is_folder for entry in files.folder(*path[:-1]))

    return ChangedFiles(lambda path: files.content(*path), has)
