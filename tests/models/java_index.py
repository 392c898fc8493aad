"""IndexFile.java and IndexService.java transcribed step by step over a ByteBuffer; tests compare the compiled code with them."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

HEADER, SLOT, ENTRY = 40, 4, 20


class GoesRoundError(Exception):
    """A chain of entries is a circle: the broker's thread would never end."""


def hash_of(key: str) -> int:
    raw = key.encode("utf-16-be", "surrogatepass")
    code = 0
    for (unit,) in struct.iter_unpack(">H", raw):
        code = (31 * code + unit) % 2**32
    code -= 2**32 if code >= 2**31 else 0
    positive = abs(code)
    return 0 if positive == 2**31 else positive


def java_long(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def java_int(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31


@dataclass
class JavaIndexFile:
    """IndexFile over its mapped bytes."""

    slots: int
    entries: int
    raw: bytearray

    @classmethod
    def created(cls, slots: int, entries: int, end_offset: int, end_timestamp: int) -> JavaIndexFile:
        file = cls(slots, entries, bytearray(HEADER + slots * SLOT + entries * ENTRY))
        if end_offset > 0:
            file.put_long(16, end_offset)
            file.put_long(24, end_offset)
        if end_timestamp > 0:
            file.put_long(0, end_timestamp)
            file.put_long(8, end_timestamp)
        return file

    def get_int(self, at: int) -> int:
        if at < 0 or at + 4 > len(self.raw):
            raise IndexError(at)
        return int(struct.unpack_from(">i", self.raw, at)[0])

    def get_long(self, at: int) -> int:
        if at < 0 or at + 8 > len(self.raw):
            raise IndexError(at)
        return int(struct.unpack_from(">q", self.raw, at)[0])

    def put_int(self, at: int, value: int) -> None:
        struct.pack_into(">i", self.raw, at, value)

    def put_long(self, at: int, value: int) -> None:
        struct.pack_into(">q", self.raw, at, value)

    @property
    def index_count(self) -> int:
        count = self.get_int(36)
        return 1 if count <= 0 else count

    @property
    def is_write_full(self) -> bool:
        return self.index_count >= self.entries

    def put_key(self, key: str, offset: int, stamp: int) -> bool:
        if self.index_count >= self.entries:
            return False
        key_hash = hash_of(key)
        slot_at = HEADER + key_hash % self.slots * SLOT
        slot = self.get_int(slot_at)
        if slot <= 0 or slot > self.index_count:
            slot = 0
        diff = java_long(stamp - self.get_long(0))
        diff = diff // 1000 if diff >= 0 else -(-diff // 1000)
        if self.get_long(0) <= 0:
            diff = 0
        elif diff > 2**31 - 1:
            diff = 2**31 - 1
        elif diff < 0:
            diff = 0
        at = HEADER + self.slots * SLOT + self.index_count * ENTRY
        struct.pack_into(">iqii", self.raw, at, key_hash, offset, diff, slot)
        self.put_int(slot_at, self.index_count)
        if self.index_count <= 1:
            self.put_long(16, offset)
            self.put_long(0, stamp)
        if slot == 0:
            self.put_int(32, java_int(self.get_int(32) + 1))
        self.put_int(36, self.index_count + 1)
        self.put_long(24, offset)
        self.put_long(8, stamp)
        return True

    def is_time_matched(self, begin: int, end: int) -> bool:
        first, last = self.get_long(0), self.get_long(8)
        result = begin < first and end > last
        result = result or (begin >= first and begin <= last)
        return result or (end >= first and end <= last)

    def select(self, found: list[int], key: str, max_num: int, begin: int, end: int) -> None:
        key_hash = hash_of(key)
        slot = self.get_int(HEADER + key_hash % self.slots * SLOT)
        if slot <= 0 or slot > self.index_count or self.index_count <= 1:
            return
        following, steps = slot, 0
        while len(found) < max_num:
            at = java_int(HEADER + self.slots * SLOT + following * ENTRY)
            try:
                read = self.get_int(at), self.get_long(at + 4), self.get_int(at + 12), self.get_int(at + 16)
            except IndexError:
                return
            read_hash, offset, diff, previous = read
            if diff < 0:
                return
            time = java_long(self.get_long(0) + diff * 1000)
            matched = begin <= time <= end
            if read_hash == key_hash and matched:
                found.append(offset)
                steps = 0
            if previous <= 0 or previous > self.index_count or previous == following or time < begin:
                return
            following, steps = previous, steps + 1
            if steps > 2 * len(self.raw):
                raise GoesRoundError


@dataclass
class JavaIndexService:
    """IndexService with a flush thread that ends at once."""

    slots: int
    entries: int
    files: list[JavaIndexFile] = field(default_factory=list)
    checkpoint: int | None = None

    def last_file(self) -> JavaIndexFile:
        if self.files and not self.files[-1].is_write_full:
            return self.files[-1]
        end_offset = end_timestamp = 0
        if self.files:
            end_offset, end_timestamp = self.files[-1].get_long(24), self.files[-1].get_long(8)
            if end_timestamp > 0:
                self.checkpoint = end_timestamp
        self.files.append(JavaIndexFile.created(self.slots, self.entries, end_offset, end_timestamp))
        return self.files[-1]

    def build_index(self, offset: int, stamp: int, keys: list[str]) -> None:
        file = self.last_file()
        if offset < file.get_long(24):
            return
        for key in keys:
            while not file.put_key(key, offset, stamp):
                file = self.last_file()

    def query_offset(self, topic: str, key: str, max_num: int, begin: int, end: int) -> tuple[list[int], int, int]:
        found: list[int] = []
        last_timestamp = last_offset = 0
        for i in range(len(self.files), 0, -1):
            file = self.files[i - 1]
            if i == len(self.files):
                last_timestamp, last_offset = file.get_long(8), file.get_long(24)
            if file.is_time_matched(begin, end):
                file.select(found, f"{topic}#{key}", max_num, begin, end)
            if file.get_long(0) < begin:
                break
            if len(found) >= max_num:
                break
        return found, last_timestamp, last_offset
