"""Writes a store as its broker does, from the first message to a clean shutdown.

Broker source (4.9.3): DefaultMessageStore.putMessage, putMessages, start, shutdown; ReputMessageService; CommitLog.flush; StoreCheckpoint.
Rule: the abort file is created first and deleted last, so a store whose writer was killed counts as killed.
Surprises: the messages are read from the log again for queues and index, as the broker does. The checkpoint's index time is that of the
last full index file, 0 before there is one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.generate.written_files import WrittenFiles, cannot_write
from pipeline.generate.written_index import WrittenIndex
from pipeline.store.store_settings import StoreSettings
from store_format.big_endian import Bytes
from store_format.errors import StoreError
from store_format.files.changed_files import FilePath
from store_format.files.mapped_files import offset_to_file_name
from store_format.index.index_dispatch import messages_to_index
from store_format.layout import CQ_STORE_UNIT_SIZE
from store_format.log.append import NO_BATCH, NOT_APPENDED, MessageColumns, Placed, columns_of, encode, encode_blank, number, place
from store_format.log.dispatch_request import read_requests
from store_format.log.put_message import InnerMessage, MessageBatch, PutMessageStatus, PutSettings, prepare, prepare_batch
from store_format.queue.consume_queue import units_of
from store_format.queue.extension_dispatch import Extension
from store_format.queue.running_queue import Queue
from store_format.record.message import Message
from store_format.record.record_columns import locate, store_timestamps
from store_format.store.checkpoint import StoreCheckpoint, encode_checkpoint
from store_format.store.dispatcher import BitMapOf, Dispatcher, DispatchSettings
from store_format.store_paths import ABORT_FILE, CHECKPOINT_FILE, COMMIT_LOG, CONFIG, CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX, LOCK_FILE
from udfs.broker.schedule import deliver_timestamp

Longs = NDArray[np.int64]
MIN_LOG_FILE = 9  # bytes of a BLANK, and one more
MIN_EXT_FILE = 32  # bytes of a unit without a bit map, and of a file's end


@dataclass(frozen=True, slots=True, kw_only=True)
class PutResult:
    """PutMessageResult: the status, and the offsets of the messages in the log and in their queues (NOT_APPENDED if not stored)."""

    status: PutMessageStatus
    wrote_offsets: tuple[int, ...] = ()
    logics_offsets: tuple[int, ...] = ()


class StoreWriter:
    """A store that is being written.

    Attributes:
        files: the store's files on disk.
        log_end: CommitLog.getMaxOffset.
        topic_queue_table: next offset of each queue; `queue_number` is the queue's index.
        dispatcher: the store's dispatcher, with its queues and times.
    """

    def __init__(
        self, root: str, settings: StoreSettings, put_settings: PutSettings | None = None, *, bit_map_of: BitMapOf | None = None
    ) -> None:
        """Begin a store in the folder `root`, which is created.

        Args:
            root: path of the folder.
            settings: sizes and kinds of the files to write.
            put_settings: settings for the messages that the broker refuses; the broker's defaults by default.
            bit_map_of: as in Dispatcher.

        Raises:
            StoreError: the folder is not empty or cannot be created, or a broker cannot write files of these sizes.
        """
        check_sizes(settings)
        self.settings = settings
        self.put_settings = put_settings or PutSettings(max_delay_level=len(settings.delays or ()))
        self.files = WrittenFiles(root)
        self.log_end = 0
        self.topic_queue_table = np.zeros(0, np.int64)
        self._numbers: dict[tuple[bytes, int], int] = {}
        self._log_times: dict[str, int] = {}
        self._index = WrittenIndex(self.files, settings.index_sizes)
        self.dispatcher = Dispatcher(
            store=self.files,
            settings=DispatchSettings(is_slave=settings.is_slave),
            queues={},
            new_queue=self._new_queue,
            index=None,
            bit_map_of=bit_map_of,
        )
        self._start(root)

    def _start(self, root: str) -> None:
        try:
            os.makedirs(root, exist_ok=True)
            found = sorted(os.listdir(root))
        except (FileExistsError, NotADirectoryError) as error:
            raise StoreError(root, "an empty folder, or none", "a file", hint="give the name of a new folder") from error
        except OSError as error:
            raise cannot_write(root, error) from error
        if found:
            raise StoreError(root, "an empty folder, or none", f"{found[0]!r} in it", hint="a store is never written over")
        self.files.create((ABORT_FILE,), 0)
        for folder in (COMMIT_LOG, CONSUME_QUEUE):
            os.mkdir(self.files.path_of((folder,)))
        self.files.create((LOCK_FILE,), 4)
        self.files.write((LOCK_FILE,), 0, np.frombuffer(b"lock", np.uint8))

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
        """The index of a queue in `topic_queue_table`."""
        key = (topic, queue_id)
        if key not in self._numbers:
            self._numbers[key] = len(self._numbers)
            self.topic_queue_table = np.append(self.topic_queue_table, 0)
        return self._numbers[key]

    def append(self, messages: MessageColumns) -> tuple[Longs, Longs]:
        """Write messages to the log and dispatch them, without the checks of `prepare`.

        Returns:
            The offset of each message in the log (NOT_APPENDED for a message larger than a file), and in its queue.
        """
        size = self.settings.commit_log_size
        placed = place(messages.record_sizes(), messages.batch, size, self.log_end)
        queue_offsets = number(messages, placed.offsets, self.topic_queue_table)
        for from_offset in range(-(-self.log_end // size) * size, placed.log_end, size):
            self._create_log_file(from_offset)
        self.log_end = placed.log_end
        rows = np.flatnonzero(placed.offsets != NOT_APPENDED)
        # each write is a run of messages in one file, without a message that was not appended
        turns = (np.diff(placed.offsets[rows] // size) > 0) | (np.diff(rows) > 1)
        for part in np.split(rows, np.flatnonzero(turns) + 1):
            if len(part):
                self._write(messages, slice(int(part[0]), int(part[-1]) + 1), placed.offsets, queue_offsets)
        self._write_blanks(placed, messages.store_timestamp)
        return placed.offsets, queue_offsets

    def _create_log_file(self, from_offset: int) -> None:
        self.files.create((COMMIT_LOG, offset_to_file_name(from_offset)), self.settings.commit_log_size)

    def _log_name(self, offset: int) -> str:
        return offset_to_file_name(offset - offset % self.settings.commit_log_size)

    def _write_blanks(self, placed: Placed, stamps: Longs) -> None:
        for (at, length), row in zip(placed.blanks.tolist(), placed.blank_rows.tolist(), strict=True):
            name = self._log_name(at)
            self.files.write((COMMIT_LOG, name), at % self.settings.commit_log_size, np.frombuffer(encode_blank(length), np.uint8))
            self._log_times.setdefault(name, int(stamps[row]))

    def _write(self, messages: MessageColumns, rows: slice, offsets: Longs, queue_offsets: Longs) -> None:
        """Write the messages in `rows`, which lie in one file, and dispatch them."""
        first, last = int(offsets[rows.start]), rows.stop - 1
        name, size = self._log_name(first), self.settings.commit_log_size
        length = int(offsets[last] + messages.record_sizes()[last]) - first
        window = self.files.window((COMMIT_LOG, name), first % size, length)
        positions = encode(messages, rows, offsets, queue_offsets, window, first)
        self._log_times[name] = int(messages.store_timestamp[last])
        self._dispatch(window, positions)

    def _dispatch(self, window: Bytes, positions: Longs) -> None:
        delays = self.settings.delays or ()
        requests = read_requests(window, positions, lambda level, stored: deliver_timestamp(min(level, len(delays)), stored, delays))
        self.dispatcher.dispatch(requests)
        if self.settings.message_index_enable:
            self._index.build(messages_to_index(requests))

    # queues -------------------------------------------------------------------------------------------------------------------------

    def _new_queue(self, topic: str, queue_id: int) -> Queue:
        extension = None
        if self.settings.enable_consume_queue_ext:
            extension = Extension(folder=(CONSUME_QUEUE_EXT, topic, str(queue_id)), file_size=self.settings.ext_size)
        folder = (CONSUME_QUEUE, topic, str(queue_id))
        return Queue(topic=topic, queue_id=queue_id, folder=folder, file_size=self.settings.consume_queue_size, extension=extension)

    # shutdown -----------------------------------------------------------------------------------------------------------------------

    def shutdown(self, config: Mapping[str, bytes] | None = None) -> None:
        """DefaultMessageStore.shutdown: write the checkpoint and config files, set the files' times, and delete the abort file.

        Args:
            config: names and bytes of the files under config/.
        """
        self._index.finish()
        times = self._times()
        last = max(self._log_times.values(), default=0)
        self._write_whole((CHECKPOINT_FILE,), encode_checkpoint(self._checkpoint(last)))
        for name, raw in (config or {}).items():
            self._write_whole((CONFIG, name), raw)
        for folder, folders, names in os.walk(self.files.root, topdown=False):
            inside = os.path.relpath(folder, self.files.root)
            for name in [*names, *folders]:
                path = tuple(os.path.normpath(os.path.join(inside, name)).split(os.sep))
                self.files.set_time(path, times.get(path, last))
        os.unlink(self.files.path_of((ABORT_FILE,)))
        self.files.set_time((), last)

    def _write_whole(self, path: FilePath, raw: bytes) -> None:
        self.files.create(path, len(raw))
        self.files.write(path, 0, np.frombuffer(raw, np.uint8))

    def _checkpoint(self, last: int) -> StoreCheckpoint:
        """The checkpoint after log, queues and index are flushed."""
        return StoreCheckpoint(
            physic_msg_timestamp=last,
            logics_msg_timestamp=self.dispatcher.logics_msg_timestamp or 0,
            index_msg_timestamp=self._index.index_msg_timestamp,
        )

    def _times(self) -> dict[FilePath, int]:
        """The modification time of each file, ms: the store timestamp of the last message in it."""
        times: dict[FilePath, int] = {(COMMIT_LOG, name): time for name, time in self._log_times.items()}
        times |= {(INDEX, file.name): file.header.end_timestamp for file in self._index.files}
        for queue in self.dispatcher.queues.values():
            for file in queue.files:
                unit = units_of(self.files.content(queue.path(file.name)))[file.wrote // CQ_STORE_UNIT_SIZE - 1]
                times[queue.path(file.name)] = self._stored_at(int(unit["physicOffset"]))
        return times

    def _stored_at(self, offset: int) -> int:
        """CommitLog.pickupStoreTimestamp: the store timestamp of the message at `offset`, ms."""
        at = offset % self.settings.commit_log_size
        log = self.files.content((COMMIT_LOG, self._log_name(offset)))
        return int(store_timestamps(log, locate(log, np.array([at])))[0])


def check_sizes(settings: StoreSettings) -> None:
    """Raise if a broker cannot write a store with these settings.

    Raises:
        StoreError: names the size, or messageDelayLevel.
    """
    sizes = {
        "mappedFileSizeCommitLog": (settings.commit_log_size, MIN_LOG_FILE),
        "mappedFileSizeConsumeQueue": (settings.consume_queue_size, CQ_STORE_UNIT_SIZE),
    }
    if settings.enable_consume_queue_ext:
        sizes["mappedFileSizeConsumeQueueExt"] = (settings.ext_size, MIN_EXT_FILE)
    for name, (size, least) in sizes.items():
        if not least <= size < 2**31 or (name == "mappedFileSizeConsumeQueue" and size % CQ_STORE_UNIT_SIZE):
            raise StoreError(name, f"{least} bytes or more, below 2 GiB, whole entries in a queue", str(size))
    if not settings.index_sizes.are_usable:
        raise StoreError("maxHashSlotNum and maxIndexNum", "1 or more and 2 or more, in a file below 2 GiB", str(settings.index_sizes))
    if settings.delays is None:
        raise StoreError("messageDelayLevel", "levels that the broker can read", "others")
