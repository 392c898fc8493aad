"""Running work is shown while it runs, with the share that is done; nothing is shown after its end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from pipeline.tasks.running import Running, one_by_one, running, watched
from pipeline.tasks.work import DriverTasks, items_of, of_items


def counts() -> list[tuple[int, int]]:
    return [(one.done, one.tasks) for one in running()]


def test_items_are_done_when_the_next_is_asked_for() -> None:
    seen = [(item, *counts()) for item in one_by_one("abc")]
    assert seen == [("a", (0, 3)), ("b", (1, 3)), ("c", (2, 3))]
    assert counts() == []


def test_what_ends_early_runs_no_more() -> None:
    items = one_by_one(range(3))
    assert isinstance(items, Iterator)
    next(items)
    assert counts() == [(0, 3)]
    del items
    assert counts() == []
    with suppress(ZeroDivisionError), watched(lambda: [Running("it", 1, 2)]):
        assert counts() == [(1, 2)]
        _ = 1 // 0
    assert counts() == []


def test_work_of_the_driver_runs_part_by_part() -> None:
    seen = []

    def rows_of(item: str) -> Iterator[object]:
        seen.append((item, *counts()))
        return iter(())

    assert of_items(DriverTasks(), ["x", "y"], rows_of, "a INT").rows() == []
    assert seen == [("x", (0, 2)), ("y", (1, 2))]


@pytest.mark.parametrize("count", [0, 1, 4, 5, 9])
def test_parts_that_run_at_once_take_each_item_once(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: range(4), raising=False)
    parts = DriverTasks().at_once(range(count))
    assert len(parts) == 4
    taken = [items_of(part.batches(), range(count)) for part in parts]
    turns = [next(items, None) for _ in range(count) for items in taken]
    assert [item for item in turns if item is not None] == [*range(count)]
