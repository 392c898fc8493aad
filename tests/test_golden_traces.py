"""Answers of the real broker: every recorded pull is answered alike, through import and replay."""

from __future__ import annotations

import lzma
import shutil
import tarfile
from collections import defaultdict
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from golden import golden, golden_lines, names, needs_golden
from replaying import all_lines, differences, import_into, is_answered, read_lines, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.lake import Lake

# stores that load repairs, queue extensions, and filters for retry topics cannot be answered yet
LATER = ("torn-", "ext-")


def traces_by_store() -> dict[str, list[str]]:
    found = defaultdict(list)
    for name in names("traces", "*.jsonl"):
        if not name.startswith(LATER) and not name.endswith("-retryfilter"):
            found[next(golden_lines("store", "traces", f"{name}.jsonl"))["store"]].append(name)
    return dict(found)


def check_trace(lake: Lake, trace: Path, out: Path) -> None:
    done = run(lake, trace, out=str(out), compare=True)
    recorded, ours = read_lines(trace), read_lines(out)
    assert len(recorded) == len(ours) == done.requests
    can = [(line, our) for line, our in zip(recorded, ours, strict=True) if is_answered(line)]
    assert differences([line for line, _ in can], [our for _, our in can]) == []
    rest = [our["response"] for line, our in zip(recorded, ours, strict=True) if not is_answered(line)]
    assert {response["error"] for response in rest} <= {"UNSUPPORTED"}
    assert done.comparison is not None
    assert (done.comparison.compared, done.comparison.differ) == (len(can), 0)
    assert done.unanswered == ({"UNSUPPORTED": len(rest)} if rest else {})


@needs_golden
@pytest.mark.parametrize("store", traces_by_store())
def test_every_recorded_pull_is_answered_alike(store: str, stores: Path, spark: SparkSession, tmp_path: Path) -> None:
    lake = import_into(spark, tmp_path / "lake", stores / store)
    for trace in traces_by_store()[store]:
        check_trace(lake, golden("store", "traces", f"{trace}.jsonl"), tmp_path / f"{trace}.out")


def test_the_trace_that_comes_with_the_package_is_answered_alike(demo_store: tuple[Path, Path], spark: SparkSession, tmp_path: Path) -> None:
    store, trace = demo_store
    assert all_lines(trace)[0]["kind"] == "trace"
    check_trace(import_into(spark, tmp_path / "lake", store, layout="clustered"), trace, tmp_path / "out")


@pytest.fixture
def demo_store(tmp_path: Path) -> tuple[Path, Path]:
    """The store and the trace of the demo."""
    data = files("pipeline") / "demo_data"
    with (data / "cleaned.tar.xz").open("rb") as packed, tarfile.open(fileobj=packed) as archive:
        archive.extractall(tmp_path, filter="data")
    trace = tmp_path / "cleaned.jsonl"
    with (data / "cleaned-default.jsonl.xz").open("rb") as packed, lzma.open(packed) as lines, trace.open("wb") as plain:
        shutil.copyfileobj(lines, plain)
    return tmp_path / "cleaned", trace
