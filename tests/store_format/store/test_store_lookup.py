"""Look-ups, compared with the broker's classes in plain form (tests/models/java_lookup.py), over logs and queues with any damage."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from store_format.files.mapped_files import MappedFile, offset_to_file_name
from store_format.index.index_file import IndexSizes, indexed_messages
from store_format.index.index_service import IndexService
from store_format.record.message import encode
from store_format.store.lookup import NO_TIME, CommitLogLookup, LoadedFiles, MappedFiles, QueueLookup, ThrownError
from store_format.store.query_message import query_message
from tests.makers.records import messages
from tests.models.java_lookup import JavaError, JavaFile, JavaFiles, JavaLog, JavaQueue
from tests.runs.sampling import examples

LOG_FILE = 300
RECORD = 70  # as little as a record that has a store timestamp


def record(size: int, stamp: int, *, is_v6: bool = False) -> bytes:
    """Bytes that have a size and a store timestamp at the places of a record."""
    raw = bytearray(struct.pack(">i", size) + bytes(RECORD + 6))
    struct.pack_into(">i", raw, 36, 0x10 if is_v6 else 0)
    struct.pack_into(">q", raw, 68 if is_v6 else 56, stamp)
    return bytes(raw[: max(RECORD, 76 if is_v6 else RECORD)])


def ours(java: JavaFiles) -> MappedFiles:
    contents = {offset_to_file_name(file.start): np.frombuffer(file.raw, np.uint8) for file in java.files}
    files = tuple(
        MappedFile(name=offset_to_file_name(file.start), from_offset=file.start, length=java.size, wrote=file.wrote, mtime_ms=file.mtime)
        for file in java.files
    )
    return MappedFiles(files, lambda file: contents[file.name])


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except JavaError as error:
        return f"throws {error.args[0]}"
    except ThrownError as error:
        return f"throws {error.java_class}"


STAMPS = st.one_of(st.integers(0, 30), st.sampled_from([-1, -(2**63), 2**63 - 1]))
RECORD_SIZES = st.one_of(st.just(RECORD), st.sampled_from([-1, 0, 3, 40, 63, 64, 76, LOG_FILE, 2**31 - 1, 2**31 - 100, -(2**31)]))


@st.composite
def logs(draw: st.DrawFn) -> JavaLog:
    """A log of files of four records with any sizes and times. The last file is partly in use; the first and another one may be missing."""
    first, count = draw(st.integers(0, 2)), draw(st.integers(0, 4))
    files = []
    for number in range(first, first + count):
        parts = [record(draw(RECORD_SIZES), draw(STAMPS), is_v6=draw(st.booleans()))[:RECORD] for _ in range(4)]
        files.append(JavaFile(number * LOG_FILE, b"".join(parts).ljust(LOG_FILE, b"\0"), LOG_FILE))
    if files:
        files[-1].wrote = draw(st.integers(0, LOG_FILE))
    missing = draw(st.sampled_from([None, None, 1]))
    return JavaLog(JavaFiles(LOG_FILE, [file for number, file in enumerate(files) if number != missing]))


@st.composite
def queues(draw: st.DrawFn) -> JavaQueue:
    """Queues whose entries mostly lead to records, in order of time or not."""
    log = draw(logs())
    entries_a_file, first, count = draw(st.integers(1, 6)), draw(st.integers(0, 2)), draw(st.integers(0, 3))
    offsets = st.integers(0, 7 * LOG_FILE // RECORD).map(lambda number: number // 4 * LOG_FILE + number % 4 * RECORD)
    offsets = st.one_of(offsets, offsets, st.sampled_from([0, -1, 5, 2**62]))
    files, size = [], entries_a_file * 20
    for number in range(first, first + count):
        units = [(draw(offsets), draw(st.one_of(st.just(RECORD), RECORD_SIZES)), 0) for _ in range(entries_a_file)]
        units = sorted(units) if draw(st.booleans()) else units
        raw = b"".join(struct.pack(">qiq", *unit) for unit in units)
        files.append(JavaFile(number * size, raw, size, draw(st.integers(0, 30))))
    if files:
        files[-1].wrote = 20 * draw(st.integers(0, entries_a_file))
    return JavaQueue(JavaFiles(size, files), 20 * draw(st.integers(0, 12)), log)


@settings(max_examples=examples(500))
@given(queues(), st.lists(STAMPS, min_size=1, max_size=5), st.lists(st.integers(-3, 20), max_size=4))
def test_a_queue_answers_by_time_and_by_offset_as_java_does(java: JavaQueue, stamps: list[int], offsets: list[int]) -> None:
    log = CommitLogLookup(ours(java.log.mapped))
    queue = QueueLookup(ours(java.mapped), java.min_logic_offset)
    for stamp in stamps:
        assert outcome(partial(queue.offset_by_time, stamp, log)) == outcome(partial(java.offset_by_time, stamp))
    for offset in [*offsets, 2**63 - 1, -(2**63), 2**62, 2**63 // 20, 2**64 // 20 + 1, (2**64 + 4) // 20]:
        assert queue.message_store_time(offset, log) == java.message_store_time(offset)
        assert outcome(partial(queue.commit_log_offset, offset)) == outcome(partial(java.commit_log_offset, offset))
    assert queue.earliest_message_time(log) == java.message_store_time(java.min_logic_offset // 20)


@settings(max_examples=examples(400))
@given(logs(), st.lists(st.integers(-5, 5 * LOG_FILE), max_size=8), st.integers(-5, 2**31 - 1))
@example(JavaLog(JavaFiles(LOG_FILE, [])), [0], 1)
def test_the_log_gives_what_java_gives(java: JavaLog, offsets: list[int], max_message_size: int) -> None:
    log = CommitLogLookup(ours(java.mapped))
    ends = [file.start + file.wrote for file in java.mapped.files]
    for offset in [*offsets, 0, *(end + step for end in ends for step in (-4, -3, -1, 0)), *(file.start for file in java.mapped.files)]:
        selected = outcome(partial(log.select_one_message, offset))
        found = selected if selected is None or isinstance(selected, str) else (selected.start_offset, selected.content.tobytes())
        assert found == outcome(partial(java.select_one, offset))
        for size in (0, -1, 40, RECORD, 2**31 - 1, 2**31 - 1 - LOG_FILE):
            picked = outcome(partial(log.pickup_store_timestamp, offset, size))
            assert picked == outcome(partial(java.pickup, offset, size))
    twice = (max_message_size * 2 + 2**31) % 2**32 - 2**31
    assert outcome(lambda: log.earliest_message_time(max_message_size)) == outcome(lambda: java.pickup(java.min_offset(), twice))


@given(messages(), st.data())
def test_a_message_is_looked_up_in_a_log_cut_at_every_byte(message: Any, data: st.DataObject) -> None:
    raw = encode(message)
    for cut in range(len(raw) + 1):
        log = CommitLogLookup(ours(JavaFiles(len(raw), [JavaFile(0, raw, cut)])))
        assert log.look_message(0) == (None if cut < len(raw) else replace(message, store_size=len(raw)))
    junk = data.draw(st.binary(min_size=1, max_size=200))
    log = CommitLogLookup(ours(JavaFiles(len(junk), [JavaFile(0, junk, len(junk))])))
    for offset in range(len(junk)):
        outcome(partial(log.look_message, offset))


def keyed(stamps: list[int], sizes: list[int] | None = None, *, key: str = "k") -> tuple[IndexService, CommitLogLookup]:
    """An index of messages with one key, two entries a file, and a log that has each message with its size."""
    offsets = [number * 100 for number in range(len(stamps))]
    raw = bytearray(100 * len(stamps))
    for offset, stamp, size in zip(offsets, stamps, sizes or [95] * len(stamps), strict=True):
        raw[offset : offset + RECORD] = record(size, stamp)[:RECORD]
    service = IndexService(sizes=IndexSizes(hash_slot_num=3, index_num=3))
    service.build_index(indexed_messages([(offset, stamp, [f"T#{key}"]) for offset, stamp in zip(offsets, stamps, strict=True)]))
    return service, CommitLogLookup(ours(JavaFiles(len(raw), [JavaFile(0, bytes(raw), len(raw))])))


def found(
    service: IndexService, log: CommitLogLookup, *, begin: int = 0, end: int = 2**63 - 1, wanted: int = 64, batch: int = 64
) -> list[int]:
    result = query_message(service.files, log, "T", "k", wanted, begin, end, batch=batch)
    return [message.start_offset for message in result.messages]


def test_messages_of_a_key_come_in_order_of_their_offsets_and_no_more_than_wanted() -> None:
    service, log = keyed([1000, 2000, 3000, 4000, 5000])
    assert found(service, log) == [0, 100, 200, 300, 400]
    assert found(service, log, wanted=3) == [200, 300, 400]
    assert found(service, log, batch=2) == [300, 400]
    assert found(service, log, wanted=0) == found(service, log, batch=-1) == []


def test_exact_times_can_miss_a_message_for_seconds_are_compared() -> None:
    service, log = keyed([1000, 2500])
    assert found(service, log, begin=2500, end=2500) == []
    assert found(service, log, begin=2000, end=2500) == [100]


def test_a_search_ends_at_the_first_file_that_begins_before_the_time_asked_for() -> None:
    service, log = keyed([9000, 9000, 500, 500, 6000])
    assert found(service, log) == [0, 100, 200, 300, 400]
    assert found(service, log, begin=1000) == [400]


def test_the_first_message_of_a_later_file_is_found_later_than_it_was_stored() -> None:
    service, log = keyed([1000, 2000, 3000, 4000])
    assert found(service, log, begin=2001) == [200, 300]
    assert found(service, log, begin=3001, end=3999) == []
    assert found(service, log, begin=4000) == [200, 300]


def test_what_cannot_be_read_is_left_out_and_a_search_is_made_again() -> None:
    service, log = keyed([1000, 2000, 3000], sizes=[95, -1, 95])
    assert found(service, log) == [0, 200]
    # the message at the least offset is not readable: the others are given all the same
    service, log = keyed([1000, 2000, 3000], sizes=[-1, 95, 95])
    assert found(service, log) == [100, 200]


def test_a_negative_number_of_messages_throws() -> None:
    service, log = keyed([1000])
    with pytest.raises(ThrownError, match=r"java\.lang\.IllegalArgumentException"):
        found(service, log, wanted=-1)


def test_an_unknown_queue_is_an_empty_one() -> None:
    log = CommitLogLookup(MappedFiles((), lambda _: np.zeros(0, np.uint8)))
    queue = LoadedFiles(log=log, queues={}).queue("T", 7)
    assert (queue.min_offset, queue.max_offset, queue.offset_by_time(5, log)) == (0, 0, 0)
    assert (queue.message_store_time(0, log), queue.commit_log_offset(0)) == (NO_TIME, 0)
