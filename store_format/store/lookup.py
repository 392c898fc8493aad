"""Look-ups in a loaded store: offsets by time, messages by offset in the log, times of messages.

Broker source (4.9.3): DefaultMessageStore.getOffsetInQueueByTime, getMessageStoreTimeStamp, getEarliestMessageTime, lookMessageByOffset,
selectOneMessageByOffset; ConsumeQueue.getOffsetInQueueByTime and getIndexBuffer; CommitLog.getMessage and pickupStoreTimestamp;
MappedFileQueue.getMappedFileByTime; MappedFile.selectMappedBuffer.
Rule: the search for a time first chooses a file by its modification time, and then searches that file alone.
Surprises: among entries of the same time any may be found. For a time after the last entry the answer is the last entry, not the queue's
end. Offset 0 of the log falls back to the first file. The four bytes at an offset are read as a size, whatever they are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from store_format.big_endian import Bytes
from store_format.broker_version import DEFAULT_VERSION, BrokerVersion
from store_format.errors import CorruptStoreError
from store_format.files.mapped_files import MappedFile
from store_format.java.numbers import to_int, to_long
from store_format.layout import BORNHOST_V6_FLAG, CQ_STORE_UNIT_SIZE, SYS_FLAG_POSITION
from store_format.record.message import Message, decode

ILLEGAL_ARGUMENT = "java.lang.IllegalArgumentException"
INDEX_OUT_OF_BOUNDS = "java.lang.IndexOutOfBoundsException"
BUFFER_UNDERFLOW = "java.nio.BufferUnderflowException"
NULL_POINTER = "java.lang.NullPointerException"
NUMBER_FORMAT = "java.lang.NumberFormatException"

NO_TIME = -1
SIZE_BYTES = 4
_BORN_HOST_END = {False: 56, True: 68}  # position of the store timestamp in a record, by whether the born host is IPv6

ReadBytes = Callable[[MappedFile], Bytes]


class ThrownError(Exception):
    """The broker's method throws an exception; `java_class` is the full name of its class."""

    def __init__(self, java_class: str) -> None:
        super().__init__(java_class)
        self.java_class = java_class


def _divided(value: int, by: int) -> int:
    """`value / by` as Java divides: rounded towards 0."""
    return -(-value // by) if value < 0 else value // by


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """SelectMappedBufferResult: bytes of a file, and the offset of the first one."""

    start_offset: int
    content: Bytes

    def number(self, at: int, length: int) -> int:
        """The signed number of `length` bytes at position `at`."""
        if at + length > len(self.content):
            raise ThrownError(INDEX_OUT_OF_BOUNDS)
        return int.from_bytes(self.content[at : at + length].tobytes(), "big", signed=True)


@dataclass(frozen=True, slots=True)
class MappedFiles:
    """The files of the commit log or of one queue, and the function that reads their bytes."""

    files: Sequence[MappedFile]
    read: ReadBytes

    def find(self, offset: int, *, or_first: bool = False) -> MappedFile | None:
        """MappedFileQueue.findMappedFileByOffset: the file with `offset`; without one, the first file if `or_first`, else None."""
        after = bisect_right(self.files, offset, key=attrgetter("from_offset"))
        if after and offset < self.files[after - 1].end:
            return self.files[after - 1]
        return self.files[0] if or_first and self.files else None

    def select(self, file: MappedFile, position: int, size: int) -> Selected | None:
        """MappedFile.selectMappedBuffer(pos, size): the bytes, None if they reach past the bytes in use.

        Raises:
            ThrownError: the size is negative, or so large that its sum with the position wraps.
        """
        if to_int(position + size) > file.wrote:
            return None
        if not 0 <= size <= file.length - position:
            raise ThrownError(ILLEGAL_ARGUMENT)
        return Selected(start_offset=file.from_offset + position, content=self.read(file)[position : position + size])

    def rest(self, file: MappedFile, position: int) -> Selected | None:
        """MappedFile.selectMappedBuffer(pos): all bytes in use from `position` on."""
        if not 0 <= position < file.wrote:
            return None
        return Selected(start_offset=file.from_offset + position, content=self.read(file)[position : file.wrote])


@dataclass(frozen=True, slots=True)
class CommitLogLookup:
    """The commit log of a loaded store, and the version of the broker that decodes its messages."""

    mapped: MappedFiles
    version: BrokerVersion = DEFAULT_VERSION

    @property
    def min_offset(self) -> int:
        """CommitLog.getMinOffset: the first file's offset, -1 without files."""
        return self.mapped.files[0].from_offset if self.mapped.files else -1

    def get_message(self, offset: int, size: int) -> Selected | None:
        """CommitLog.getMessage: the `size` bytes at `offset`, None if the log does not have them."""
        file = self.mapped.find(offset, or_first=offset == 0)
        return None if file is None else self.mapped.select(file, offset % file.length, size)

    def select_one_message(self, offset: int) -> Selected | None:
        """DefaultMessageStore.selectOneMessageByOffset: the bytes of the message at `offset`, None if there is none."""
        head = self.get_message(offset, SIZE_BYTES)
        return None if head is None else self.get_message(offset, head.number(0, SIZE_BYTES))

    def look_message(self, offset: int) -> Message | None:
        """DefaultMessageStore.lookMessageByOffset: the message at `offset`, its body as stored; None if there is none."""
        found = self.select_one_message(offset)
        return None if found is None else decode(found.content.tobytes(), uncompress_body=False, version=self.version)

    def pickup_store_timestamp(self, offset: int, size: int) -> int:
        """CommitLog.pickupStoreTimestamp: the store timestamp of the message at `offset` in ms, -1 if there is no message."""
        found = self.get_message(offset, size) if offset >= self.min_offset else None
        if found is None:
            return NO_TIME
        is_v6 = bool(found.number(SYS_FLAG_POSITION, 4) & BORNHOST_V6_FLAG)
        return found.number(_BORN_HOST_END[is_v6], 8)

    def earliest_message_time(self, max_message_size: int) -> int:
        """DefaultMessageStore.getEarliestMessageTime of the whole store; `max_message_size` is the setting maxMessageSize."""
        return self.pickup_store_timestamp(self.min_offset, to_int(max_message_size * 2))


@dataclass(frozen=True, slots=True)
class QueueLookup:
    """One queue of a loaded store; `min_logic_offset` is in bytes. An unknown queue has no files."""

    mapped: MappedFiles
    min_logic_offset: int = 0

    @property
    def min_offset(self) -> int:
        """ConsumeQueue.getMinOffsetInQueue."""
        return _divided(self.min_logic_offset, CQ_STORE_UNIT_SIZE)

    @property
    def max_offset(self) -> int:
        """ConsumeQueue.getMaxOffsetInQueue."""
        files = self.mapped.files
        return (files[-1].from_offset + files[-1].wrote) // CQ_STORE_UNIT_SIZE if files else 0

    def index_buffer(self, offset: int) -> Selected | None:
        """ConsumeQueue.getIndexBuffer: the entries from a queue offset to the end of their file."""
        at = to_long(offset * CQ_STORE_UNIT_SIZE)
        file = self.mapped.find(at) if at >= self.min_logic_offset else None
        return None if file is None else self.mapped.rest(file, at % file.length)

    def commit_log_offset(self, offset: int) -> int:
        """DefaultMessageStore.getCommitLogOffsetInQueue: offset in the log of the message at a queue offset, 0 if there is no entry."""
        found = self.index_buffer(offset)
        if found is None:
            return 0
        if len(found.content) < 8:  # offset * 20 can wrap and point into the last entry
            raise ThrownError(BUFFER_UNDERFLOW)
        return found.number(0, 8)

    def message_store_time(self, offset: int, log: CommitLogLookup) -> int:
        """DefaultMessageStore.getMessageStoreTimeStamp: the store timestamp in ms, -1 if there is no message."""
        found = self.index_buffer(offset)
        if found is None or len(found.content) < 12:
            return NO_TIME
        try:
            return log.pickup_store_timestamp(found.number(0, 8), found.number(8, 4))
        except ThrownError:  # the broker catches the exception and does nothing
            return NO_TIME

    def earliest_message_time(self, log: CommitLogLookup) -> int:
        """DefaultMessageStore.getEarliestMessageTime of a queue."""
        return self.message_store_time(self.min_offset, log)

    def offset_by_time(self, timestamp: int, log: CommitLogLookup) -> int:
        """ConsumeQueue.getOffsetInQueueByTime: the queue offset of an entry whose message was stored near `timestamp` (ms).

        Raises:
            ThrownError: an entry's size is negative, or too small for a message.
        """
        file = self._file_by_time(timestamp)
        if file is None or not file.wrote:
            return 0
        offset = self._search(file, timestamp, log)
        return 0 if offset is None else _divided(file.from_offset + offset, CQ_STORE_UNIT_SIZE)

    def _file_by_time(self, timestamp: int) -> MappedFile | None:
        files = self.mapped.files
        return next((file for file in files if file.mtime_ms >= timestamp), files[-1] if files else None)

    def _search(self, file: MappedFile, timestamp: int, log: CommitLogLookup) -> int | None:
        """Position in `file` of the entry found, -1 if no entry was compared, None if a message has no store timestamp."""
        low = max(self.min_logic_offset - file.from_offset, 0)
        high = file.wrote - CQ_STORE_UNIT_SIZE
        entries = Selected(start_offset=file.from_offset, content=self.mapped.read(file)[: file.wrote])
        left = right = -1
        left_time = right_time = NO_TIME
        while high >= low:
            middle = _divided(to_int(low + high), 2 * CQ_STORE_UNIT_SIZE) * CQ_STORE_UNIT_SIZE
            if middle < 0:
                raise ThrownError(ILLEGAL_ARGUMENT)
            phy_offset, size = entries.number(middle, 8), entries.number(middle + 8, 4)
            if phy_offset < log.min_offset:
                low, left = middle + CQ_STORE_UNIT_SIZE, middle
                continue
            store_time = log.pickup_store_timestamp(phy_offset, size)
            if store_time < 0:
                return None
            if store_time == timestamp:
                return middle
            if store_time > timestamp:
                high, right, right_time = middle - CQ_STORE_UNIT_SIZE, middle, store_time
            else:
                low, left, left_time = middle + CQ_STORE_UNIT_SIZE, middle, store_time
        if left_time == NO_TIME:
            return right
        if right_time == NO_TIME:
            return left
        return right if timestamp - left_time > right_time - timestamp else left


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedFiles:
    """The files of a loaded store for look-ups: the commit log, and the queues by topic and queueId."""

    log: CommitLogLookup
    queues: Mapping[tuple[str, int], QueueLookup]

    def queue(self, topic: str, queue_id: int) -> QueueLookup:
        """DefaultMessageStore.findConsumeQueue: the queue, an empty one if it is unknown."""
        return self.queues.get((topic, queue_id)) or QueueLookup(MappedFiles((), _no_bytes))


def _no_bytes(file: MappedFile) -> Bytes:
    raise CorruptStoreError(file.name, "a file of a queue", "none")
