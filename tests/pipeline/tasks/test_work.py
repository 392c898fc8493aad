"""Work of this process compared with work of Spark's tasks: the same functions over the same rows give the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pipeline.tasks.work import DriverTasks, NoSessionError, SparkTasks, Tasks, Work, of_items

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "topic STRING, n BIGINT, bytes BINARY"
ROWS = pa.Table.from_pylist(
    [{"topic": topic, "n": n, "bytes": bytes([n % 7])} for n in range(50) for topic in ("b", "é", "a b")],
    pa.schema([("topic", pa.string()), ("n", pa.int64()), ("bytes", pa.binary())]),
)


def the_last(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.filter(pc.greater(batch.column("n"), 40))


def none(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (batch.slice(0, 0) for batch in batches)


def of_item(item: tuple[str, int]) -> Iterator[pa.RecordBatch]:
    for n in range(item[1]):
        yield pa.RecordBatch.from_pydict({"topic": [item[0]], "n": [n], "bytes": [None]}, ROWS.schema)


MAKERS: dict[str, Callable[[Tasks], Work]] = {
    "rows": lambda tasks: tasks.of_rows(ROWS),
    "mapped": lambda tasks: tasks.of_rows(ROWS).mapped(the_last, SCHEMA),
    "mapped to none": lambda tasks: tasks.of_rows(ROWS).mapped(none, SCHEMA),
    "joined": lambda tasks: tasks.of_rows(ROWS.slice(0, 3)).joined(tasks.of_rows(ROWS.slice(9, 2).select(["n", "bytes", "topic"]))),
    "once": lambda tasks: tasks.of_rows(ROWS).mapped(the_last, SCHEMA).once(),
    "spread": lambda tasks: tasks.of_rows(ROWS).spread(3),
    "items": lambda tasks: of_items(tasks, [("x", 2), ("none", 0), ("y", 3)], of_item, SCHEMA),
    "no items": lambda tasks: of_items(tasks, [], of_item, SCHEMA),
}
ORDERED: dict[str, Callable[[Tasks], Work]] = {
    "ordered": lambda tasks: tasks.of_rows(ROWS).ordered(1, ["topic", "n"]),
    "ordered in parts": lambda tasks: tasks.of_rows(ROWS).ordered(3, ["topic", "n"]),
    "items": MAKERS["items"],
}


def sorted_rows(work: Work) -> list[str]:
    return sorted(map(repr, plain(work.rows())))


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: bytes(value) if isinstance(value, bytearray) else value for name, value in sorted(row.items())} for row in rows]


@pytest.mark.parametrize("name", MAKERS)
def test_both_give_the_same_rows(spark: SparkSession, name: str) -> None:
    wanted = MAKERS[name](SparkTasks(spark))
    assert sorted_rows(MAKERS[name](DriverTasks())) == sorted_rows(wanted)
    assert [field.name for field in wanted.frame.schema] == SCHEMA.replace(",", "").split()[::2]


@pytest.mark.parametrize("name", ORDERED)
def test_both_give_the_rows_in_the_same_order(spark: SparkSession, name: str) -> None:
    """Texts are ordered by their bytes in UTF-8."""
    assert plain(ORDERED[name](DriverTasks()).rows()) == plain(ORDERED[name](SparkTasks(spark)).rows())


def test_rows_are_distinct_by_a_key_that_may_be_null(spark: SparkSession) -> None:
    rows = pa.table({"a": [1, None, 1, None, 2], "b": ["x", "y", "x", "y", None], "c": [True] * 5})
    found = DriverTasks().of_rows(rows).distinct(["a", "b"]).rows()
    assert found == [{"a": 1, "b": "x", "c": True}, {"a": None, "b": "y", "c": True}, {"a": 2, "b": None, "c": True}]
    assert sorted(map(repr, found)) == sorted(map(repr, SparkTasks(spark).of_rows(rows).distinct(["a", "b"]).rows()))


def test_rows_of_this_process_are_made_once_where_told_and_anew_elsewhere() -> None:
    made: list[int] = []

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            made.append(len(batch))
            yield batch

    anew = DriverTasks().of_rows(ROWS).mapped(count, SCHEMA)
    assert (anew.rows(), anew.rows()) == (ROWS.to_pylist(), ROWS.to_pylist())
    assert sum(made) == 2 * len(ROWS)
    once = anew.once()
    assert (once.rows(), once.rows()) == (ROWS.to_pylist(), ROWS.to_pylist())
    assert sum(made) == 3 * len(ROWS)


def test_rows_of_this_process_are_no_data_frame() -> None:
    with pytest.raises(NoSessionError, match="DataFrame"):
        _ = DriverTasks().of_rows(ROWS).frame
