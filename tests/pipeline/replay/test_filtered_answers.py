"""Recorded pulls with filters of every kind, answered by the functions that the tasks of a replay call, without Spark."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.models.without_spark import Tables, answers, tables_of, unequal
from tests.runs.replaying import all_lines
from tests.runs.sampling import sampled
from tests.truth.golden import golden, golden_lines, names, needs_golden
from tests.truth.golden_traces import started_with


@cache
def tables(store: Path) -> Tables:
    return tables_of(store)


ALL = names("traces", "*.jsonl")
TORN = [name for name in ALL if name.startswith("torn-") and name != "torn-ext-missing"]


@needs_golden
@pytest.mark.parametrize("trace", [name for name in ALL if name not in TORN])
def test_recorded_pulls_of_every_filter_are_answered_alike(trace: str, stores: Path) -> None:
    header, *lines = all_lines(golden("store", "traces", f"{trace}.jsonl"))
    rows = answers(tables(stores / header["store"]), lines, header["config"])
    assert unequal(lines, rows) == []


@needs_golden
@pytest.mark.parametrize("trace", sampled(TORN, 8))
def test_pulls_on_a_store_that_load_or_start_changed_are_answered_alike(trace: str, stores: Path) -> None:
    header, *lines = all_lines(golden("store", "traces", f"{trace}.jsonl"))
    rows = answers(tables_of(stores / header["store"], started_with(trace)), lines, header["config"])
    assert unequal(lines, rows) == []


@needs_golden
def test_the_traces_ask_for_filters_of_every_kind() -> None:
    seen = set()
    for name in ALL:
        for line in list(golden_lines("store", "traces", f"{name}.jsonl"))[1:]:
            asked = line["request"]["filter"] or {"type": None}
            thrown = (line["response"] or {}).get("exception")
            seen.add((asked["type"], bool(asked.get("registered")), thrown))
    assert ("SQL92", True, None) in seen
    assert {("TAG", False, "java.lang.NullPointerException"), ("SQL92", False, "java.lang.IndexOutOfBoundsException")} <= seen
