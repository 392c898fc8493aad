"""One index file: header, hash slots, and entries that are chained backwards from their slot.

Broker source (4.9.3): IndexFile, IndexHeader.
Rule: an entry has the hash of "topic#key", the message's offset in the log, the seconds since the file's begin time, and the number of the
last entry before it in its slot. Entries count from 1, so a file holds one entry less than maxIndexNum.
Surprises: in each file but the index's first, the first entry counts its seconds from the end time of the previous file, because the file's
own begin time is set after that entry. abs(-2147483648) is negative in Java; the broker makes 0 of that hash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from store_format.big_endian import Bytes, int32_at, int64_at, put_int32, put_int64
from store_format.broker_version import BrokerVersion, Rule, Variant
from store_format.compiled import compiled
from store_format.java.string_hash import string_hash
from store_format.layout import TRANSACTION_ROLLBACK_TYPE

INDEX_HEADER: Final = np.dtype(
    [
        ("beginTimestamp", ">i8"),  # store timestamp of the first entry's message, ms
        ("endTimestamp", ">i8"),
        ("beginPhyOffset", ">i8"),
        ("endPhyOffset", ">i8"),
        ("hashSlotCount", ">i4"),  # slots in use
        ("indexCount", ">i4"),  # number of entries plus one; 0 if nothing was ever put
    ]
)
assert INDEX_HEADER.itemsize == 40

HASH_SLOT: Final = np.dtype(">i4")  # number of the slot's last entry, 0 for none
assert HASH_SLOT.itemsize == 4

INDEX_ENTRY: Final = np.dtype(
    [
        ("keyHash", ">i4"),
        ("phyOffset", ">i8"),
        ("timeDiff", ">i4"),  # seconds
        ("previous", ">i4"),  # number of the last entry before this one in the slot, 0 for none
    ]
)
assert INDEX_ENTRY.itemsize == 20

_HEADER_LENGTH: Final = INDEX_HEADER.itemsize
_ENTRY_LENGTH: Final = INDEX_ENTRY.itemsize
BEGIN_TIMESTAMP_AT, _END_TIMESTAMP, _BEGIN_OFFSET, _END_OFFSET, _SLOT_COUNT, INDEX_COUNT_AT = (0, 8, 16, 24, 32, 36)
assert [offset for _, offset in INDEX_HEADER.fields.values()] == [0, 8, 16, 24, 32, 36]  # type: ignore[union-attr,misc]
_INT_MAX = 2**31 - 1

UNIQ_KEY: Final = "UNIQ_KEY"
KEYS: Final = "KEYS"
KEY_SEPARATOR: Final = " "
TAGS: Final = "TAGS"
_TYPE_SEPARATOR: Final = "#"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSizes:
    """Settings maxHashSlotNum and maxIndexNum."""

    hash_slot_num: int
    index_num: int

    @property
    def file_length(self) -> int:
        """The length of an index file of these sizes, bytes."""
        return _HEADER_LENGTH + self.hash_slot_num * HASH_SLOT.itemsize + self.index_num * _ENTRY_LENGTH

    @property
    def are_usable(self) -> bool:
        """Whether a broker can put a key: there is a slot, room for one entry, and the file's length fits an int."""
        return self.hash_slot_num > 0 and self.index_num > 1 and self.file_length <= _INT_MAX


DEFAULT_INDEX_SIZES: Final = IndexSizes(hash_slot_num=5_000_000, index_num=20_000_000)
assert DEFAULT_INDEX_SIZES.file_length == 420_000_040


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexHeader:
    """The header as IndexHeader.load reads it; `index_count` is at least 1."""

    begin_timestamp: int
    end_timestamp: int
    begin_phy_offset: int
    end_phy_offset: int
    hash_slot_count: int
    index_count: int


INDEX_FILE_SHUTDOWN: Final = Rule(
    term="IndexFile.shutdown",
    variants=(
        Variant(BrokerVersion.V4_9_3, False, "a clean shutdown leaves the headers as they are", "IndexService.shutdown"),
        Variant(
            BrokerVersion.V5_5_0,
            True,
            "a clean shutdown writes each header as it is in memory: a file without entries gets indexCount 1",
            "IndexService.shutdown, IndexFile.flush, IndexHeader.updateByteBuffer",
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class IndexFile:
    """One index file; `content` has the length `sizes.file_length`, and must be writable if keys are put into the file."""

    name: str
    content: Bytes
    sizes: IndexSizes

    @property
    def header(self) -> IndexHeader:
        """The header in `content`, read at each call."""
        row = self.content[:_HEADER_LENGTH].view(INDEX_HEADER)[0]
        return IndexHeader(
            begin_timestamp=int(row["beginTimestamp"]),
            end_timestamp=int(row["endTimestamp"]),
            begin_phy_offset=int(row["beginPhyOffset"]),
            end_phy_offset=int(row["endPhyOffset"]),
            hash_slot_count=int(row["hashSlotCount"]),
            index_count=max(int(row["indexCount"]), 1),
        )

    @property
    def lacks_count(self) -> bool:
        """Whether the indexCount in `content` is not the one that the broker has in memory."""
        return int(self.content[:_HEADER_LENGTH].view(INDEX_HEADER)[0]["indexCount"]) != self.header.index_count

    @property
    def is_write_full(self) -> bool:
        """IndexFile.isWriteFull."""
        return self.header.index_count >= self.sizes.index_num


def mapped_content(content: Bytes, sizes: IndexSizes, *, writable: bool = False) -> Bytes:
    """A file's bytes as the broker maps them: zeros follow a shorter file, a longer one is cut. A copy only if it is needed."""
    if len(content) >= sizes.file_length and not writable:
        return content[: sizes.file_length]
    whole = np.zeros(sizes.file_length, np.uint8)
    whole[: len(content)] = content[: sizes.file_length]
    return whole


def fill_header(content: Bytes, previous: IndexHeader | None) -> None:
    """Write into a new file, as IndexFile's constructor does, the end time and end offset of the previous file, each if it is above 0."""
    if previous is None:
        return
    row = content[:_HEADER_LENGTH].view(INDEX_HEADER)
    if previous.end_phy_offset > 0:
        row["beginPhyOffset"] = row["endPhyOffset"] = previous.end_phy_offset
    if previous.end_timestamp > 0:
        row["beginTimestamp"] = row["endTimestamp"] = previous.end_timestamp


def index_keys(topic: str, properties: Mapping[str, str], sys_flag: int, *, with_tags: bool = False) -> list[str]:
    """The texts "topic#key" that IndexService.buildIndex puts for a message: UNIQ_KEY, then each of KEYS; none for a rolled back message.

    Args:
        topic: of the message.
        properties: of the message.
        sys_flag: of the message.
        with_tags: whether "topic#T#tag" follows: the value of BUILD_INDEX in the broker's version.
    """
    if sys_flag & TRANSACTION_ROLLBACK_TYPE == TRANSACTION_ROLLBACK_TYPE:
        return []
    keys = [properties[UNIQ_KEY]] if UNIQ_KEY in properties else []
    keys += [key for key in properties.get(KEYS, "").split(KEY_SEPARATOR) if key]
    tags = [f"T{_TYPE_SEPARATOR}{properties[TAGS]}"] if with_tags and properties.get(TAGS) else []
    return [f"{topic}#{key}" for key in (*keys, *tags)]


def key_hashes(keys: Sequence[str]) -> NDArray[np.int32]:
    """IndexFile.indexKeyHashMethod of each text "topic#key", from 0 to 2**31 - 1."""
    hashes = [abs(string_hash(key)) for key in keys]
    return np.array([0 if code > _INT_MAX else code for code in hashes], np.int32)


@compiled
def _put_key(content, slots, key_hash, phy_offset, stamp):  # type: ignore[no-untyped-def]
    count = max(int32_at(content, INDEX_COUNT_AT), np.int64(1))
    slot_at = _HEADER_LENGTH + key_hash % slots * 4
    previous = int32_at(content, slot_at)
    if previous <= 0 or previous > count:
        previous = np.int64(0)
    begin = int64_at(content, BEGIN_TIMESTAMP_AT)
    diff = np.int64(np.uint64(stamp) - np.uint64(begin))  # Java's longs wrap
    diff = min(diff // 1000, np.int64(_INT_MAX)) if begin > 0 and diff > 0 else np.int64(0)
    at = _HEADER_LENGTH + slots * 4 + count * _ENTRY_LENGTH
    put_int32(content, at, key_hash)
    put_int64(content, at + 4, phy_offset)
    put_int32(content, at + 12, diff)
    put_int32(content, at + 16, previous)
    put_int32(content, slot_at, count)
    if count <= 1:
        put_int64(content, _BEGIN_OFFSET, phy_offset)
        put_int64(content, BEGIN_TIMESTAMP_AT, stamp)
    if previous == 0:
        put_int32(content, _SLOT_COUNT, int32_at(content, _SLOT_COUNT) + 1)
    put_int32(content, INDEX_COUNT_AT, count + 1)
    put_int64(content, _END_OFFSET, phy_offset)
    put_int64(content, _END_TIMESTAMP, stamp)


@compiled
def _put_messages(content, slots, index_num, offsets, stamps, key_ends, hashes, message, key):  # type: ignore[no-untyped-def]
    while message < len(offsets):
        first = key_ends[message - 1] if message > 0 else np.int64(0)
        is_full = int32_at(content, INDEX_COUNT_AT) >= index_num
        if key == first:
            if is_full:  # the broker needs a file that is not full even for a message without keys
                return message, key
            if offsets[message] < int64_at(content, _END_OFFSET):
                key = key_ends[message]
        while key < key_ends[message]:
            if int32_at(content, INDEX_COUNT_AT) >= index_num:
                return message, key
            _put_key(content, slots, np.int64(hashes[key]), offsets[message], stamps[message])
            key += 1
        message += 1
    return message, key


@dataclass(frozen=True, slots=True)
class IndexedMessages:
    """Messages to be indexed, in the order of their dispatch: offset in the log and store timestamp (ms) of each.

    `hashes` are `key_hashes` of `index_keys` of all messages, one after the other; `key_ends` is the index past each message's last key.
    """

    offsets: NDArray[np.int64]
    stamps: NDArray[np.int64]
    key_ends: NDArray[np.int64]
    hashes: NDArray[np.int32]


def indexed_messages(messages: Sequence[tuple[int, int, Sequence[str]]]) -> IndexedMessages:
    """The IndexedMessages of messages given as (offset in the log, store timestamp in ms, `index_keys`)."""
    return IndexedMessages(
        offsets=np.array([offset for offset, _, _ in messages], np.int64),
        stamps=np.array([stamp for _, stamp, _ in messages], np.int64),
        key_ends=np.cumsum(np.array([len(keys) for _, _, keys in messages], np.int64)),
        hashes=key_hashes([key for _, _, keys in messages for key in keys]),
    )


def put_messages(file: IndexFile, messages: IndexedMessages, at: tuple[int, int]) -> tuple[int, int]:
    """Put messages into one file until it is full, beginning with the message and the key `at`.

    A message whose offset is below the file's end offset is skipped (it is indexed already); one at the end offset is indexed again.
    Returns the indices of the message and of the key to begin with in the next file; the numbers of messages and of keys if all are put.
    """
    parts = (messages.offsets, messages.stamps, messages.key_ends, messages.hashes)
    message, key = _put_messages(file.content, file.sizes.hash_slot_num, file.sizes.index_num, *parts, *at)
    return int(message), int(key)
