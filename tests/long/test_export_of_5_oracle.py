"""The real broker 5.5.0 loads exports of its stores: whole stores as it loads the originals, parts without changing them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.export.part_plan import Bound, Part
from tests.makers.exported_parts import Files, export_part
from tests.runs.replaying import BROKER, import_into
from tests.truth.golden import meta_of
from tests.truth.golden5 import LOADED, load_of, needs_golden5, store_of
from tests.truth.oracle import load, needs_oracle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.lake.lake import Lake

pytestmark = [*needs_oracle(), needs_golden5]
V5 = "5.5.0"
SIZES = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum", "enableConsumeQueueExt")
# what a load by 5.5.0 writes into any store
OWN = ("rocksdbstore/", "compaction/", "timerlog", "timerwheel", "config/", "checkpoint", "abort.bak", "lock")


def lake_of_5(spark: SparkSession, folder: Path, name: str) -> tuple[Lake, dict[str, Any]]:
    """A lake with a store that 5.5.0 wrote, and the sizes of its files."""
    known = {key: value for key, value in meta_of(store_of(name))["config"].items() if key in SIZES}
    options = ["rulesVersion=5.5.0", *(f"{key}={value}" for key, value in known.items())]
    return import_into(spark, folder / "lake", store_of(name), options=options), known


@pytest.mark.parametrize("name", LOADED)
def test_a_whole_store_loads_as_the_original_does(spark: SparkSession, tmp_path: Path, name: str) -> None:
    from pipeline.export.export_store import export_store
    from pipeline.lake.opened_broker import OpenedBroker

    lake, known = lake_of_5(spark, tmp_path, name)
    export_store(OpenedBroker(lake, BROKER), str(tmp_path / "out"), run_id="export", progress=lambda _: None)
    told = load(tmp_path / "out", known, tmp_path / "load.json", version=V5)
    recorded = load_of(name, V5)
    assert {key: value for key, value in told.items() if key not in {"store", "config"}} == {
        key: value for key, value in recorded.items() if key not in {"store", "config"}
    }


PARTS = [
    ("live", Part(topics=("orders",))),
    ("live", Part(topics=("jobs", "rmq_sys_wheel_timer"))),
    ("basic", Part(first=Bound(5, is_time=False), after=Bound(60, is_time=False))),
    ("small", Part(first=Bound(17, is_time=False))),
    ("lmq", Part(first=Bound(2, is_time=False))),
]


@pytest.mark.parametrize(("name", "part"), PARTS)
def test_a_part_loads_without_a_change(spark: SparkSession, tmp_path: Path, name: str, part: Part) -> None:
    lake, known = lake_of_5(spark, tmp_path, name)
    out = tmp_path / "exported" / "store"
    out.parent.mkdir()
    export_part(lake, out, part)
    told = load(out, known, tmp_path / "load.json", version=V5)
    assert (told["loaded"], told["started"], told["cleanShutdownBefore"]) == (True, "ok", True)
    assert (told["messagesDispatchedAgain"], told["undecodable"]) == (0, 0)
    changed = told["filesChanged"]
    assert [path for path in (*changed["added"], *changed["changed"], *changed["removed"]) if not path.startswith(OWN)] == []
    assert told["index"]["keysFound"] == told["index"]["keysSampled"] > 0
    found = Files(out).messages()
    assert told["messages"] == sum(map(len, found.values()))
    bounds = {(queue["topic"], queue["queueId"]): (queue["min"], queue["max"]) for queue in told["queues"] if queue["max"]}
    assert bounds == {queue: (min(offsets), max(offsets) + 1) for queue, offsets in found.items()}
