"""Look-ups by time in a queue as 5.5.0 does them: they find a boundary, not the nearest entry, and use no modification times of files.

Broker source (5.5.0): MappedFileQueue.getConsumeQueueMappedFileByTime, ConsumeQueue.binarySearchInQueueByTime,
ConsumeQueueStore.getOffsetInQueueByTime, DefaultMessageStore.getEarliestMessageTime.
Rules: the store times of a file's first and last message choose the file. LOWER is the first entry at or after a time, or the offset after
the file's last entry; UPPER is the last entry at or before it. A result below min is min.
Surprise: the earliest message time of the store reads 64 bytes, so it throws if the log's first message has a born host of IPv6.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from store_format.broker_version import BrokerVersion, Rule, Variant
from store_format.files.mapped_files import MappedFile
from store_format.layout import CQ_STORE_UNIT_SIZE
from store_format.store.lookup import NO_TIME, CommitLogLookup, QueueLookup, Selected

LOOK_UPS: Final = Rule(
    term="getOffsetInQueueByTime, getEarliestMessageTime",
    variants=(
        Variant(
            BrokerVersion.V4_9_3,
            False,
            "the nearer of two entries, in the file whose modification time is at or after the time",
            "ConsumeQueue.getOffsetInQueueByTime, MappedFileQueue.getMappedFileByTime",
        ),
        Variant(
            BrokerVersion.V5_5_0,
            True,
            "the first entry at or after the time (LOWER) or the last at or before it (UPPER), in the file chosen by store times",
            "ConsumeQueue.binarySearchInQueueByTime, MappedFileQueue.getConsumeQueueMappedFileByTime",
        ),
    ),
)
_EARLIEST_BYTES: Final = 64  # MessageDecoder.MESSAGE_STORE_TIMESTAMP_POSITION and a long
_EARLIEST_BYTES_V6: Final = 76


class Boundary(Enum):
    """BoundaryType: which of the entries around a time is meant."""

    LOWER = "LOWER"
    UPPER = "UPPER"


def earliest_message_time(log: CommitLogLookup, *, broker_is_v6: bool) -> int:
    """DefaultMessageStore.getEarliestMessageTime: the store time of the log's first message in ms, NO_TIME without one.

    Args:
        log: the commit log.
        broker_is_v6: whether brokerIP1 is an IPv6 address.

    Raises:
        ThrownError: the message's hosts are longer than the bytes that are read.
    """
    return log.pickup_store_timestamp(log.min_offset, _EARLIEST_BYTES_V6 if broker_is_v6 else _EARLIEST_BYTES)


def offset_by_time(queue: QueueLookup, timestamp: int, log: CommitLogLookup, boundary: Boundary) -> int:
    """ConsumeQueueStore.getOffsetInQueueByTime: the queue offset of a boundary of `timestamp` (ms), from min to max.

    Raises:
        ThrownError: an entry's size is negative, or too small for a message.
    """
    return min(max(_in_file(queue, timestamp, log, boundary), queue.min_offset), queue.max_offset)


def _in_file(queue: QueueLookup, timestamp: int, log: CommitLogLookup, boundary: Boundary) -> int:
    """ConsumeQueue.getOffsetInQueueByTime, which does not know the queue's bounds."""
    file = _file_by_time(queue, timestamp, log, boundary)
    if file is None or not file.wrote:
        return 0
    low = max(queue.min_logic_offset - file.from_offset, 0)
    entries = _Entries(Selected(start_offset=file.from_offset, content=queue.mapped.read(file)[: file.wrote]), log)
    last, begin = file.wrote - CQ_STORE_UNIT_SIZE, file.from_offset
    if entries.time(last) < timestamp:
        return (begin + last) // CQ_STORE_UNIT_SIZE + (boundary is Boundary.LOWER)
    if entries.time(low) > timestamp:
        return begin // CQ_STORE_UNIT_SIZE if boundary is Boundary.LOWER else 0
    found = _search(entries, low, last, timestamp, boundary)
    return 0 if found is None else int((begin + found) / CQ_STORE_UNIT_SIZE)


@dataclass(frozen=True, slots=True)
class _Entries:
    """The entries of a queue file."""

    content: Selected
    log: CommitLogLookup

    def physic_offset(self, position: int) -> int:
        return self.content.number(position, 8)

    def time(self, position: int) -> int:
        return self.log.pickup_store_timestamp(self.physic_offset(position), self.content.number(position + 8, 4))


def _search(entries: _Entries, low: int, last: int, timestamp: int, boundary: Boundary) -> int | None:
    """The position found, -1 if no entry was compared, None if a message has no store timestamp."""
    first, high, left, right = low, last, -1, -1
    while high >= low:
        middle = (low + high) // (2 * CQ_STORE_UNIT_SIZE) * CQ_STORE_UNIT_SIZE
        if entries.physic_offset(middle) < entries.log.min_offset:
            low, left = middle + CQ_STORE_UNIT_SIZE, middle
            continue
        found = entries.time(middle)
        if found < 0:
            return None
        if found == timestamp:
            return _end_of_run(entries, middle, first, last, timestamp, boundary)
        if found > timestamp:
            high, right = middle - CQ_STORE_UNIT_SIZE, middle
        else:
            low, left = middle + CQ_STORE_UNIT_SIZE, middle
    return right if boundary is Boundary.LOWER else left


def _end_of_run(entries: _Entries, position: int, first: int, last: int, timestamp: int, boundary: Boundary) -> int:
    """The position of the first (LOWER) or last (UPPER) entry of the run of entries around `position` that have the time `timestamp`."""
    step = -CQ_STORE_UNIT_SIZE if boundary is Boundary.LOWER else CQ_STORE_UNIT_SIZE
    while first <= position + step <= last and entries.time(position + step) == timestamp:
        position += step
    return position


def _file_by_time(queue: QueueLookup, timestamp: int, log: CommitLogLookup, boundary: Boundary) -> MappedFile | None:
    files = queue.mapped.files
    if boundary is Boundary.UPPER:
        return next((file for file in reversed(files) if _time_at(queue, file, 0, log) <= timestamp), None)
    ends_late = (file for file in files[:-1] if _time_at(queue, file, file.length - CQ_STORE_UNIT_SIZE, log) >= timestamp)
    return next(ends_late, files[-1] if files else None)


def _time_at(queue: QueueLookup, file: MappedFile, position: int, log: CommitLogLookup) -> int:
    """The store time of the entry at a position, NO_TIME without one."""
    if position + CQ_STORE_UNIT_SIZE > file.wrote:
        return NO_TIME
    found = _Entries(Selected(start_offset=file.from_offset, content=queue.mapped.read(file)), log).time(position)
    return found if found > 0 else NO_TIME
