"""The index: a list of index files, of which the last one grows.

Broker source (4.9.3): IndexService.load, buildIndex, getAndCreateLastIndexFile, flush, queryOffset.
Rule: a file that is full is followed by one named by the wall clock; a search goes from the newest file to the oldest.
Surprises: a search ends at the first file that begins before the time asked for, so that files begun in the same second are passed over
or not by chance. Loaded after a kill, every file that ends after the checkpoint's index time is deleted, which the last one nearly always
does. A message without keys makes the next file too. Names that are no number are passed over without being touched.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from store_format.big_endian import Bytes
from store_format.errors import StoreError
from store_format.index.index_file import (
    IndexedMessages,
    IndexFile,
    IndexHeader,
    IndexSizes,
    fill_header,
    key_hashes,
    mapped_content,
    put_messages,
)
from store_format.index.index_search import select_phy_offsets

_LONG = re.compile(r"[+-]?\d{1,40}")  # Long.parseLong, which takes the digits of every script
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_CLOCK_MAX = 8000 * 365 * 86_400_000  # a clock whose years have four digits


def is_index_file_name(name: str) -> bool:
    """Whether load takes a name for an index file: any long; the broker's own are a date and time of 17 digits."""
    return _LONG.fullmatch(name) is not None and -(2**63) <= int(name) < 2**63


def index_file_name(clock_ms: int) -> str:
    """UtilAll.timeMillisToHumanString of a clock in UTC; the broker takes its own time zone."""
    time = _EPOCH + dt.timedelta(milliseconds=clock_ms)
    return f"{time:%Y%m%d%H%M%S}{time.microsecond // 1000:03d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedIndex:
    """What IndexService.load makes of the folder: files in order, and the names of those it deletes."""

    files: tuple[IndexFile, ...]
    deleted: tuple[str, ...]


def load_index(
    entries: Sequence[tuple[str, Bytes]],
    sizes: IndexSizes,
    *,
    last_exit_ok: bool = True,
    index_msg_timestamp: int = 0,
    writable: bool = False,
) -> LoadedIndex:
    """IndexService.load.

    Args:
        entries: name and bytes of each file of the folder.
        sizes: settings; a file of another length is taken as cut or followed by zeros.
        last_exit_ok: whether there was no abort file.
        index_msg_timestamp: that of the checkpoint; matters only after a kill.
        writable: whether keys will be put into the files; their bytes are then copied.
    """
    files, deleted = [], []
    for name, content in sorted(entries, key=lambda entry: entry[0]):
        if not is_index_file_name(name):
            continue
        mapped = mapped_content(content, sizes)
        if not last_exit_ok and IndexFile(name, mapped, sizes).header.end_timestamp > index_msg_timestamp:
            deleted.append(name)
        else:
            files.append(IndexFile(name, mapped_content(content, sizes, writable=True) if writable else mapped, sizes))
    return LoadedIndex(files=tuple(files), deleted=tuple(deleted))


def _new_zeros(_name: str, length: int) -> Bytes:
    return np.zeros(length, np.uint8)


def _same_time(store_timestamp: int) -> int:
    return min(max(store_timestamp, 0), _CLOCK_MAX)


@dataclass(slots=True, kw_only=True)
class IndexService:
    """The index while messages are dispatched.

    Attributes:
        sizes: settings.
        files: those loaded, then those created; writable where they may grow.
        created: names of those created.
        index_msg_timestamp: what flushing full files sets in the checkpoint, None where none was flushed.
        clock: wall clock, ms, by the store timestamp of the message that needs a file; gives the file its name.
        new_content: the zeros of a new file of a name and length.
    """

    sizes: IndexSizes
    files: list[IndexFile] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    index_msg_timestamp: int | None = None
    clock: Callable[[int], int] = _same_time
    new_content: Callable[[str, int], Bytes] = _new_zeros

    def build_index(self, messages: IndexedMessages) -> None:
        """IndexService.buildIndex for each message in turn, rolling over files.

        Raises:
            StoreError: sizes with which the broker cannot put a key.
        """
        if not self.sizes.are_usable:
            raise StoreError(
                "index",
                "maxHashSlotNum of 1 or more, maxIndexNum of 2 or more, and index files below 2 GiB",
                f"{self.sizes.hash_slot_num} and {self.sizes.index_num}",
            )
        at = (0, 0)
        while at[0] < len(messages.offsets):
            if not self.files or self.files[-1].is_write_full:
                self._create(int(messages.stamps[at[0]]))
            at = put_messages(self.files[-1], messages, at)

    def _create(self, store_timestamp: int) -> None:
        previous = self.files[-1].header if self.files else None
        clock_ms = self.clock(store_timestamp)
        names = {file.name for file in self.files}
        while (name := index_file_name(clock_ms)) in names:
            clock_ms += 1
        content = self.new_content(name, self.sizes.file_length)
        fill_header(content, previous)
        self.files.append(IndexFile(name, content, self.sizes))
        self.created.append(name)
        if previous is not None and previous.end_timestamp > 0:
            self.index_msg_timestamp = previous.end_timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOffsetResult:
    """Offsets in the log, those of the newest file first, each file's newest first; and the end of the last file."""

    phy_offsets: tuple[int, ...]
    index_last_update_timestamp: int
    index_last_update_phyoffset: int


def is_time_matched(header: IndexHeader, begin: int, end: int) -> bool:
    """IndexFile.isTimeMatched."""
    first, last = header.begin_timestamp, header.end_timestamp
    return (begin < first and end > last) or first <= begin <= last or first <= end <= last


def query_offset(files: Sequence[IndexFile], topic: str, key: str, max_num: int, begin: int, end: int) -> QueryOffsetResult:
    """IndexService.queryOffset.

    Args:
        files: of the index, oldest first.
        topic: of the message.
        key: one of its keys.
        max_num: how many are wanted at most; no more than the setting maxMsgsNumBatch, 0 or more.
        begin: least store timestamp, ms.
        end: greatest store timestamp, ms.
    """
    found = np.empty(max(max_num, 0), np.int64)
    key_hash = int(key_hashes([f"{topic}#{key}"])[0])
    count = 0
    for file in reversed(files):
        header = file.header
        if is_time_matched(header, begin, end):
            count = select_phy_offsets(file, key_hash, begin, end, found, count)
        if header.begin_timestamp < begin or count >= max_num:
            break
    last = files[-1].header if files else None
    return QueryOffsetResult(
        phy_offsets=tuple(found[:count].tolist()),
        index_last_update_timestamp=last.end_timestamp if last else 0,
        index_last_update_phyoffset=last.end_phy_offset if last else 0,
    )
