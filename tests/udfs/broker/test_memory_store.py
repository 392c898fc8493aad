"""The store of a scenario: its queue files and its log, by the facts of the Java source."""

from __future__ import annotations

import pytest

from store_format.layout import PRE_BLANK
from udfs.broker.memory_queue import MemoryQueue
from udfs.broker.memory_store import EMPTY_LOG, HEAD_DELETED, LogExtent

UNIT = 7  # tagsCode


def filled(*queue_offsets: int, entries_a_file: int = 3) -> MemoryQueue:
    queue = MemoryQueue(entries_a_file=entries_a_file)
    for place, offset in enumerate(queue_offsets):
        queue.put(offset, place * 100, 100, UNIT, place)
    return queue


def test_entries_go_from_file_to_file() -> None:
    queue = filled(0, 1, 2, 3)
    assert (queue.min_offset, queue.max_offset) == (0, 4)
    assert queue.block(2).physic_offsets.tolist() == [0, 100, 200]
    assert (queue.block(3).first_offset, queue.block(3).physic_offsets.tolist()) == (3, [300])
    assert (queue.entry(3), queue.entry(4)) == ((300, 100, UNIT), None)


def test_a_queue_that_begins_late_begins_with_blanks_and_its_least_offset_there() -> None:
    queue = filled(4)
    assert (queue.min_offset, queue.max_offset) == (4, 5)
    block = queue.block(4)
    assert (block.first_offset, block.physic_offsets.tolist(), block.sizes.tolist()) == (3, [PRE_BLANK[0], 0], [PRE_BLANK[1], 100])
    assert queue.entry(3) is None


def test_what_is_there_already_is_ignored() -> None:
    queue = filled(0, 1)
    queue.put(1, 500, 100, UNIT, 9)
    queue.put(2, 0, 100, UNIT, 9)  # a message that the queue has passed
    assert queue.max_offset == 2
    queue.put(2, 500, 100, UNIT, 9)
    assert queue.max_offset == 3


def test_a_lost_file_leaves_the_bounds_alone() -> None:
    queue = filled(0, 1, 2, 3)
    queue.delete_first_file()
    assert (queue.min_offset, queue.max_offset) == (0, 4)
    assert len(queue.block(1).sizes) == 0
    assert queue.entry(1) is None
    queue.delete_first_file()
    assert queue.max_offset == 0
    queue.put(4, 400, 100, UNIT, 9)
    assert (queue.min_offset, queue.max_offset) == (4, 5)


@pytest.mark.parametrize(
    ("written", "log"),
    [
        ([], (0, 0)),
        ([60, 30], (0, 90)),
        ([60, 33], (0, 160 - 67 + 40)),  # 60 + 33 + 8 bytes have no room in 100: a BLANK, and the next file
        ([60, 60, 60], (0, 260)),
        ([60, 60, 60, HEAD_DELETED], (200, 260)),
        ([HEAD_DELETED], (0, 0)),
        ([60, 60, HEAD_DELETED, 60, HEAD_DELETED], (200, 260)),
        ([60] * 20 + [HEAD_DELETED], (1000, 1960)),  # ten files at a time
    ],
)
def test_where_records_leave_the_log(written: list[int], log: tuple[int, int]) -> None:
    assert EMPTY_LOG.after(written, 100) == LogExtent(*log)
    reached = EMPTY_LOG
    for one in written:
        reached = reached.after([one], 100)
    assert reached == LogExtent(*log)
