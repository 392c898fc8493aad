"""The index: a list of index files, of which the last one grows.

Broker source (4.9.3): IndexService.load, buildIndex, getAndCreateLastIndexFile, flush, queryOffset.
Rule: when a file is full, the next one is created and named by the wall clock; a search goes from the newest file to the oldest.
Surprises: a search ends at the first file that begins before the search's begin time, so chance decides whether files that were begun in
the same second are searched. Load after a kill deletes every file that ends after the checkpoint's index time; the last file nearly always
does. A message without keys can create the next file too. Load ignores files whose names are no number.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from store_format.big_endian import Bytes
from store_format.errors import StoreError
from store_format.index import index_file as ix
from store_format.index.index_search import select_phy_offsets

_LONG = re.compile(r"[+-]?\d{1,40}")  # Long.parseLong accepts the decimal digits of every script
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_CLOCK_MAX = 8000 * 365 * 86_400_000  # ms; the year then has four digits


def is_index_file_name(name: str) -> bool:
    """Whether load reads a file of this name as an index file: any long is a name; the broker's names are date and time in 17 digits."""
    return _LONG.fullmatch(name) is not None and -(2**63) <= int(name) < 2**63


def index_file_name(clock_ms: int) -> str:
    """UtilAll.timeMillisToHumanString of a time in UTC; the broker uses its own time zone."""
    time = _EPOCH + dt.timedelta(milliseconds=clock_ms)
    return f"{time:%Y%m%d%H%M%S}{time.microsecond // 1000:03d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedIndex:
    """The result of IndexService.load: the files in order, and the names of the deleted files."""

    files: tuple[ix.IndexFile, ...]
    deleted: tuple[str, ...]


def load_index(
    entries: Sequence[tuple[str, Bytes]],
    sizes: ix.IndexSizes,
    *,
    last_exit_ok: bool = True,
    index_msg_timestamp: int = 0,
    writable: bool = False,
) -> LoadedIndex:
    """IndexService.load of the files in the index folder, given as name and bytes; a longer file is cut, zeros follow a shorter one.

    After a kill (the store has an abort file), files that end after the checkpoint's index time `index_msg_timestamp` (ms) are deleted.
    If keys will be put into the files (`writable`), their bytes are copied.
    """
    files, deleted = [], []
    for name, content in sorted(entries, key=lambda entry: entry[0]):
        if not is_index_file_name(name):
            continue
        mapped = ix.mapped_content(content, sizes)
        if not last_exit_ok and ix.IndexFile(name, mapped, sizes).header.end_timestamp > index_msg_timestamp:
            deleted.append(name)
        else:
            files.append(ix.IndexFile(name, ix.mapped_content(content, sizes, writable=True) if writable else mapped, sizes))
    return LoadedIndex(files=tuple(files), deleted=tuple(deleted))


@dataclass(slots=True, kw_only=True)
class IndexService:
    """The index while messages are dispatched.

    `files` are the loaded files, then the created ones, whose names are `created`; the content of the last one must be writable.
    `index_msg_timestamp` is the time that flushing a full file sets in the checkpoint, ms; None while no file was flushed. `clock` turns
    the store timestamp of the message that needs a new file into the wall clock time that names the file, both ms. `new_content` returns
    the zeros of a new file, by its name and length.
    """

    sizes: ix.IndexSizes
    files: list[ix.IndexFile] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    index_msg_timestamp: int | None = None
    clock: Callable[[int], int] = lambda store_timestamp: min(max(store_timestamp, 0), _CLOCK_MAX)
    new_content: Callable[[str, int], Bytes] = lambda _name, length: np.zeros(length, np.uint8)

    def build_index(self, messages: ix.IndexedMessages) -> None:
        """IndexService.buildIndex for each message in order; creates the next file when one is full.

        Raises:
            StoreError: `sizes` are unusable, and the broker cannot put a key.
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
            at = ix.put_messages(self.files[-1], messages, at)

    def _create(self, store_timestamp: int) -> None:
        previous = self.files[-1].header if self.files else None
        clock_ms = self.clock(store_timestamp)
        names = {file.name for file in self.files}
        while (name := index_file_name(clock_ms)) in names:
            clock_ms += 1
        content = self.new_content(name, self.sizes.file_length)
        ix.fill_header(content, previous)
        self.files.append(ix.IndexFile(name, content, self.sizes))
        self.created.append(name)
        if previous is not None and previous.end_timestamp > 0:
            self.index_msg_timestamp = previous.end_timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOffsetResult:
    """The result of a search: offsets in the log, newest first by file and entry, and the last file's end time (ms) and end offset."""

    phy_offsets: tuple[int, ...]
    index_last_update_timestamp: int
    index_last_update_phyoffset: int


def is_time_matched(header: ix.IndexHeader, begin: int, end: int) -> bool:
    """IndexFile.isTimeMatched: whether a file's times overlap the times from `begin` to `end`, ms."""
    first, last = header.begin_timestamp, header.end_timestamp
    return (begin < first and end > last) or first <= begin <= last or first <= end <= last


def query_offset(files: Sequence[ix.IndexFile], topic: str, key: str, max_num: int, begin: int, end: int) -> QueryOffsetResult:
    """IndexService.queryOffset: the offsets of messages of a topic with a key, stored between two times (`begin` and `end`, ms).

    `files` are those of the index, oldest first; `max_num` offsets are returned at most.
    """
    found = np.empty(max(max_num, 0), np.int64)
    key_hash = int(ix.key_hashes([f"{topic}#{key}"])[0])
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
