"""A broker's store: load, start, puts, look-ups and a clean shutdown.

Broker source (4.9.3): DefaultMessageStore.load, recover, start, putMessage, putMessages, shutdown, recoverTopicQueueTable;
MappedFileQueue.load; ReputMessageService; CommitLog.flush.
Rule: load recovers the queues, then the log. If the queues reach the log's end, they are cut there. start dispatches the messages after the
last one that any queue has. The abort file is the first file of a new store, and a clean shutdown deletes it last.
Surprises: a damaged queue is not repaired if another queue has a later message. Without a commit log all queues are deleted and the index
stays. A clean shutdown keeps the abort file if dispatching went past the log's end. Messages that are put are read from the log again to be
dispatched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from store_format.big_endian import Bytes
from store_format.errors import CorruptStoreError
from store_format.files.files import FilePath, Files
from store_format.files.mapped_files import MappedFile, check_aligned, load, max_offset, min_offset
from store_format.index.index_file import INDEX_COUNT_AT, INDEX_FILE_SHUTDOWN, IndexFile
from store_format.log.append import NO_BATCH, MessageColumns, columns_of
from store_format.log.dispatch_request import DeliverTimestamp, read_requests
from store_format.log.put_message import InnerMessage, MessageBatch, PutMessageStatus, PutSettings, prepare, prepare_batch
from store_format.queue.consume_queue import CORRECT_MIN_OFFSET
from store_format.queue.consume_queue_ext import UnitUnderflowError
from store_format.queue.extension_dispatch import Extension, keep_files
from store_format.queue.queue_folders import queue_ids_of, topics_of
from store_format.queue.running_queue import Queue
from store_format.record.message import Message, decode_text
from store_format.store.appended_log import AppendedLog
from store_format.store.checkpoint import (
    CHECKPOINT_LENGTH,
    STORE_CHECKPOINT,
    StoreCheckpoint,
    decode_checkpoint,
    encode_checkpoint,
)
from store_format.store.dispatcher import BitMapOf, BuildsIndex, Dispatcher, DispatchError
from store_format.store.lookup import CommitLogLookup, LoadedFiles, MappedFiles, QueueLookup
from store_format.store.recover_abnormally import recover_abnormally, walk_and_dispatch
from store_format.store.recover_by_queues import RECOVER, Seam, recover_by_queues
from store_format.store.recovery import FileWalk, RecoveredLog, files_to_walk, recover_normally
from store_format.store.reput import Reput
from store_format.store.store_settings import StoreSettings, check_sizes
from store_format.store_paths import ABORT_FILE, CHECKPOINT_FILE, COMMIT_LOG, CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX, LOCK, LOCK_FILE

Longs = NDArray[np.int64]
Started = Literal["ok", "timeout"]
AnyFiles = TypeVar("AnyFiles", bound=Files)


class Index(BuildsIndex, Protocol):
    """IndexService: the index files, into which dispatched messages are put."""

    @property
    def files(self) -> Sequence[IndexFile]:
        """All index files."""

    @property
    def index_msg_timestamp(self) -> int | None:
        """The time that flushing full files sets in the checkpoint, ms; None if no file was flushed."""

    def load(self, *, last_exit_ok: bool, index_msg_timestamp: int) -> None:
        """IndexService.load."""

    def settle(self) -> None:
        """Make sure that the files have everything that was put into them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PutResult:
    """PutMessageResult: the status, and each message's offset in the log (NOT_APPENDED if no file has room for it) and in its queue."""

    status: PutMessageStatus
    wrote_offsets: tuple[int, ...] = ()
    logics_offsets: tuple[int, ...] = ()


class MessageStore(Generic[AnyFiles]):
    """DefaultMessageStore over `files`. Call `begin` for a new store, or `load` and `start`; then put; then `shutdown`.

    `topic_queue_table` has the next offset of each queue; `queue_number` is a queue's index in it. `dispatcher` counts the messages that
    load dispatches, and start counts anew. `failure` is why load or start failed, empty if neither did.
    """

    def __init__(
        self,
        *,
        files: AnyFiles,
        settings: StoreSettings,
        index: Index,
        deliver_timestamp: DeliverTimestamp | None,
        put_settings: PutSettings | None = None,
        bit_map_of: BitMapOf | None = None,
    ) -> None:
        """Make a store that is neither begun nor loaded yet; `index` has to use the same files.

        `deliver_timestamp` says when a message of a delay level is due; it is None if there are no levels. `put_settings` decide which
        messages are refused; by default they have the broker's defaults. `bit_map_of` is as in Dispatcher.
        """
        self.files = files
        self.settings = settings
        self.index = index
        self.put_settings = put_settings or PutSettings(max_delay_level=len(settings.delays or ()))
        self.log = AppendedLog(store=files, file_size=settings.commit_log_size, dispatch=self._dispatch)
        self.queues: dict[tuple[str, int], Queue] = {}
        self.topic_queue_table = np.zeros(0, np.int64)
        self.checkpoint = StoreCheckpoint()
        self.is_aborted = False
        self.failure = ""
        self.dispatcher = Dispatcher(
            store=files,
            settings=settings,
            queues=self.queues,
            new_queue=self._new_queue,
            index=index if settings.message_index_enable else None,
            bit_map_of=bit_map_of,
        )
        self._deliver_timestamp = deliver_timestamp
        self._numbers: dict[tuple[bytes, int], int] = {}
        self._behind = 0

    @property
    def log_files(self) -> tuple[MappedFile, ...]:
        """The commit log's mapped files."""
        return self.log.files

    @property
    def log_end(self) -> int:
        """CommitLog.getMaxOffset."""
        return max_offset(self.log.files)

    def _new_queue(self, topic: str, queue_id: int) -> Queue:
        extension = None
        if self.settings.enable_consume_queue_ext:
            extension = Extension(folder=(CONSUME_QUEUE_EXT, topic, str(queue_id)), file_size=self.settings.ext_size)
        folder = (CONSUME_QUEUE, topic, str(queue_id))
        return Queue(
            topic=topic,
            queue_id=queue_id,
            folder=folder,
            file_size=self.settings.consume_queue_size,
            extension=extension,
            min_by_search=CORRECT_MIN_OFFSET.of(self.settings.version).value,
        )

    # begin and load -----------------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a new store.

        Raises:
            StoreError: a broker cannot write a store with these settings.
        """
        check_sizes(self.settings)
        self.files.create((ABORT_FILE,), 0)
        self.is_aborted = True
        self._overwrite(LOCK_FILE, None, np.frombuffer(LOCK, np.uint8))

    def load(self) -> bool:
        """DefaultMessageStore.load; False if the broker does not start."""
        self.is_aborted = any(entry.name == ABORT_FILE for entry in self.files.entries(()))
        named = []
        for topic in topics_of(self.files.entries((CONSUME_QUEUE,))):
            folder = (CONSUME_QUEUE, topic)
            named += [(topic, queue_id) for queue_id in queue_ids_of(self.files.path_of(folder), self.files.entries(folder))]
        try:
            self.log.files = self._mapped((COMMIT_LOG,), self.settings.commit_log_size)
            for topic, queue_id in named:
                self._load_queue(topic, queue_id)
        except CorruptStoreError as error:
            self.failure = str(error)
            return False
        self._check_aligned()
        self.checkpoint = decode_checkpoint(self._head(CHECKPOINT_FILE, CHECKPOINT_LENGTH), with_offsets=self.with_offsets)
        self.index.load(last_exit_ok=not self.is_aborted, index_msg_timestamp=self.checkpoint.index_msg_timestamp)
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
        """Raise CorruptStoreError for files that the broker loads and that are not modelled, so that `failure` never names them."""
        folders: list[tuple[FilePath, tuple[MappedFile, ...], int]] = [((COMMIT_LOG,), self.log.files, self.settings.commit_log_size)]
        for queue in self.queues.values():
            folders.append((queue.folder, queue.files, queue.file_size))
            if queue.extension is not None:
                folders.append((queue.extension.folder, queue.extension.files, queue.extension.file_size))
        for folder, files, size in folders:
            check_aligned(self.files.path_of(folder), files, size)

    def _head(self, name: str, length: int) -> bytes | None:
        """The first `length` bytes of a file, None if there is no file: the broker maps no more, however long the file is."""
        return self.files.content((name,))[:length].tobytes() if self.files.has((name,)) else None

    def _mapped(self, folder: FilePath, size: int) -> tuple[MappedFile, ...]:
        entries = self.files.entries(folder)
        if self._by_queues and entries and entries[-1].length == 0 and not entries[-1].is_folder:
            # MappedFileQueue.doLoad (5.x)
            self.files.delete((*folder, entries[-1].name))
            entries = entries[:-1]
        return load(self.files.path_of(folder), [(entry.name, entry.length, entry.mtime_ms) for entry in entries], size)

    def _load_queue(self, topic: str, queue_id: int) -> None:
        queue = self.queues[topic, queue_id] = self._new_queue(topic, queue_id)
        queue.has_folder = True
        queue.files = self._mapped(queue.folder, self.settings.consume_queue_size)
        if queue.extension is not None:
            queue.extension.files = self._mapped(queue.extension.folder, self.settings.ext_size)

    def _recover(self) -> None:
        for queue in self.queues.values():
            queue.recover(self.files)
        reached = self._max_physic_offset()
        if not self.log.files:
            for queue in self.queues.values():
                queue.destroy(self.files)
        else:
            log = self._recovered_log(reached)
            self.log.files = keep_files(self.files, (COMMIT_LOG,), self.log.files, log.files)
            if (self._max_physic_offset() if self._by_queues else reached) >= log.max_offset:
                for queue in self.queues.values():
                    queue.truncate_dirty_logic_files(self.files, log.max_offset)
        self._recover_topic_queue_table()

    def _max_physic_offset(self) -> int:
        return max((queue.max_physic_offset for queue in self.queues.values()), default=-1)

    @property
    def _by_queues(self) -> bool:
        return bool(RECOVER.of(self.settings.version).value)

    @property
    def with_offsets(self) -> bool:
        """Whether the checkpoint has offsets of the log."""
        return bool(STORE_CHECKPOINT.of(self.settings.version).value)

    def _recovered_log(self, reached: int) -> RecoveredLog:
        """The log after recovery; `reached` is the end in the log of the last message in any queue."""
        if not self._by_queues:
            return self._recover_abnormally() if self.is_aborted else self._recover_normally()
        settings = self.settings
        noted = self.checkpoint.logics_physical_offset
        known = reached if not self.is_aborted else noted if noted > 0 else None
        by_index = settings.message_index_enable and settings.message_index_safe
        log = recover_by_queues(
            self.log.files,
            self.log.read,
            None if settings.duplication_enable and self.is_aborted else self.dispatcher.dispatch,
            Seam(
                physic_offset=known,
                timestamp=self.checkpoint.logics_msg_timestamp,
                index_timestamp=self.checkpoint.index_msg_timestamp if by_index else None,
                most_files=settings.commit_log_recover_max_num,
                version=settings.version,
            ),
            after=None if self.is_aborted else reached,
            confirmed=None if self.is_aborted else self._confirm_offset,
            deliver_timestamp=self._deliver_timestamp,
            check_crc=settings.check_crc_on_recover,
        )
        if log.confirm_offset is not None:
            self.checkpoint = replace(self.checkpoint, confirm_phy_offset=log.confirm_offset)
        return log

    @property
    def _confirm_offset(self) -> int:
        """CommitLog.getConfirmOffset (5.5.0) before recovery, when nothing counts as flushed."""
        if self.settings.duplication_enable:
            return self.checkpoint.confirm_phy_offset
        return 0 if self.settings.is_sync_flush else self.log.files[-1].from_offset + self.log.files[-1].length

    def _recover_normally(self) -> RecoveredLog:
        walks = (self._walk(file) for file in files_to_walk(self.log.files))
        return recover_normally(self.log.files, walks)

    def _walk(self, file: MappedFile) -> FileWalk:
        check_crc = self.settings.check_crc_on_recover
        end, ended = walk_and_dispatch(self.log.read(file), 0, file.length, None, None, check_crc=check_crc)
        return FileWalk(name=file.name, end=end, ended=ended)

    def _recover_abnormally(self) -> RecoveredLog:
        settings = self.settings
        by_index = settings.message_index_enable and settings.message_index_safe
        return recover_abnormally(
            self.log.files,
            self.log.read,
            None if settings.duplication_enable else self.dispatcher.dispatch,
            min_timestamp=self.checkpoint.min_timestamp_index if by_index else self.checkpoint.min_timestamp,
            check_crc=settings.check_crc_on_recover,
        )

    def _recover_topic_queue_table(self) -> None:
        for queue in self.queues.values():
            queue.correct_min_offset(self.files, min_offset(self.log.files))
        self.topic_queue_table = np.zeros(0, np.int64)
        self._numbers.clear()

    def _note_checkpoint(self, *, flushed: bool = False) -> None:
        """Take over what dispatching set in the checkpoint; with offsets in it, the queues' values only when the queues are flushed."""
        physic, logics = self.dispatcher.physic_msg_timestamp, self.dispatcher.logics_msg_timestamp
        if physic is not None:
            self.checkpoint = replace(self.checkpoint, physic_msg_timestamp=physic)
        if logics is not None and (flushed or not self.with_offsets):
            self.checkpoint = replace(self.checkpoint, logics_msg_timestamp=logics)
        if self.dispatcher.logics_physical_offset is not None and flushed and self.with_offsets:
            self.checkpoint = replace(self.checkpoint, logics_physical_offset=self.dispatcher.logics_physical_offset)
        if self.index.index_msg_timestamp is not None:
            self.checkpoint = replace(self.checkpoint, index_msg_timestamp=self.index.index_msg_timestamp)

    # start --------------------------------------------------------------------------------------------------------------------------

    def start(self) -> Started:
        """DefaultMessageStore.start, after a load that went well; "timeout" if it never ends."""
        settings = self.settings
        self.dispatcher.count, self.dispatcher.first_offset = 0, None
        if self._by_queues:
            self._begin_to_run()
            return "ok"
        reput = Reput(
            files=self.log.files,
            read=self.log.read,
            dispatch=self.dispatcher.dispatch,
            deliver_timestamp=self._deliver_timestamp,
            is_master=settings.is_master,
            duplication_enable=settings.duplication_enable,
            reput_from_offset=max(self._max_physic_offset(), min_offset(self.log.files), 0),
        )
        caught_up = reput.catch_up()
        self._note_checkpoint()
        self.index.settle()
        if not caught_up:
            self.failure = f"the messages from {reput.reput_from_offset} of the commit log on are never dispatched"
            return "timeout"
        self._recover_topic_queue_table()
        self._behind = reput.behind
        self._begin_to_run()
        return "ok"

    def _begin_to_run(self) -> None:
        if not self.is_aborted:
            self.files.create((ABORT_FILE,), 0)
        self.is_aborted = True

    # put ----------------------------------------------------------------------------------------------------------------------------

    def put_message(self, message: InnerMessage, store_timestamp: int) -> PutResult:
        """DefaultMessageStore.putMessage.

        Raises:
            PutMessageError: the broker throws, or writes a record that it cannot read.
        """
        prepared = prepare(message, store_timestamp, self.put_settings)
        return self._put([prepared], NO_BATCH) if isinstance(prepared, Message) else PutResult(status=prepared)

    def put_messages(self, batch: MessageBatch, store_timestamp: int) -> PutResult:
        """DefaultMessageStore.putMessages.

        Raises:
            PutMessageError: the broker throws, or writes a record that it cannot read.
        """
        prepared = prepare_batch(batch, store_timestamp, self.put_settings)
        return PutResult(status=prepared) if isinstance(prepared, PutMessageStatus) else self._put(prepared, 0)

    def _put(self, messages: Sequence[Message], batch: int) -> PutResult:
        queues = [self.queue_number(one.topic, one.queue_id) for one in messages]
        offsets, queue_offsets = self.append(columns_of(messages, queues, [batch] * len(messages)))
        return PutResult(
            status=PutMessageStatus.PUT_OK, wrote_offsets=tuple(offsets.tolist()), logics_offsets=tuple(queue_offsets.tolist())
        )

    def queue_number(self, topic: bytes, queue_id: int) -> int:
        """The number of a queue in `topic_queue_table`."""
        key = (topic, queue_id)
        if key not in self._numbers:
            queue = self.queues.get((decode_text(topic), queue_id))
            self._numbers[key] = len(self._numbers)
            self.topic_queue_table = np.append(self.topic_queue_table, queue.max_offset if queue else 0)
        return self._numbers[key]

    def append(self, messages: MessageColumns) -> tuple[Longs, Longs]:
        """Write messages to the log and dispatch them, without the checks of `prepare`.

        Returns each message's offset in the log (NOT_APPENDED if no file has room for it) and in its queue.
        """
        return self.log.append(messages, self.topic_queue_table)

    def _dispatch(self, written: Bytes, positions: Longs) -> None:
        self.dispatcher.dispatch(read_requests(written, positions, self._deliver_timestamp))

    # look up ------------------------------------------------------------------------------------------------------------------------

    def lookup(self, read: Callable[[FilePath], Bytes], mtime_of: Callable[[FilePath, MappedFile], int]) -> LoadedFiles:
        """The files of the store for look-ups.

        `read` returns all bytes of a file, the same as `files` does, and may cache them; `mtime_of` returns when a queue's file was last
        written to, ms.
        """

        def mapped(folder: FilePath, files: Sequence[MappedFile]) -> MappedFiles:
            return MappedFiles(files, lambda file: read((*folder, file.name)))

        queues = {}
        for key, queue in self.queues.items():
            files = [replace(file, mtime_ms=mtime_of(queue.path(file.name), file)) for file in queue.files]
            queues[key] = QueueLookup(mapped(queue.folder, files), queue.min_logic_offset)
        log = CommitLogLookup(mapped((COMMIT_LOG,), self.log.files), self.settings.version)
        return LoadedFiles(log=log, queues=queues)

    # shutdown -----------------------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write everything that was put to the files, and the checkpoint; the store stays open."""
        self.index.settle()
        self._note_checkpoint(flushed=True)
        if self.log.times:
            self.checkpoint = replace(self.checkpoint, physic_msg_timestamp=max(self.log.times.values()))
        former = self._head(CHECKPOINT_FILE, CHECKPOINT_LENGTH)
        written = encode_checkpoint(self.checkpoint, former, with_offsets=self.with_offsets)
        self._overwrite(CHECKPOINT_FILE, former, np.frombuffer(written, np.uint8))
        self._overwrite(LOCK_FILE, self._head(LOCK_FILE, len(LOCK)), np.frombuffer(LOCK, np.uint8))

    def shutdown(self) -> None:
        """DefaultMessageStore.shutdown, after a start that ended; a new store counts as complete when this is done."""
        self.flush()
        if INDEX_FILE_SHUTDOWN.of(self.settings.version).value:
            for file in (file for file in self.index.files if file.lacks_count):
                count = np.array([file.header.index_count], ">i4").view(np.uint8)
                self.files.write((INDEX, file.name), INDEX_COUNT_AT, count)
        if self._behind == 0:
            self.files.delete((ABORT_FILE,))
            self.is_aborted = False

    def _overwrite(self, name: str, former: bytes | None, data: Bytes) -> None:
        if former is None:
            self.files.create((name,), len(data))
        if former is None or len(former) < len(data) or former[: len(data)] != data.tobytes():
            self.files.set_length((name,), len(data))
            self.files.write((name,), 0, data)
