"""Which task reads which Parquet files of a table: one task reads a file, neighbours go to one task, tasks have about equal bytes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.lake import data_files
from pipeline.lake.data_files import split_among
from tests.runs.sampling import examples

STRETCH = data_files._STRETCH


@settings(max_examples=examples(60), deadline=None)
@given(
    places=st.lists(st.tuples(st.integers(0, 3 * STRETCH), st.integers(0, 10_000)), max_size=40),
    tasks=st.integers(1, 9),
)
def test_each_file_is_one_tasks_and_no_task_has_much_more_than_its_share(places: list[tuple[int, int]], tasks: int) -> None:
    files = {f"file {number:02d}": place for number, place in enumerate(places)}
    split = split_among(files, tasks)
    assert len(split) == tasks
    in_order = [name for names in split for name in names]
    assert sorted(in_order) == sorted(files)
    stretches = [files[name][0] // STRETCH for name in in_order]
    assert stretches == sorted(stretches)
    total, largest = sum(size for _, size in places), max((size for _, size in places), default=0)
    assert max(sum(files[name][1] for name in names) for names in split) <= total / tasks + largest


def test_place_and_size_of_a_file_are_those_of_its_metadata(tmp_path: Path) -> None:
    table = pa.table({"physicOffset": list(range(500, 1500)), "body": [b"x" * 100] * 1000})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=300, compression="none", use_dictionary=False)
    first, size = data_files._first_value_and_size("physicOffset", str(tmp_path / "a.parquet"))
    assert first == 500
    assert 112_000 <= size <= 130_000
