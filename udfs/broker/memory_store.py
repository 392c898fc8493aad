"""A message store in memory: a commit log of messages, its consume queues, and getMessage over them.

Messages are kept as objects, not as bytes, because a pull needs only their offset, size and a few fields. The same functions as for
stores on disk decide where a message is placed, which entry it gets and which messages a pull finds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from store_format.files.mapped_files import MappedFile, offset_to_file_name
from store_format.layout import CQ_STORE_UNIT_SIZE, TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE
from store_format.log.append import NO_BATCH, NOT_APPENDED, place
from store_format.log.put_message import SCHEDULE_TOPIC, InnerMessage, PutMessageStatus, PutSettings, delay_level, prepare
from store_format.record.message import Message, encode
from store_format.store.lookup import NULL_POINTER, CommitLogLookup, MappedFiles, ThrownError
from udfs.broker.memory_queue import MemoryQueue
from udfs.broker.multi_dispatch import NO_FURTHER_QUEUES, MultiDispatch, MultiDispatchSettings, places
from udfs.broker.pull_message_processor import GetMessageResult
from udfs.broker.schedule import deliver_timestamp
from udfs.filters.message_filter import ExpressionMessageFilter, RetryTopicMissingError
from udfs.filters.tags import tags_code
from udfs.pull import get_message as gm
from udfs.pull.batch_caps import check_in_disk, memory_limit, scan_window_entries
from udfs.pull.codes import GetMessageStatus
from udfs.pull.pull_filter import tag_codes
from udfs.pull.scan_settings import ScanSettings, notes_a_position, scan_caps

DELETE_FILES_BATCH_MAX = 10  # MappedFileQueue
HEAD_DELETED = -1


@dataclass(frozen=True, slots=True)
class LogExtent:
    """The extent of a commit log: physical offsets of its first file's first byte and of its end."""

    start: int = 0
    end: int = 0

    def starts(self, file_size: int) -> NDArray[np.int64]:
        """Return the physical offset of each file's first byte."""
        return np.arange(self.start, self.end, file_size, dtype=np.int64)

    def without_head(self, file_size: int, most: int = DELETE_FILES_BATCH_MAX) -> LogExtent:
        """Return the log after CommitLog.deleteExpiredFile: without its first files, at most `most`, never the last one."""
        deleted = min(max(len(self.starts(file_size)) - 1, 0), most)
        return LogExtent(self.start + deleted * file_size, self.end)

    def after(self, written: Sequence[int], file_size: int, most: int = DELETE_FILES_BATCH_MAX) -> LogExtent:
        """Return the log after records of `written` bytes each were appended; HEAD_DELETED in the list applies `without_head`."""
        bounds, rest = self, list(written)
        while rest:
            count = rest.index(HEAD_DELETED) if HEAD_DELETED in rest else len(rest)
            sizes = np.array(rest[:count], np.int64)
            end = place(sizes, np.full(count, NO_BATCH, np.int64), file_size, bounds.end).log_end
            bounds = LogExtent(bounds.start, end)
            if count < len(rest):
                bounds = bounds.without_head(file_size, most)
            del rest[: count + 1]
        return bounds


EMPTY_LOG: Final = LogExtent()


@dataclass(slots=True, kw_only=True)
class MemoryStore:
    """A message store in memory, with the lengths of its files in bytes and the delay of each delay level in ms.

    `log` is the commit log; a scenario may begin after the records of other scenarios.
    """

    commit_log_file_size: int
    consume_queue_file_size: int
    delays: Sequence[int]
    log: LogExtent = EMPTY_LOG
    queues: dict[tuple[str, int], MemoryQueue] = field(default_factory=dict)
    topic_queue_table: dict[tuple[str, int], int] = field(default_factory=dict)
    messages: dict[int, Message] = field(default_factory=dict)
    multi_dispatch: MultiDispatch = field(init=False)

    def __post_init__(self) -> None:
        self.multi_dispatch = MultiDispatch(topic_queue_table=self.topic_queue_table)

    def queue(self, topic: str | None, queue_id: int | None) -> MemoryQueue:
        """Return a queue, created if it does not exist: DefaultMessageStore.findConsumeQueue.

        Raises:
            ThrownError: the topic or the queue id is missing.
        """
        if topic is None or queue_id is None:
            raise ThrownError(NULL_POINTER)
        entries = self.consume_queue_file_size // CQ_STORE_UNIT_SIZE
        return self.queues.setdefault((topic, queue_id), MemoryQueue(entries_a_file=entries))

    # putting ------------------------------------------------------------------------------------------------------------------------

    def put(
        self, inner: InnerMessage, now: int, settings: PutSettings, further: MultiDispatchSettings = NO_FURTHER_QUEUES
    ) -> Message | PutMessageStatus:
        """Append a message; return the stored message, or the status with which the store refuses it.

        Raises:
            PutMessageError: the broker throws.
        """
        prepared = prepare(inner, now, settings, lambda written: self.multi_dispatch.with_offsets(written, further))
        if isinstance(prepared, PutMessageStatus):
            return prepared
        key = (prepared.topic.decode(), prepared.queue_id)
        is_queued = prepared.sys_flag & TRANSACTION_ROLLBACK_TYPE in {0, TRANSACTION_COMMIT_TYPE}
        queue_offset = self.topic_queue_table.setdefault(key, 0) if is_queued else 0
        stored = self.append(prepared, queue_offset)
        if is_queued and stored.physic_offset != NOT_APPENDED:
            self.topic_queue_table[key] += 1
            self.multi_dispatch.stored(stored, further)
        return stored

    def append(self, message: Message, queue_offset: int) -> Message:
        """Append a record unchanged, as a slave does; return it with its offset, NOT_APPENDED if no file has room for it."""
        size = len(encode(message))
        placed = place(np.array([size]), np.array([NO_BATCH]), self.commit_log_file_size, self.log.end)
        self.log = LogExtent(self.log.start, placed.log_end)
        stored = replace(message, queue_offset=queue_offset, physic_offset=int(placed.offsets[0]), store_size=size)
        if stored.physic_offset != NOT_APPENDED:
            self.messages[stored.physic_offset] = stored
        return stored

    def dispatch(self, message: Message, now: int, further: MultiDispatchSettings) -> int:
        """Write the queue entries of a stored message and return its tagsCode."""
        properties = message.properties_map()
        topic, code = message.topic.decode(), tags_code(properties.get("TAGS"))
        level = delay_level(properties) if topic == SCHEDULE_TOPIC else 0
        if level > 0:
            code = deliver_timestamp(min(level, len(self.delays)), message.store_timestamp, self.delays)
        entry = (message.physic_offset, message.store_size, code, now)
        self.queue(topic, message.queue_id).put(message.queue_offset, *entry)
        for queue, offset in places(message, further):
            self.queue(*queue).put(offset, *entry)
        return code

    def delete_log_head(self, most: int = DELETE_FILES_BATCH_MAX) -> int:
        """Delete the first files of the log, as `LogExtent.without_head` does, and return how many."""
        before, self.log = self.log, self.log.without_head(self.commit_log_file_size, most)
        return (self.log.start - before.start) // self.commit_log_file_size

    # reading ------------------------------------------------------------------------------------------------------------------------

    def message_at(self, offset: int) -> Message | None:
        """Return the message at a physical offset, None if its file was deleted; offset 0 falls back to the first file."""
        if offset >= self.log.start:
            return self.messages.get(offset)
        return self.messages.get(self.log.start) if offset == 0 else None

    def last_messages(self, topic: str, queue_id: int, count: int | None) -> Iterator[Message | None]:
        """Yield the last `count` messages of a queue, all if `count` is None."""
        queue = self.queue(topic, queue_id)
        first = 0 if count is None else max(0, queue.max_offset - count)
        for offset in range(first, queue.max_offset):
            entry = queue.entry(offset)
            yield self.message_at(entry[0] if entry else 0)

    def is_in_disk(self, topic: str, queue_id: int, offset: int, settings: ScanSettings) -> bool:
        """Return whether the entry at a queue offset counts as on disk: DefaultMessageStore.checkInDiskByConsumeOffset."""
        entry = self.queue(topic, queue_id).entry(offset)
        memory = memory_limit(settings.total_physical_memory_size, settings.access_message_in_memory_max_ratio)
        return entry is not None and bool(check_in_disk(entry[0], self.log.end, memory))

    def commit_log(self) -> CommitLogLookup:
        """Return the log in the form that look-ups need, with encoded records."""
        size = self.commit_log_file_size
        contents = {start: bytearray(min(size, self.log.end - start)) for start in self.log.starts(self.commit_log_file_size).tolist()}
        for offset, message in self.messages.items():
            if offset >= self.log.start:
                start = offset // size * size
                contents[start][offset - start : offset - start + message.store_size] = encode(message)
        files = [
            MappedFile(name=offset_to_file_name(start), from_offset=start, length=size, wrote=len(content))
            for start, content in contents.items()
        ]
        return CommitLogLookup(MappedFiles(files, lambda file: np.frombuffer(contents[file.from_offset], np.uint8)))

    def get_message(
        self, topic: str, queue_id: int, offset: int, max_msg_nums: int, message_filter: ExpressionMessageFilter, settings: ScanSettings
    ) -> GetMessageResult | None:
        """Return the store's answer to a pull (DefaultMessageStore.getMessage), None if the store is not readable.

        Raises:
            ThrownError: the store throws.
        """
        if not settings.readable:
            return None
        queue, caps = self.queue(topic, queue_id), scan_caps(settings, self.consume_queue_file_size // CQ_STORE_UNIT_SIZE)
        bounds = queue.min_offset, queue.max_offset
        block = self._judged(message_filter, queue.block(offset), offset, max_msg_nums)
        filters = tag_codes(message_filter)
        number = gm.NO_FILTER if filters is None else 0
        request = np.array([[offset, max_msg_nums, *bounds, self.log.end, number]], np.int64)
        codes = np.empty(0, np.int32) if filters is None else filters
        starts = self.log.starts(self.commit_log_file_size)
        files = gm.CommitLogFiles(starts, np.minimum(self.log.end - starts, self.commit_log_file_size), self.commit_log_file_size)
        answers = gm.get_message(request, caps, block, gm.TagCodes(np.array([0, len(codes)]), codes), files)
        row, taken = answers.columns[0], answers.taken.tolist()
        if int(row[gm.STATUS]) in gm.EXCEPTIONS:
            raise ThrownError(gm.EXCEPTIONS[int(row[gm.STATUS])])
        distance = self.log.end - int(row[gm.LAST_PHYSIC])
        return GetMessageResult(
            status=GetMessageStatus(int(row[gm.STATUS])),
            next_begin_offset=int(row[gm.NEXT]),
            min_offset=bounds[0],
            max_offset=bounds[1],
            suggest_pulling_from_slave=bool(notes_a_position(answers.columns, settings.rules)[0] and distance > caps[gm.MEMORY]),
            messages=tuple(self._given(block, i) for i in taken),
        )

    def _given(self, block: gm.Block, i: int) -> tuple[int, int, Message]:
        message = self.message_at(int(block.physic_offsets[i]))
        assert message is not None  # the scan took it
        return block.first_offset + i, int(block.sizes[i]), message

    def _judged(self, wanted: ExpressionMessageFilter, block: gm.Block, offset: int, max_msg_nums: int) -> gm.Block:
        """Return the block with the filter's verdicts on the entries that a scan may reach, if the filter reads properties."""
        if wanted.commit_log_condition() is None:
            return block
        verdicts = np.full(len(block.sizes), gm.MATCHES, np.uint8)
        begin = max(offset - block.first_offset, 0)
        end = min(begin + int(scan_window_entries(max(max_msg_nums, 0))), len(verdicts))
        for i in range(begin, end):
            message = self.message_at(int(block.physic_offsets[i]))
            try:
                if message is not None and not wanted.is_matched_by_commit_log(message.properties_map()):
                    verdicts[i] = gm.NOT_BY_COMMIT_LOG
            except RetryTopicMissingError:
                verdicts[i] = -gm.NULL_POINTER
        return replace(block, verdicts=verdicts)
