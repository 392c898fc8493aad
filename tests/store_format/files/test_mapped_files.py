"""Queues of mapped files: names, load, and the cut at an offset, compared with the rules of MappedFileQueue.java in plain Python."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_format.errors import CorruptStoreError
from store_format.files import mapped_files as mf
from tests.truth.golden import golden_lines, needs_golden

SIZE = 100


def files_at(*starts: int) -> tuple[mf.MappedFile, ...]:
    return mf.load("folder", [(mf.offset_to_file_name(start), SIZE, start + 1) for start in starts], SIZE)


@pytest.mark.parametrize(
    ("offset", "name"),
    [
        (0, "00000000000000000000"),
        (20, "00000000000000000020"),
        (1 << 30, "00000000001073741824"),
        (2**63 - 1, "09223372036854775807"),
    ],
)
def test_a_file_is_named_by_the_offset_of_its_first_byte(offset: int, name: str) -> None:
    assert mf.offset_to_file_name(offset) == name


@needs_golden
def test_names_of_files_are_those_recorded() -> None:
    rows = [row for row in golden_lines("broker", "codec.jsonl") if row["kind"] == "offset2FileName"]
    assert [mf.offset_to_file_name(row["offset"]) for row in rows] == [row["name"] for row in rows]
    assert rows


def test_load_takes_the_files_in_order_of_name_and_each_as_full() -> None:
    names = [("00000000000000000300", SIZE, 3), ("00000000000000000000", SIZE, 1), ("00000000000000000100", SIZE, 2)]
    loaded = mf.load("folder", names, SIZE)
    assert [(file.from_offset, file.wrote, file.end, file.mtime_ms) for file in loaded] == [
        (0, 100, 100, 1),
        (100, 100, 200, 2),
        (300, 100, 400, 3),
    ]
    assert (mf.min_offset(loaded), mf.max_offset(loaded)) == (0, 400)


def test_a_queue_without_files_has_min_minus_1_and_max_0() -> None:
    assert mf.load("folder", [], SIZE) == ()
    assert (mf.min_offset(()), mf.max_offset(())) == (-1, 0)


@pytest.mark.parametrize(
    ("name", "length", "expected"),
    [
        ("00000000000000000100", 99, "a mapped file of 100 bytes"),
        ("00000000000000000100", 101, "a mapped file of 100 bytes"),
        ("00000000000000000100", 0, "a mapped file of 100 bytes"),
        ("note.txt", 7, "a mapped file of 100 bytes"),
        ("000000000000000000x0", SIZE, "a file named by the 20 digits of its first offset"),
        ("00000000000000000100.bak", SIZE, "a file named by the 20 digits of its first offset"),
        ("0000000000000000010\N{SUPERSCRIPT TWO}", SIZE, "a file named by the 20 digits of its first offset"),
        ("+0000000000000000100", SIZE, "a file named by the 20 digits of its first offset"),
    ],
)
def test_a_file_with_which_the_broker_does_not_start_is_refused(name: str, length: int, expected: str) -> None:
    with pytest.raises(CorruptStoreError) as raised:
        mf.load("some/folder", [("00000000000000000000", SIZE, 0), (name, length, 0)], SIZE)
    assert raised.value.path == f"some/folder/{name}"
    assert raised.value.expected == expected


@pytest.mark.parametrize(
    ("lengths", "size"),
    [([], 7), ([5], 5), ([5, 9, 5], 5), ([9, 5], 9), ([5, 9], 9), ([5, 9, 9, 5, 1], 9), ([0, 0, 4], 0)],
)
def test_the_file_size_is_the_commonest_length_and_the_greater_of_equals(lengths: list[int], size: int) -> None:
    assert mf.file_size_of(lengths, 7) == size


def truncate_dirty_files(files: list[list[int]], offset: int) -> list[list[int]]:
    """MappedFileQueue.truncateDirtyFiles over [from offset, bytes in use] pairs."""
    kept = []
    for start, wrote in files:
        if start + SIZE > offset:
            if offset >= start:
                kept.append([start, offset % SIZE])
        else:
            kept.append([start, wrote])
    return kept


@given(st.sets(st.integers(0, 6)), st.integers(-50, 800))
def test_a_cut_leaves_the_files_that_the_broker_leaves(numbers: set[int], offset: int) -> None:
    files = files_at(*(number * SIZE for number in sorted(numbers)))
    cut = mf.truncate_dirty_files(files, offset)
    left = truncate_dirty_files([[file.from_offset, file.wrote] for file in files], offset)
    assert [[file.from_offset, file.wrote] for file in cut] == left
    assert {file.length for file in cut} <= {SIZE}
    assert mf.max_offset(cut) == (left[-1][0] + left[-1][1] if left else 0)


@pytest.mark.parametrize(
    ("offset", "left"),
    [
        (0, [(0, 0)]),
        (99, [(0, 99)]),
        (100, [(0, 100), (100, 0)]),  # the file that would hold the offset stays, empty
        (250, [(0, 100), (100, 100)]),  # in a hole
        (300, [(0, 100), (100, 100), (300, 0)]),
        (400, [(0, 100), (100, 100), (300, 100)]),
    ],
)
def test_a_cut_ends_the_file_that_holds_it_and_drops_those_behind(offset: int, left: list[tuple[int, int]]) -> None:
    assert [(file.from_offset, file.wrote) for file in mf.truncate_dirty_files(files_at(0, 100, 300), offset)] == left
