"""A store whose writer died: cut at every byte of the last 8 KiB written, it recovers to the longest prefix of good records.

Cut means that the bytes after it were never written, and are zeros. The expected values come from the bytes alone, by struct and zlib.
Surprise: a record is good if its lengths add up and its body has the CRC that it names. So a record that was cut in its properties stays,
with zeros for properties.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from pipeline.files.store_files import StoreFiles
from pipeline.settings.settings import BrokerSettings
from pipeline.store.message_store import store_over
from pipeline.store.store_settings import store_settings
from store_format.big_endian import Bytes
from store_format.files.changed_files import FileChange
from store_format.files.mapped_files import MappedFile, max_offset
from store_format.log.dispatch_request import DispatchRequests
from store_format.queue import consume_queue as cq
from store_format.store.recover_abnormally import recover_abnormally, walk_and_dispatch
from store_format.store.recovery import FileWalk, files_to_walk, recover_normally
from tests.runs.sampling import sampled
from tests.truth.golden import unpack_small

WRITTEN = 8192
RECORD, BLANK = bytes.fromhex("daa320a7"), bytes.fromhex("cbd43194")


@dataclass(frozen=True)
class Log:
    """The commit log of the small store.

    Attributes:
        raw: its files, one after the other.
        size: bytes of a file.
        edges: the positions at which records and blanks begin, and last the end of the log.
    """

    raw: bytes
    size: int
    edges: tuple[int, ...]

    @property
    def end(self) -> int:
        return self.edges[-1]

    def cut(self, at: int) -> bytes:
        return self.raw[:at].ljust(len(self.raw), b"\0")

    def longest_prefix(self, at: int) -> int:
        """The position at which the log ends if all bytes from `at` on are zeros."""
        before = max(edge for edge in self.edges if edge <= at)
        return next_edge(self.cut(at), before, self.size) or before


def next_edge(raw: bytes, at: int, size: int) -> int:
    """The position at which the good record or the blank at `at` ends; 0 if there is none."""
    length: int
    length, magic, crc = struct.unpack_from(">i4si", raw, at)
    if magic == BLANK:
        return (at // size + 1) * size
    if magic != RECORD:
        return 0
    body_at = at + 72 + sum(20 if raw[at + 39] & flag else 8 for flag in (16, 32))
    (body,) = struct.unpack_from(">i", raw, body_at - 4)
    topic_at = body_at + body
    properties_at = topic_at + 1 + raw[topic_at]
    (properties,) = struct.unpack_from(">h", raw, properties_at)
    if properties_at + 2 + properties != at + length or (body and zlib.crc32(raw[body_at:topic_at]) & 0x7FFFFFFF != crc):
        return 0
    return at + length


def edges_of(raw: bytes, size: int) -> Iterator[int]:
    at = 0
    while True:
        yield at
        after = next_edge(raw, at, size)
        if not after:
            return
        at = after


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    files = sorted((unpack_small(tmp_path_factory.mktemp("cut")) / "commitlog").iterdir())
    raw = b"".join(path.read_bytes() for path in files)
    size = len(raw) // len(files)
    return Log(raw, size, tuple(edges_of(raw, size)))


def files_of(log: Log) -> tuple[MappedFile, ...]:
    return tuple(
        MappedFile(name=f"{start:020d}", from_offset=start, length=log.size, wrote=log.size) for start in range(0, len(log.raw), log.size)
    )


def recovered(log: Log, at: int, *, last_exit_ok: bool) -> int:
    """The position at which the log ends after the broker's load."""
    content = np.frombuffer(log.cut(at), np.uint8)
    files = files_of(log)

    def read(file: MappedFile) -> Bytes:
        return content[file.from_offset : file.end]

    if not last_exit_ok:
        dispatched: list[int] = []

        def dispatch(requests: DispatchRequests) -> None:
            dispatched.extend((requests.physic_offset + requests.size).tolist())

        end = recover_abnormally(files, read, dispatch, min_timestamp=2**62, check_crc=True).max_offset
        if dispatched:
            assert dispatched[-1] == end or log.raw[dispatched[-1] + 4 : dispatched[-1] + 8] == BLANK
        else:
            assert end % log.size == 0, "a file with a record is walked, and its records are dispatched again"
        return end

    def walk(file: MappedFile) -> FileWalk:
        stop, ended = walk_and_dispatch(read(file), 0, file.length, None, None, check_crc=True)
        return FileWalk(name=file.name, end=stop, ended=ended)

    return recover_normally(files, (walk(file) for file in files_to_walk(files))).max_offset


@pytest.mark.parametrize("last_exit_ok", [True, False], ids=["shut down", "killed"])
def test_a_log_cut_anywhere_ends_behind_its_last_good_record(log: Log, last_exit_ok: bool) -> None:
    cuts = [log.end - back for back in sampled(range(WRITTEN + 1), 700)]
    ends = {at: (recovered(log, at, last_exit_ok=last_exit_ok), log.longest_prefix(at)) for at in cuts}
    assert {at: both for at, both in ends.items() if both[0] != both[1]} == {}


def test_a_log_cut_about_the_end_of_a_file_ends_there_too(log: Log) -> None:
    border = log.end // log.size * log.size
    cuts = [border + step for step in sampled(range(-WRITTEN // 2, WRITTEN // 2), 300)] + [border + step for step in range(-20, 20)]
    for last_exit_ok in (True, False):
        ends = {at: (recovered(log, at, last_exit_ok=last_exit_ok), log.longest_prefix(at)) for at in cuts}
        assert {at: both for at, both in ends.items() if both[0] != both[1]} == {}


@pytest.fixture(scope="module")
def units() -> bytes:
    """As many entries as 8 KiB have, of messages that follow each other."""
    return b"".join(struct.pack(">qiq", 1000 + 256 * number, 256, -number) for number in range(WRITTEN // 20))


def good_units(raw: bytes, log_end: int | None = None) -> int:
    """The number of entries before the first one at which load ends the queue: no size, negative offset, or message past the log's end."""
    for number, (offset, size, _) in enumerate(struct.iter_unpack(">qiq", raw)):
        if size <= 0 or offset < 0 or (log_end is not None and offset >= log_end):
            return number
    return len(raw) // 20


def test_a_queue_cut_anywhere_ends_behind_its_last_good_entry(units: bytes) -> None:
    length = len(units) + 2000
    for at in sampled(range(len(units) + 1), 1500):
        raw = units[:at].ljust(length, b"\0")
        content = cq.units_of(np.frombuffer(raw, np.uint8))
        file = MappedFile(name=f"{0:020d}", from_offset=0, length=length, wrote=length)
        found = cq.recover([file], lambda _, content=content: content)  # type: ignore[misc]
        assert found.max_offset == good_units(raw)
        if found.max_offset > 1:
            end = struct.unpack_from(">q", raw, 20 * (found.max_offset - 1))[0]
            cut = cq.truncate_dirty_logic_files(found, end, lambda _, content=content: content)  # type: ignore[misc]
            assert cut.max_offset == good_units(raw, end)


@pytest.mark.parametrize("killed", [False, True])
def test_a_store_whose_log_was_cut_keeps_the_entries_of_what_is_left(log: Log, small_store: Path, killed: bool) -> None:
    entries: dict[tuple[str, ...], list[int]] = {}
    for path in sorted((small_store / "consumequeue").glob("*/*/*")):
        found = [offset for offset, size, _ in struct.iter_unpack(">qiq", path.read_bytes()) if size > 0]
        entries.setdefault(path.parts[-3:-1], []).extend(found)
    files = StoreFiles(str(small_store))
    for at in sampled([log.end - back for back in range(WRITTEN + 1)], 60):
        zeros = np.zeros(len(log.raw) - at, np.uint8)
        start = at // log.size * log.size
        zeroed = FileChange(length=log.size, is_new=False, ranges=[(at - start, zeros[: log.size])])
        changes: dict[tuple[str, ...], FileChange] = {("commitlog", f"{start:020d}"): zeroed}
        if killed:
            changes["abort",] = FileChange(length=0, is_new=True)
        cut = files.changed(changes, frozenset())
        broker = store_over(cut, store_settings(cut, BrokerSettings.from_sources(options=["maxHashSlotNum=100", "maxIndexNum=600"])))
        assert broker.load()
        end = log.longest_prefix(at)
        assert max_offset(broker.log_files) == end
        for (topic, queue_id), queue in broker.queues.items():
            left = [offset for offset in entries[topic, str(queue_id)] if offset < end]
            assert queue.max_offset == len(left), (at, topic, queue_id)
