"""Rows of commit_log made into records again: the very bytes they were made of, or an error that names the row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.files.store_files import StoreFiles
from pipeline.rows.log_records import write_records
from store_format.errors import StoreError
from store_format.files.changed_files import FileChange
from store_format.files.used_stretches import used_stretches
from store_format.record.message import Message, encode
from tests.makers.log_rows import FILE, replaced, rows_of, two_files
from tests.makers.records import messages, placed


@given(st.lists(messages(text_properties=True), min_size=2, max_size=8), st.randoms(use_true_random=False))
def test_rows_in_any_order_give_the_bytes_of_their_files_back(found: list[Message], order: Any) -> None:
    contents = two_files(found)
    table = pa.concat_tables([pa.Table.from_batches([rows_of(part, (7 + i) * FILE)]) for i, part in enumerate(contents)])
    shuffled = list(range(len(table)))
    order.shuffle(shuffled)
    (rows,) = table.take(pa.array(shuffled)).combine_chunks().to_batches()
    files = {(7 + number) * FILE: np.zeros(FILE, np.uint8) for number in range(2)}
    assert write_records(rows, FILE, lambda start: (files[start], start)) == sum(map(len, contents))
    for number, content in enumerate(contents):
        assert files[(7 + number) * FILE].tobytes() == content.ljust(FILE, b"\0")


@given(st.lists(messages(text_properties=True), min_size=1, max_size=6), st.integers(0, 9))
def test_rows_that_move_give_the_same_records_with_other_offsets(found: list[Message], gap: int) -> None:
    stored = placed(found, 7 * FILE)
    rows = rows_of(b"".join(map(encode, stored)), 7 * FILE)
    moved, at = [], 3 * FILE + gap
    for message in stored:
        moved.append(replace(message, physic_offset=at))
        at += len(encode(message)) + gap
    column = pa.array([message.physic_offset for message in moved])
    out = np.zeros(FILE, np.uint8)
    write_records(rows.append_column("newOffset", column), FILE, lambda start: (out, start), at="newOffset")
    for message in moved:
        raw = encode(message)
        assert out[message.physic_offset - 3 * FILE :][: len(raw)].tobytes() == raw


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("body", b"other", "storeSize that goes with the row"),
        ("body", None, "a value of body"),
        ("storeSize", 5, "storeSize that goes with the row"),
        ("physicOffset", -1, "a record inside one file of 4096 bytes"),
        ("physicOffset", 8 * FILE - 10, "a record inside one file of 4096 bytes"),
        ("physicOffset", 7 * FILE, "the record whose recordCrc32 the row says"),
        ("bornHost", "::1", "storeSize that goes with the row|hosts as sysFlag says"),
        ("storeHost", "nowhere", "addresses of hosts .*"),
        ("sysFlag", 16, "storeSize that goes with the row|hosts as sysFlag says"),
        ("queueOffset", 99, "the record whose recordCrc32 the row says"),
        ("recordCrc32", 0, "the record whose recordCrc32 the row says"),
    ],
)
def test_a_row_that_is_no_record_is_refused_with_its_place(small_store: Path, name: str, value: Any, expected: str) -> None:
    content = next(iter(sorted((small_store / "commitlog").iterdir()))).read_bytes()[:FILE]
    one = rows_of(content, 0).slice(0, 2)
    with pytest.raises(StoreError, match=f"commit_log: expected ({expected}), found a row with topic "):
        write_records(replaced(one, name, value), FILE, lambda start: (np.zeros(FILE, np.uint8), start))


@given(st.lists(st.tuples(st.integers(0, 20_000), st.binary(max_size=5000)), max_size=4), st.integers(1, 9000))
def test_stretches_hold_every_byte_that_is_not_zero(writes: list[tuple[int, bytes]], longest: int) -> None:
    content = np.zeros(20_000, np.uint8)
    for at, data in writes:
        part = np.frombuffer(data, np.uint8)[: len(content) - at]
        content[at : at + len(part)] = part
    again = np.zeros_like(content)
    end = 0
    for start, stop in used_stretches(content, longest):
        assert end <= start < stop <= start + longest
        assert content[start]
        assert content[stop - 1]
        again[start:stop] = content[start:stop]
        end = stop
    assert (again == content).all()


def test_parts_of_files_with_holes_and_changes_are_those_of_the_whole(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.seek(3 << 20)
        file.write(b"data")
        file.truncate(8 << 20)
    changes: dict[tuple[str, ...], FileChange] = {
        ("sparse",): FileChange(length=9 << 20, is_new=False, ranges=[(1 << 20, np.frombuffer(b"changed", np.uint8))]),
        ("new",): FileChange(length=1 << 20, is_new=True, ranges=[(5, np.frombuffer(b"x", np.uint8))]),
    }
    for store, names in ((StoreFiles(str(tmp_path)), ["sparse"]), (StoreFiles(str(tmp_path), changes), ["sparse", "new"])):
        for name in names:
            whole = store.content(name)
            again = np.zeros_like(whole)
            for first, last in store.written(0, len(whole), name):
                again[first:last] = store.part(first, last, name)
            assert (again == whole).all()
            assert whole.any()
    (first, last), *others = StoreFiles(str(tmp_path)).written(0, 8 << 20, "sparse")
    assert not others
    assert first <= 3 << 20 < last
