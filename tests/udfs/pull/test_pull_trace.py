"""The trace of each recorded pull, made without Spark, ends in the recorded answer and takes the recorded entries."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pipeline.questions.explain import Traced, traced_pulls
from tests.models.without_spark import Tables, blocks_of, tables_of, unequal
from tests.runs.replaying import Line, all_lines
from tests.runs.sampling import sampled, slow_proof
from tests.truth.golden import golden, names, needs_golden
from tests.truth.golden_traces import started_with
from udfs.pull.pull_trace import BATCH_FULL, End, Fate

ALL = names("traces", "*.jsonl")
TORN = [name for name in ALL if name.startswith("torn-") and name != "torn-ext-missing"]


def traced(tables: Tables, lines: list[Line], config: dict[str, Any]) -> list[Traced]:
    """The pulls of a trace explained, in its order."""
    found = [one for answering, rows in blocks_of(tables, lines, config) for one in traced_pulls(answering, iter(rows))]
    return sorted(found, key=lambda one: int(one.answer["seq"]))


def check(found: list[Traced], lines: list[Line]) -> None:
    assert unequal(lines, [dict(one.answer) for one in found]) == []
    for one, line in zip(found, lines, strict=True):
        response = line["response"]
        if one.trace is None or response is None or "exception" in response:
            assert response is None or one.trace is None or one.trace.end in {End.THROWN, End.NOT_STARTED}
            continue
        taken = [step.position for step in one.trace.steps if step.fate is Fate.TAKEN]
        starts = [message["startOffset"] for message in response["messages"]]
        # an entry of offset 0 is looked up in the first file of the log, wherever that begins
        assert one.block.physic_offsets[taken].tolist() == [
            start * bool(at) for start, at in zip(starts, one.block.physic_offsets[taken], strict=True)
        ]
        assert one.block.sizes[taken].tolist() == [message["storeSize"] for message in response["messages"]]
        full = [step for step in one.trace.steps if step.fate in BATCH_FULL]
        if one.trace.end is not End.NO_FILE and one.trace.end is not End.NO_SCAN:
            assert response["nextBeginOffset"] == line["request"]["offset"] + len(one.trace.steps) - len(full)


@needs_golden
@pytest.mark.parametrize("trace", sampled([name for name in ALL if name not in TORN], 6))
def test_every_recorded_pull_is_explained_to_its_recorded_answer(trace: str, stores: Path) -> None:
    header, *lines = all_lines(golden("store", "traces", f"{trace}.jsonl"))
    check(traced(tables_of(stores / header["store"]), lines, header["config"]), lines)


@needs_golden
@pytest.mark.parametrize("trace", sampled(TORN, 2))
def test_so_are_those_on_stores_that_load_or_start_changed(trace: str, stores: Path) -> None:
    header, *lines = all_lines(golden("store", "traces", f"{trace}.jsonl"))
    check(traced(tables_of(stores / header["store"], started_with(trace)), lines, header["config"]), lines)


@slow_proof
@needs_golden
def test_the_traces_show_every_way_that_an_entry_and_a_scan_can_end(stores: Path) -> None:
    fates: Counter[Fate] = Counter()
    ends: Counter[End] = Counter()
    for trace in ("basic-caps", "basic-mixmem", "basic-default", "basic-retryfilter", "window-default", "ext-default", "holes-default"):
        header, *lines = all_lines(golden("store", "traces", f"{trace}.jsonl"))
        for one in traced(tables_of(stores / header["store"]), lines, header["config"]):
            if one.trace is not None:
                ends[one.trace.end] += 1
                fates.update(step.fate for step in one.trace.steps)
    assert fates.keys() == set(Fate)
    assert ends.keys() == set(End)
