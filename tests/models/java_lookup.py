"""The look-ups of ConsumeQueue, CommitLog and MappedFileQueue transcribed over byte buffers; tests compare ours with them."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

UNIT = 20


class JavaError(Exception):
    """An exception of the JVM, by its class."""


def java_int(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31


def java_long(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def java_divide(number: int, by: int) -> int:
    return number // by if number >= 0 else -(-number // by)


@dataclass
class Buffer:
    """A ByteBuffer: its bytes up to the capacity, and the limit."""

    raw: bytes
    limit: int

    def get(self, form: str, at: int) -> int:
        if at < 0 or at + struct.calcsize(form) > self.limit:
            raise JavaError("java.lang.IndexOutOfBoundsException")
        return int(struct.unpack_from(form, self.raw, at)[0])


@dataclass
class JavaFile:
    """A MappedFile."""

    start: int
    raw: bytes
    wrote: int
    mtime: int = 0

    def select(self, pos: int, size: int) -> tuple[int, Buffer] | None:
        if java_int(pos + size) > self.wrote:
            return None
        rest = self.raw[pos:]
        if size < 0 or size > len(rest):
            raise JavaError("java.lang.IllegalArgumentException")
        return self.start + pos, Buffer(rest, size)

    def select_rest(self, pos: int) -> Buffer | None:
        if pos < self.wrote and pos >= 0:
            return Buffer(self.raw[pos:], self.wrote - pos)
        return None


@dataclass
class JavaFiles:
    """A MappedFileQueue."""

    size: int
    files: list[JavaFile] = field(default_factory=list)

    def find(self, offset: int, first_if_not_found: bool) -> JavaFile | None:
        if not self.files:
            return None
        first, last = self.files[0], self.files[-1]
        if not (offset < first.start or offset >= last.start + self.size):
            for file in self.files:
                if file.start <= offset < file.start + self.size:
                    return file
        return first if first_if_not_found else None


@dataclass
class JavaLog:
    """CommitLog, with the calls that DefaultMessageStore makes."""

    mapped: JavaFiles

    def min_offset(self) -> int:
        return self.mapped.files[0].start if self.mapped.files else -1

    def get_message(self, offset: int, size: int) -> tuple[int, Buffer] | None:
        file = self.mapped.find(offset, offset == 0)
        return None if file is None else file.select(offset % self.mapped.size, size)

    def select_one(self, offset: int) -> tuple[int, bytes] | None:
        found = self.get_message(offset, 4)
        if found is None:
            return None
        found = self.get_message(offset, found[1].get(">i", 0))
        return None if found is None else (found[0], found[1].raw[: found[1].limit])

    def pickup(self, offset: int, size: int) -> int:
        if offset >= self.min_offset():
            found = self.get_message(offset, size)
            if found is not None:
                flag = found[1].get(">i", 36)
                return found[1].get(">q", 48 + (20 if flag & 0x10 else 8))
        return -1


@dataclass
class JavaQueue:
    """ConsumeQueue after load."""

    mapped: JavaFiles
    min_logic_offset: int
    log: JavaLog

    def index_buffer(self, index: int) -> Buffer | None:
        offset = java_long(index * UNIT)
        if offset >= self.min_logic_offset:
            file = self.mapped.find(offset, False)
            if file is not None:
                return file.select_rest(offset % self.mapped.size)
        return None

    def commit_log_offset(self, index: int) -> int:
        found = self.index_buffer(index)
        if found is None:
            return 0
        if found.limit < 8:
            raise JavaError("java.nio.BufferUnderflowException")
        return found.get(">q", 0)

    def message_store_time(self, index: int) -> int:
        found = self.index_buffer(index)
        if found is None:
            return -1
        try:
            return self.log.pickup(found.get(">q", 0), found.get(">i", 8))
        except JavaError:
            return -1

    def offset_by_time(self, timestamp: int) -> int:
        if not self.mapped.files:
            return 0
        file = next((file for file in self.mapped.files if file.mtime >= timestamp), self.mapped.files[-1])
        buffer = file.select_rest(0)
        if buffer is None:
            return 0
        low = self.min_logic_offset - file.start if self.min_logic_offset > file.start else 0
        high = buffer.limit - UNIT
        target = left = right = -1
        left_value = right_value = -1
        while high >= low:
            mid = java_divide(java_int(low + high), 2 * UNIT) * UNIT
            offset, size = buffer.get(">q", mid), buffer.get(">i", mid + 8)
            if offset < self.log.min_offset():
                low = mid + UNIT
                left = mid
                continue
            time = self.log.pickup(offset, size)
            if time < 0:
                return 0
            if time == timestamp:
                target = mid
                break
            if time > timestamp:
                high, right, right_value = mid - UNIT, mid, time
            else:
                low, left, left_value = mid + UNIT, mid, time
        if target != -1:
            found = target
        elif left_value == -1:
            found = right
        elif right_value == -1:
            found = left
        else:
            found = right if abs(timestamp - left_value) > abs(timestamp - right_value) else left
        return java_divide(file.start + found, UNIT)
