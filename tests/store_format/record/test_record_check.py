"""Ranges of two buffers are compared and counted with the same results as in plain Python."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from store_format.record.record_check import first_difference, used_bytes

RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 20)), max_size=5)
BUFFERS = st.lists(st.integers(0, 1), min_size=60, max_size=60)


@given(BUFFERS, BUFFERS, RANGES)
def test_ranges_are_compared_and_counted(one: list[int], other: list[int], ranges: list[tuple[int, int, int]]) -> None:
    columns = [np.array([each[column] for each in ranges], np.int64) for column in range(3)]
    differing = [to + k for at, to, size in ranges for k in range(size) if one[at + k] != other[to + k]]
    buffers = [np.array(values, np.uint8) for values in (one, other)]
    assert first_difference(buffers[0], columns[0], buffers[1], columns[1], columns[2]) == (differing[0] if differing else -1)
    assert used_bytes(buffers[0], columns[0], columns[2]) == sum(sum(one[at : at + size]) for at, _, size in ranges)
