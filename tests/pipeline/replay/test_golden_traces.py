"""Answers of the real broker: every recorded pull is answered alike, through import and replay."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.runs.replaying import DEMO_TRACE, all_lines, demo_data, differences, import_into, lake_of, read_lines, run
from tests.runs.sampling import ALL, sampled, slow_proof
from tests.truth.golden import golden, needs_golden
from tests.truth.golden_traces import CLEAN, DAMAGED, started_with, traces_by_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.lake.lake import Lake


def check_trace(lake: Lake, trace: Path, out: Path, *, by_spark: bool) -> None:
    done = run(lake, trace, out=str(out), compare=True, by_spark=by_spark)
    recorded, ours = read_lines(trace), read_lines(out)
    assert len(recorded) == len(ours) == done.requests
    assert differences(recorded, ours) == []
    assert done.comparison is not None
    assert (done.comparison.compared, done.comparison.differ) == (len(recorded), 0)
    assert done.unanswered == {}


TORN = [store for store in traces_by_store() if store.startswith(DAMAGED)]


@slow_proof
@needs_golden
@pytest.mark.parametrize("store", sampled(TORN, 1))
def test_pulls_on_a_store_that_load_or_start_changed_are_answered_alike(
    store: str, stores: Path, spark: SparkSession, tmp_path: Path
) -> None:
    for trace in traces_by_store()[store]:
        lake = import_into(spark, tmp_path / f"{trace}.lake", stores / store, options=started_with(trace))
        for by_spark in (False, True):
            check_trace(lake, golden("store", "traces", f"{trace}.jsonl"), tmp_path / f"{trace}.out", by_spark=by_spark)


@needs_golden
@pytest.mark.parametrize("store", CLEAN if ALL else ["ext"])  # filters of every kind
def test_every_recorded_pull_is_answered_alike(
    store: str, stores: Path, spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lake = lake_of(spark, stores / store, tmp_path_factory)
    for trace in traces_by_store()[store] if ALL else ["ext-default"]:
        recorded = golden("store", "traces", f"{trace}.jsonl")
        both = {by_spark: tmp_path / f"{trace} {by_spark}.out" for by_spark in (False, True)}
        for by_spark, out in both.items():
            check_trace(lake, recorded, out, by_spark=by_spark)
        assert both[False].read_bytes() == both[True].read_bytes()


@needs_golden
@pytest.mark.parametrize("store", sampled(CLEAN, 3))
def test_every_recorded_pull_is_answered_alike_without_spark(store: str, stores: Path, tmp_path: Path) -> None:
    lake = import_into(None, tmp_path / "lake", stores / store, by_spark=False)
    for trace in sampled(traces_by_store()[store], 2):
        check_trace(lake, golden("store", "traces", f"{trace}.jsonl"), tmp_path / f"{trace}.out", by_spark=False)


@slow_proof  # the demo compares it too
def test_the_trace_that_comes_with_the_package_is_answered_alike(
    spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    demo = demo_data(tmp_path_factory)
    trace = demo / DEMO_TRACE
    assert all_lines(trace)[0]["kind"] == "trace"
    check_trace(lake_of(spark, demo / "cleaned", tmp_path_factory), trace, tmp_path / "out", by_spark=True)
