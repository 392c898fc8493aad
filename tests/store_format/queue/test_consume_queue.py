"""Recovery of consume queues, compared entry by entry with ConsumeQueue.java in plain Python, over queues with any damage."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from store_format.files.mapped_files import MappedFile, load, offset_to_file_name
from store_format.layout import CQ_UNIT, PRE_BLANK
from store_format.queue import consume_queue as cq
from tests.runs.sampling import examples

UNIT = 20
Unit = tuple[int, int, int]
Queue = list[tuple[int, list[Unit]]]  # (number of the file, its entries)


@dataclass
class JavaFile:
    """A MappedFile: where it starts, its bytes, how many are in use."""

    start: int
    content: bytes
    wrote: int


def java_long(number: int) -> int:
    """A number as Java's long holds it: its lowest 64 bits, with a sign."""
    return (number + 2**63) % 2**64 - 2**63


@dataclass
class JavaQueue:
    """ConsumeQueue with its MappedFileQueue, after load."""

    size: int
    files: list[JavaFile] = field(default_factory=list)
    max_physic_offset: int = -1
    min_logic_offset: int = 0

    def entry(self, file: JavaFile, at: int) -> tuple[int, int]:
        offset, size, _ = struct.unpack_from(">qiq", file.content, at)
        return offset, size

    def truncate_dirty_files(self, where: int) -> None:
        kept = []
        for file in self.files:
            tail = file.start + self.size
            if tail <= where:
                kept.append(file)
            elif where >= file.start:
                file.wrote = where % self.size
                kept.append(file)
        self.files = kept

    def recover(self) -> None:
        if not self.files:
            return
        index = len(self.files) - 3
        if index < 0:
            index = 0
        while True:
            file = self.files[index]
            file_offset = 0
            at = 0
            while at < self.size:
                offset, size = self.entry(file, at)
                if offset < 0 or size <= 0:
                    break
                file_offset = at + UNIT
                self.max_physic_offset = java_long(offset + size)
                at += UNIT
            if file_offset != self.size:
                break
            index += 1
            if index >= len(self.files):
                break
        self.truncate_dirty_files(file.start + file_offset)

    def truncate_dirty_logic_files(self, physic_offset: int) -> None:
        self.max_physic_offset = physic_offset
        while self.files:
            file = self.files[-1]
            file.wrote = 0
            at = 0
            while at < self.size:
                offset, size = self.entry(file, at)
                if at == 0:
                    if offset >= physic_offset:
                        self.files.pop()
                        break
                else:
                    if offset < 0 or size <= 0:
                        return
                    if offset >= physic_offset:
                        return
                file.wrote = at + UNIT
                self.max_physic_offset = java_long(offset + size)
                if at > 0 and at + UNIT == self.size:
                    return
                at += UNIT

    def correct_min_offset(self, physic_min: int) -> None:
        if not self.files or self.files[0].wrote <= 0:
            return
        at = 0
        while at < self.files[0].wrote:
            if self.entry(self.files[0], at)[0] >= physic_min:
                self.min_logic_offset = self.files[0].start + at
                return
            at += UNIT

    def max_offset(self) -> int:
        return (self.files[-1].start + self.files[-1].wrote) // UNIT if self.files else 0

    def state(self) -> tuple[list[tuple[int, int]], int, int]:
        return [(file.start, file.wrote) for file in self.files], self.max_offset(), self.max_physic_offset


def content_of(units: list[Unit]) -> bytes:
    return b"".join(struct.pack(">qiq", *unit) for unit in units)


class Ours:
    """The same queue, recovered by the code under test."""

    def __init__(self, queue: Queue, entries_a_file: int) -> None:
        size = entries_a_file * UNIT
        names = [(offset_to_file_name(number * size), size, 0) for number, _ in queue]
        self.contents = {name: content_of(units) for (name, _, _), (_, units) in zip(names, queue, strict=True)}
        self.files = load("queue", names, size)

    def read(self, file: MappedFile) -> cq.Units:
        return cq.units_of(np.frombuffer(self.contents[file.name], np.uint8))


def java_queue(queue: Queue, entries_a_file: int) -> JavaQueue:
    size = entries_a_file * UNIT
    return JavaQueue(size, [JavaFile(number * size, content_of(units), size) for number, units in queue])


def state_of(queue: cq.RecoveredQueue) -> tuple[list[tuple[int, int]], int, int]:
    return [(file.from_offset, file.wrote) for file in queue.files], queue.max_offset, queue.max_physic_offset


OFFSETS = st.integers(0, 400)
ODD_UNITS = st.one_of(
    st.just((0, 0, 0)),
    st.just(PRE_BLANK),
    st.tuples(st.integers(-3, 400), st.integers(-2, 100), st.just(0)),
    st.tuples(st.sampled_from([-(2**63), -1, 2**63 - 1, 2**63 - 50]), st.sampled_from([1, 100, 2**31 - 1, -(2**31)]), st.just(-1)),
)


@st.composite
def queues(draw: st.DrawFn) -> tuple[Queue, int]:
    """Queue files whose entries mostly rise, with wrong entries, pre-blanks at the start, an unwritten end, and missing files."""
    entries_a_file = draw(st.integers(2, 5))
    first, count = draw(st.integers(0, 2)), draw(st.integers(0, 6))
    total = count * entries_a_file
    units: list[Unit] = [(10 * i, draw(st.sampled_from([10, 10, 7])), i) for i in range(total)]
    for at in draw(st.lists(st.integers(0, max(total - 1, 0)), max_size=4)) if total else []:
        units[at] = draw(ODD_UNITS)
    pre_blank = draw(st.sampled_from([0, 0, 1, 3, 7]))
    units[:pre_blank] = [PRE_BLANK] * min(pre_blank, total)
    written = draw(st.integers(0, total) | st.just(total))
    units[written:] = [(0, 0, 0)] * (total - written)
    files = [(first + i, units[i * entries_a_file : (i + 1) * entries_a_file]) for i in range(count)]
    missing = draw(st.sets(st.integers(0, 5), max_size=2)) if draw(st.booleans()) else set()
    return [file for i, file in enumerate(files) if i not in missing], entries_a_file


@given(queues(), OFFSETS, OFFSETS, st.integers(0, 9))
@settings(max_examples=examples(600))
@example(([(0, [(0, 10, 0), (10, 10, 0)])], 2), 0, 0, 0)
@example(([(0, [(5, 0, 0), (0, 0, 0)])], 2), 400, 0, 3)
@example(([(0, [(0, 10, 0), (10, 10, 0)]), (1, [(0, 0, 0), (0, 0, 0)])], 2), 400, 0, 0)
@example(([(1, [PRE_BLANK, PRE_BLANK]), (2, [PRE_BLANK, (90, 9, 9)])], 2), 99, 50, 7)
@example(([(0, [(2**63 - 1, 1, 0), (0, 0, 0)])], 2), 400, 0, 0)
@example(([(0, [(-(2**63), -1, 0), (10, 10, 1)])], 2), 0, 0, 0)
def test_a_load_leaves_a_queue_as_the_broker_does(case: tuple[Queue, int], log_end: int, log_min: int, former: int) -> None:
    queue, entries_a_file = case
    java, ours = java_queue(queue, entries_a_file), Ours(queue, entries_a_file)

    java.recover()
    recovered = cq.recover(ours.files, ours.read)
    assert state_of(recovered) == java.state()
    java.min_logic_offset = former * UNIT
    java.correct_min_offset(log_min)
    assert cq.correct_min_offset(recovered.files, log_min, ours.read, former) == java.min_logic_offset // UNIT

    java.truncate_dirty_logic_files(log_end)
    truncated = cq.truncate_dirty_logic_files(recovered, log_end, ours.read)
    assert state_of(truncated) == java.state()
    java.min_logic_offset = 0
    java.correct_min_offset(log_min)
    assert cq.correct_min_offset(truncated.files, log_min, ours.read) == java.min_logic_offset // UNIT


@given(queues(), OFFSETS)
def test_truncating_twice_changes_nothing_more(case: tuple[Queue, int], log_end: int) -> None:
    queue, entries_a_file = case
    ours = Ours(queue, entries_a_file)
    once = cq.truncate_dirty_logic_files(cq.recover(ours.files, ours.read), log_end, ours.read)
    assume(once.files)
    assert state_of(cq.truncate_dirty_logic_files(once, log_end, ours.read)) == state_of(once)


def test_a_queue_without_files_begins_and_ends_at_0() -> None:
    def never(_: MappedFile) -> cq.Units:
        raise AssertionError("read")

    recovered = cq.recover((), never)
    assert state_of(recovered) == ([], 0, -1)
    assert state_of(cq.truncate_dirty_logic_files(recovered, 77, never)) == ([], 0, 77)
    assert cq.correct_min_offset((), 5, never) == 0


def test_files_before_the_third_from_the_end_are_not_read_by_recover() -> None:
    ours = Ours([(number, [(number * 20, 10, 0), (number * 20 + 10, 10, 0)]) for number in range(5)], 2)
    read = []

    def noted(file: MappedFile) -> cq.Units:
        read.append(file.from_offset // 40)
        return ours.read(file)

    assert cq.recover(ours.files, noted).max_offset == 10
    assert read == [2, 3, 4]


LONGS = st.integers(-(2**63), 2**63 - 1)
UNITS = st.lists(st.tuples(LONGS, st.integers(-(2**31), 2**31 - 1), LONGS), max_size=8)


@given(UNITS, st.binary(max_size=19))
def test_entries_go_round(units: list[Unit], rest: bytes) -> None:
    offsets, sizes, tags = ([unit[i] for unit in units] for i in range(3))
    raw = cq.encode_units(offsets, sizes, tags)
    assert raw == content_of(units)
    read = cq.units_of(np.frombuffer(raw + rest, np.uint8))
    assert read.dtype == CQ_UNIT
    assert read.tolist() == units


@pytest.mark.parametrize("count", [0, 1, 3])
def test_entries_are_read_without_a_copy(count: int) -> None:
    content = np.zeros(count * UNIT + 7, np.uint8)
    units = cq.units_of(content)
    assert len(units) == count
    assert count == 0 or np.shares_memory(units, content)
