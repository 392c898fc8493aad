"""The store of a broker 5.5.0: its files show the version, the tables match what the broker said, and pulls get that version's answers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.files.store_files import StoreFiles
from pipeline.importing.load_store import load_store, with_extension
from pipeline.importing.start_store import bounds, start_store
from pipeline.lake.lake import Lake
from pipeline.schema import tables as t
from pipeline.schema.timer_tables import TIMER_LOG
from pipeline.settings.settings import BrokerSettings
from pipeline.tasks.work import SparkTasks
from tests.makers.lakes import import_as, rows
from tests.makers.living_store import LivingStore
from tests.makers.store_trees import differing, tree
from tests.runs.following import assert_same_tables
from tests.runs.in_session import NotHeard, pullsim_in
from tests.runs.replaying import BROKER, all_lines, lake_of, run
from tests.runs.sampling import sampled, slow_proof
from tests.truth.golden import meta_of
from tests.truth.golden5 import needs_golden5, store_of, stores_that_load, unpacked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.runs.in_session import Pullsim

pytestmark = needs_golden5
TOLD = "the rules are those of broker 5.5.0: config/consumerOffset.json has a dataVersion, which a broker 5.x writes"


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("live") / "lake"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.importing.load_store.start_store", None)  # tasks load a store that was shut down cleanly
        code, *_ = pullsim_in(spark, patch, NotHeard())("import", store_of("live"), "--lake", folder, "--broker-name", BROKER)
    assert code == 0
    return folder


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """What the broker said just before its shutdown."""
    found: dict[str, Any] = json.loads((unpacked("live") / "live" / "broker.json").read_text(encoding="utf-8"))
    return found


def test_the_tables_hold_what_the_broker_said(spark: SparkSession, lake: Path, told: dict[str, Any]) -> None:
    pulled = {(row["consumerGroup"], row["topic"], row["queueId"]): row["pullOffset"] for row in rows(spark, lake, t.PULL_OFFSET)}
    said = {(one["group"], one["topic"], one["queueId"]): one["pulled"] for one in told["offsets"]}
    assert pulled
    assert pulled.items() <= said.items()
    pending = {(row["file"], row["topic"]): row["count"] for row in rows(spark, lake, t.PENDING_MESSAGES)}
    timers, halves = told["timers"]["pendingByTopic"], told["transactions"]["pendingByTopic"]
    assert pending == {("timermetrics", topic): one["count"] for topic, one in timers.items()} | {
        ("transactionMetrics", topic): one["count"] for topic, one in halves.items()
    }
    (timer,) = rows(spark, lake, t.TIMER_CHECKPOINT)
    assert timer["lastTimerQueueOffset"] == told["timers"]["commitQueueOffset"]
    (held,) = rows(spark, lake, t.CONSUMER_ORDER_INFO)
    assert (held["consumerGroup"], held["topic"], held["queueOffsets"], held["commitOffsetBit"]) == (
        "cg-order",
        "shifts",
        list(range(10)),
        0b1111,
    )
    (checkpoint,) = rows(spark, lake, t.CHECKPOINT)
    assert (checkpoint["logicsMsgTimestamp"], checkpoint["logicsPhysicalOffset"]) == (0, 0)  # a clean shutdown sets neither
    queues = {(row["topic"], row["queueId"]): (row["minOffset"], row["maxOffset"]) for row in rows(spark, lake, t.QUEUE)}
    later = {(one["topic"], one["queueId"]): one["max"] for one in told["afterShutdown"]["queuesChanged"]}
    for one in told["queues"]:
        key = one["topic"], one["queueId"]
        assert queues.get(key, (0, 0)) == (one["min"], later.get(key, one["max"]))


INDEX_SIZES = ("maxHashSlotNum", "maxIndexNum")
OWN = [name for name in stores_that_load() if name != "live"]


@pytest.mark.parametrize("name", sorted({"cleaned", "torn-last-file-length-0", *sampled(OWN, 1)}) if OWN else [])
def test_tasks_load_a_store_as_the_driver_does(spark: SparkSession, name: str) -> None:
    files = StoreFiles(str(store_of(name)))
    sizes = [f"{key}={value}" for key, value in meta_of(store_of(name))["config"].items() if key in INDEX_SIZES]  # a corrupt index has none
    settings = with_extension(BrokerSettings.from_sources(options=["rulesVersion=5.5.0", *sizes]), files)
    loaded, started = load_store(SparkTasks(spark), files, BROKER, settings), start_store(files, settings)
    found = {(row["topic"], row["queueId"]): (row["minOffset"], row["maxOffset"]) for row in loaded.queues.rows()}
    wanted = {(queue.topic, queue.queue_id): bounds(queue) for queue in started.queues}
    kept = {(queue.topic, queue.queue_id) for queue in started.queues if queue.files or queue.has_folder}
    assert found == {queue: wanted[queue] for queue in wanted if queue in kept or queue in found}  # others need no row
    assert (loaded.log.files, loaded.notes) == (started.log_files, started.notes)


def test_a_store_without_such_files_makes_no_such_tables(
    spark: SparkSession, small_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lake = Path(lake_of(spark, small_store, tmp_path_factory).root)
    there = {path.name for path in lake.iterdir()}
    assert there >= {table.name for table in t.IMPORTED}
    assert there.isdisjoint(table.name for table in t.IMPORTED_OF_5)
    (row,) = rows(spark, lake, t.CHECKPOINT)
    assert (row["masterFlushedOffset"], row["confirmPhyOffset"], row["logicsPhysicalOffset"]) == (None, None, None)


@slow_proof
def test_a_follow_brings_what_an_import_brings(spark: SparkSession, lake: Path, pullsim: Pullsim, tmp_path: Path) -> None:
    living, found = LivingStore(store_of("live"), tmp_path / "store"), tmp_path / "lake"
    offsets = living.record_offsets()
    living.cut_at(offsets[len(offsets) // 2])
    of_5 = ("consumerOrderInfo.json", "timermetrics", "transactionMetrics", "timercheck")
    for name in of_5:
        (living.path / "config" / name).unlink()
    follow = ("import", living.path, "--lake", found, "--broker-name", BROKER, "--rules", "5.5.0", "--follow", "--once")
    assert pullsim(*follow)[0] == 0
    assert not rows(spark, found, TIMER_LOG)
    living.cut_at(offsets[-1])
    shutil.copytree(store_of("live") / "timerlog", living.path / "timerlog", dirs_exist_ok=True)
    shutil.copy2(store_of("live") / "timerwheel", living.path)
    code, out, err = pullsim(*follow)
    assert code == 0, err
    assert "imported again" not in out + err
    assert_same_tables(Lake(spark, str(found)), Lake(spark, str(lake)))
    for table in t.IMPORTED_OF_5:
        assert sorted(map(repr, rows(spark, found, table))) == sorted(map(repr, rows(spark, lake, table))) != [], table.name
    messages = [pullsim("timers", "--lake", place, "--messages", "--all", "--format", "json")[1] for place in (found, lake)]
    assert messages[0] == messages[1]
    code, out, _ = pullsim("sql", "--lake", found, "SELECT count_if(problem IS NOT NULL) AS wrong FROM timer_check", "--format", "json")
    assert json.loads(out) == {"wrong": 0}


@pytest.mark.parametrize("version", sampled(["4.9.3", "5.5.0"], 1))
def test_each_version_answers_pulls_as_it_did(lake: Path, version: str, pullsim: Pullsim, tmp_path: Path) -> None:
    trace = unpacked("live") / "live" / f"trace-{version}.jsonl"
    out = tmp_path / "out.jsonl"
    code, told, err = pullsim("replay", "--lake", lake, "--requests", trace, "--out", out, "--compare")
    assert (code, told.strip().rpartition("\n")[2]) == (0, f"{len(all_lines(trace)) - 1} compared, 0 differ")
    assert f"the rules are those of broker {version}: {trace}, line 1 names it" in err


def test_the_store_comes_back(lake: Path, pullsim: Pullsim, tmp_path: Path) -> None:
    code, _, _ = pullsim("export", "--lake", lake, tmp_path / "store")
    assert code == 0
    assert differing(tree(tmp_path / "store"), tree(store_of("live"))) == []


@slow_proof
def test_the_tables_are_those_of_the_store(lake: Path, pullsim: Pullsim) -> None:
    code, out, _ = pullsim("verify", store_of("live"), "--lake", lake)
    assert (code, out.strip().rpartition("\n")[2].endswith(" files, 0 findings")) == (0, True)


def test_an_import_says_what_tells_the_rules(pullsim: Pullsim, lake: Path, tmp_path: Path) -> None:
    code, _, err = pullsim("import", store_of("live"), "--lake", tmp_path / "lake", "--as-found")
    assert (code, TOLD in err) == (0, True)
    code, _, err = pullsim("explain", "--lake", lake, "--group", "g", "--topic", "orders", "--queue", 0, "--offset", 0)
    assert (code, "the rules are those of broker 5.5.0: the import names it" in err) == (0, True)


@slow_proof
def test_a_store_that_was_not_loaded_answers_null(spark: SparkSession, tmp_path: Path) -> None:
    recorded = unpacked("answers") / "traces" / "torn-cq-wrong-size.jsonl"
    assert not all_lines(recorded)[0]["loaded"]
    import_as(spark, tmp_path / "lake", store_of("torn-cq-wrong-size"), BROKER, as_found=True)
    done = run(Lake(spark, str(tmp_path / "lake")), recorded, compare=True)
    assert done.comparison is not None
    assert (done.comparison.compared, done.comparison.differ) == (28, 0)
