"""Which task reads which segments: each segment that requests need is read once, wherever it is in the files."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.replay import segment_files
from pipeline.replay.segment_files import _SegmentFiles, with_segments
from store_format.errors import StoreError
from tests.runs.sampling import examples

BROKER, OTHER = "broker-a", "broker-b"
Segment = tuple[str, int, int]


def entries_of(segment: Segment) -> bytes:
    return repr(segment).encode() * 20


def row_of(broker: str, segment: Segment) -> dict[str, Any]:
    topic, queue_id, number = segment
    return {
        "brokerName": broker,
        "topic": topic,
        "queueId": queue_id,
        "segment": number,
        "firstQueueOffset": number * 8192,
        "entryCount": number + 1,
        "entries": entries_of(segment),
        "extUnits": None if number % 2 else b"ext" + entries_of(segment),
    }


SCHEMA = pa.schema(
    {
        "brokerName": pa.string(),
        "topic": pa.string(),
        "queueId": pa.int32(),
        "segment": pa.int64(),
        "firstQueueOffset": pa.int64(),
        "entryCount": pa.int32(),
        "entries": pa.binary(),
        "extUnits": pa.binary(),
    }
)


def files_of(folder: Path, files: list[list[tuple[str, Segment]]], group_rows: int) -> _SegmentFiles:
    """Write the rows of each file, in row groups of `group_rows` rows."""
    folder.mkdir(exist_ok=True)
    paths = [str(folder / f"{number}.parquet") for number in range(len(files))]
    for path, rows in zip(paths, files, strict=True):
        table = pa.Table.from_pylist([row_of(*row) for row in rows], schema=SCHEMA)
        pq.write_table(
            table,
            path,
            row_group_size=group_rows,
            compression="none",
            use_dictionary=False,
            write_statistics=False,
            write_page_checksum=True,
        )
    index = pa.concat_tables(segment_files._places(BROKER, number, path) for number, path in enumerate(paths))
    return _SegmentFiles(tuple(paths), index)


def some_of(segments: list[Segment], counts: list[int]) -> pa.Table:
    columns = list(zip(*segments, strict=True)) or [(), (), ()]
    types = (pa.string(), pa.int32(), pa.int64(), pa.int64())
    names = ("topic", "queueId", "segment", "count")
    return pa.table({name: pa.array(values, kind) for name, values, kind in zip(names, (*columns, counts), types, strict=True)})


ALL = [(topic, queue_id, number) for topic in ("a", "it's") for queue_id in (0, 1) for number in range(12)]


@settings(max_examples=examples(40), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    files=st.integers(1, 4),
    group_rows=st.integers(1, 20),
    rows_at_once=st.integers(1, 5),
    tasks=st.integers(1, 5),
    asked=st.sets(st.sampled_from([*ALL, ("a", 0, 99), ("none", 0, 0)]), min_size=1),
)
def test_each_segment_that_is_asked_for_is_read_once_by_one_task(
    seed: int, files: int, group_rows: int, rows_at_once: int, tasks: int, asked: set[Segment], tmp_path_factory: pytest.TempPathFactory
) -> None:
    chance = random.Random(seed)
    rows = [*((BROKER, one) for one in ALL), *((OTHER, one) for one in ALL)]
    chance.shuffle(rows)
    found = files_of(tmp_path_factory.getbasetemp() / "each", [rows[number::files] for number in range(files)], group_rows)
    listed = sorted(asked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_files, "_LEAST_PART", 0)
        patch.setattr(segment_files, "_ROWS_AT_ONCE", rows_at_once)
        chosen = found.tasks(some_of(listed, [chance.randint(1, 500) for _ in listed]), tasks)
        if not asked & set(ALL):
            assert chosen is None
            return
        assert chosen is not None
        met: list[Segment] = []
        for task in range(chosen.count):
            of_task = [row for row in chosen.segments.to_pylist() if row["task"] == task]
            met += read_by_task(chosen.paths, of_task, chance)
    assert sorted(met) == sorted(asked & set(ALL))


def read_by_task(paths: tuple[str, ...], segments: list[dict[str, Any]], chance: random.Random) -> list[Segment]:
    """The segments that a task gets; each of its packed rows has to follow the segment that it needs."""
    beyond = {"topic": "a", "queueId": 0, "key": -1, "wide": False, "requests": b"beyond", "place": None}
    packed = [row | {"wide": False, "requests": b"%d" % number} for row in segments for number in range(chance.randint(1, 3))]
    met: list[Segment] = []
    passed = []
    for row in with_segments(paths, iter([beyond, *packed])):
        segment = (row["topic"], row["queueId"], row["key"])
        if row["requests"] is not None:
            passed.append(row)
            assert row is beyond or met[-1] == segment
            continue
        expected = {name: row_of(BROKER, segment)[name] for name in ("firstQueueOffset", "entryCount", "extUnits")}
        (block,) = row["blocks"]
        assert bytes(block["entries"]) == entries_of(segment)
        assert {name: block[name] for name in expected} == expected
        met.append(segment)
    assert passed == [beyond, *packed]
    return met


@settings(max_examples=examples(40), deadline=None)
@given(counts=st.lists(st.integers(1, 1000), min_size=len(ALL), max_size=len(ALL)), tasks=st.integers(1, 6))
def test_tasks_have_about_as_much_work_each_in_the_order_of_the_files(
    counts: list[int], tasks: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows = [(BROKER, one) for one in ALL]
    chosen = files_of(tmp_path_factory.getbasetemp() / "about", [rows[:20], rows[20:]], 50).tasks(some_of(ALL, counts), tasks)
    assert chosen is not None
    task = chosen.segments["task"].to_numpy()
    assert (np.diff(task) >= 0).all()
    assert (np.diff(chosen.segments["place"].to_numpy()) > 0).all()
    work = np.bincount(task, np.array(counts) + segment_files._REQUESTS_A_SEGMENT, tasks)
    assert work.max() <= work.sum() / tasks + max(counts) + segment_files._REQUESTS_A_SEGMENT


def test_more_requests_get_more_tasks(tmp_path: Path) -> None:
    found = files_of(tmp_path, [[(BROKER, one) for one in ALL]], 50)
    chosen = found.tasks(some_of(ALL, [segment_files._REQUESTS_A_TASK] * len(ALL)), 2)
    assert chosen is not None
    assert chosen.count == len(ALL)


def test_few_segments_of_large_files_are_left_to_spark(tmp_path: Path) -> None:
    rows = [(BROKER, one) for one in ALL]
    found = files_of(tmp_path, [rows[:24], rows[24:]], 50)
    assert found.tasks(some_of(ALL[:5], [1] * 5), 2) is None
    assert found.tasks(some_of(ALL[:6], [1] * 6), 2) is not None  # a quarter of the one file that has them
    assert found.tasks(some_of([("none", 0, 0)], [1]), 2) is None


@pytest.mark.parametrize("harm", ["gone", "cut", "flipped"])
def test_a_file_that_cannot_be_read_is_named(harm: str, tmp_path: Path) -> None:
    found = files_of(tmp_path, [[(BROKER, one) for one in ALL]], 50)
    chosen = found.tasks(some_of(ALL, [1] * len(ALL)), 1)
    assert chosen is not None
    path = Path(found.paths[0])
    content = bytearray(path.read_bytes())
    if harm == "gone":
        path.unlink()
    else:
        content[content.index(b'("it') + 2] ^= 1
        path.write_bytes(content[: len(content) // 2] if harm == "cut" else content)
    rows = ({"requests": b"", "wide": False, **row} for row in chosen.segments.to_pylist())
    with pytest.raises(StoreError, match=path.name):
        list(with_segments(found.paths, rows))
