"""Appending in bulk, compared with the plain rules: the encoder of one record, and the broker's callback, message by message."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_format.log.append import NO_BATCH, NOT_APPENDED, columns_of, encode, encode_blank, number, place
from store_format.record.message import Message
from store_format.record.message import encode as encode_one
from tests.makers.records import messages
from tests.runs.sampling import slow_proof
from tests.truth.places import PROJECT, TESTS

BLANK = 8


@given(st.lists(messages(), max_size=8), st.data())
def test_records_written_at_once_are_those_written_one_by_one(found: list[Message], data: st.DataObject) -> None:
    columns = columns_of(found, [0] * len(found), [NO_BATCH] * len(found))
    sizes = [len(encode_one(message)) for message in found]
    assert columns.record_sizes().tolist() == sizes
    gap = data.draw(st.integers(0, 5))
    starts = np.array([sum(sizes[:i]) + gap * i for i in range(len(found))], np.int64)
    offsets = starts + data.draw(st.integers(0, 2**62))
    queue_offsets = np.array([data.draw(st.integers(-(2**63), 2**63 - 1)) for _ in found], np.int64)
    first = data.draw(st.integers(0, len(found)))
    out = np.zeros(sum(sizes) + gap * len(found), np.uint8)
    positions = encode(columns, slice(first, len(found)), offsets, queue_offsets, out, int(offsets[0] - starts[0]) if found else 0)
    assert positions.tolist() == starts[first:].tolist()
    for i, message in enumerate(found[first:], first):
        expected = replace(message, queue_offset=int(queue_offsets[i]), physic_offset=int(offsets[i]))
        assert out[starts[i] : starts[i] + sizes[i]].tobytes() == encode_one(expected)
    assert not out[: int(starts[first]) if first < len(found) else len(out)].any()


def do_append(sizes: list[int], batches: list[int], file_size: int, log_end: int) -> tuple[list[int], list[list[int]], int]:
    """asyncPutMessage and doAppend of each send in turn: the offsets of messages, the BLANKs, and the log's end."""
    offsets, blanks = [NOT_APPENDED] * len(sizes), []
    i = 0
    while i < len(sizes):
        send = [i]
        while batches[i] != NO_BATCH and send[-1] + 1 < len(sizes) and batches[send[-1] + 1] == batches[i]:
            send.append(send[-1] + 1)
        for _ in range(2):  # the last file, and after END_OF_FILE the next one
            max_blank = file_size - log_end % file_size
            total, fits = 0, True
            for k in send:
                total += sizes[k]
                fits = fits and total + BLANK <= max_blank
            if fits:
                for k in send:
                    offsets[k] = log_end
                    log_end += sizes[k]
                break
            blanks.append([log_end, max_blank])
            log_end += max_blank
        i = send[-1] + 1
    return offsets, blanks, log_end


@given(
    st.lists(st.tuples(st.integers(91, 300), st.booleans(), st.integers(1, 4)), max_size=20),
    st.integers(100, 700),
    st.integers(0, 3),
    st.integers(0, 600),
)
def test_messages_go_where_the_broker_puts_them(sends: list[tuple[int, bool, int]], file_size: int, full: int, used: int) -> None:
    sizes = [size for size, _, count in sends for _ in range(count)]
    batches = [turn if batch else NO_BATCH for turn, (_, batch, count) in enumerate(sends) for _ in range(count)]
    used = min(used, file_size - BLANK)  # a file's end is a BLANK's
    log_end = full * file_size + used
    placed = place(np.array(sizes, np.int64), np.array(batches, np.int64), file_size, log_end)
    offsets, blanks, end = do_append(sizes, batches, file_size, log_end)
    assert (placed.offsets.tolist(), placed.blanks.tolist(), placed.log_end) == (offsets, blanks, end)


# (size of a message, rest of the file, whether it goes in): CommitLog's (msgLen + END_FILE_MIN_BLANK_LENGTH) > maxBlank
@pytest.mark.parametrize(("size", "rest", "fits"), [(100, 108, True), (100, 107, False), (100, 1000, True), (100, 8, False)])
def test_eight_bytes_stay_free_behind_a_message(size: int, rest: int, fits: bool) -> None:
    placed = place(np.array([size]), np.array([NO_BATCH]), 1000, 1000 - rest)
    assert placed.offsets.tolist() == [1000 - rest if fits else 1000]
    assert placed.blanks.tolist() == ([] if fits else [[1000 - rest, rest]])


def test_a_message_that_no_file_has_room_for_leaves_two_blanks() -> None:
    placed = place(np.array([100, 993, 100]), np.array([NO_BATCH] * 3), 1000, 0)
    assert placed.offsets.tolist() == [0, NOT_APPENDED, 2000]
    assert placed.blanks.tolist() == [[100, 900], [1000, 1000]]
    assert placed.blank_rows.tolist() == [1, 1]
    assert placed.log_end == 2100


def test_a_blank_is_its_length_and_the_magic_code() -> None:
    assert encode_blank(300).hex() == "0000012c" + "cbd43194"


PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC


@given(st.data())
def test_only_what_consumers_see_moves_a_queue_on(data: st.DataObject) -> None:
    found = data.draw(st.lists(messages(), min_size=1, max_size=8))
    queues = [data.draw(st.integers(0, 2)) for _ in found]
    offsets = np.array([data.draw(st.sampled_from([NOT_APPENDED, 0, 500])) for _ in found], np.int64)
    table = np.array([5, 0, 2**40], np.int64)
    numbered = number(columns_of(found, queues, [NO_BATCH] * len(found)), offsets, table)
    ends = [5, 0, 2**40]
    for message, queue, offset, given_offset in zip(found, queues, offsets.tolist(), numbered.tolist(), strict=True):
        kind = message.sys_flag & ROLLBACK
        if offset == NOT_APPENDED or kind in {PREPARED, ROLLBACK}:
            assert given_offset == 0
        else:
            assert given_offset == ends[queue]
            ends[queue] += 1
    assert table.tolist() == ends


@slow_proof
def test_no_kernel_writes_outside_its_buffer(tmp_path: Path) -> None:
    script = TESTS / "runs" / "bounds_checked_append.py"
    checked = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(PROJECT)}
    run = subprocess.run([sys.executable, script], env=checked, capture_output=True, text=True, check=False, timeout=300)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout.rpartition(":")[2]) > 1000
