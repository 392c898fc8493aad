"""Imports of small stores by the driver: the tables are those that Spark's tasks write, and no Java is needed."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from pipeline.importing import import_store as whole_module
from pipeline.importing.import_store import Imported, import_store
from pipeline.importing.small_store import import_small_store
from pipeline.importing.store_source import read_stretch
from pipeline.lake import lake_writer
from pipeline.lake.lake import Lake, LakeError
from pipeline.main import run
from pipeline.settings.settings import BrokerSettings
from pipeline.tasks import small_work
from store_format.errors import StoreError
from tests.makers.lakes import MESSAGES, commits, file_rows, import_as, live_files, tiny_store
from tests.runs.replaying import BROKER, NOON, answers_of
from tests.runs.sampling import sampled
from tests.truth.golden import needs_golden, recovery
from tests.truth.golden5 import needs_golden5, store_of, stores_that_load
from tests.truth.places import PROJECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.schema.tables import Layout

QUEUES = [("T", 0), ("T", 1), ("%RETRY%g", 0)]
# stores with an extension, with holes in the log, with index files; and stores that start changes
STORES = ("ext", "holes", "cleaned", "torn-half-message-clean", "torn-abort-cq-behind")


def by_driver(lake: Path | str, store: Path, broker: str = "b", *, layout: Layout | None = None, as_found: bool = False) -> Imported | str:
    """The result of an import by the driver, or the reason why Spark has to import."""
    told: list[str] = []
    settings = BrokerSettings.from_sources()
    run = partial(import_store, store_path=str(store), broker=broker, layout=layout, settings=settings, as_found=as_found)
    importing = partial(run, run_id="small", now=lambda: NOON, progress=lambda _: None)
    done = import_small_store(importing, str(lake), str(store), broker=broker, layout=layout, tell=told.append)
    assert told[-1].startswith("Spark imports: ") if done is None else told == ["the driver imports, without Java"]
    return told[-1].removeprefix("Spark imports: ") if done is None else done


def table_rows(lake: Path, name: str) -> list[str]:
    """The rows of a table at the lake's version, each as a text."""
    folder = lake / name
    live = live_files(folder, Lake(None, str(lake)).at.tables[name])
    return sorted(repr(sorted(row.items())) for add in live.values() for row in file_rows(folder, add))


def facts(lake: Path, name: str) -> tuple[Any, ...]:
    """The facts in a table's log, without those of the run."""
    table = DeltaTable(str(lake / name))
    found, protocol = table.metadata(), table.protocol()
    properties = {key: value for key, value in found.configuration.items() if key != "pullsim.runId"}
    return table.schema().to_json(), found.partition_columns, properties, found.description, tuple(protocol)


def assert_same(found: Path, wanted: Path) -> None:
    mine, theirs = (Lake(None, str(lake)).at.tables for lake in (found, wanted))
    assert mine.keys() == theirs.keys()
    for name in mine:
        assert table_rows(found, name) == table_rows(wanted, name), name
        assert facts(found, name) == facts(wanted, name), name


def assert_both_import(spark: SparkSession, tmp_path: Path, store: Path, *, as_found: bool = False) -> None:
    done = by_driver(tmp_path / "small", store, as_found=as_found)
    assert done == import_as(spark, tmp_path / "wanted", store, as_found=as_found, by_spark=True)
    assert_same(tmp_path / "small", tmp_path / "wanted")


@needs_golden
@pytest.mark.parametrize(("name", "as_found"), sampled(product(STORES, (False, True)), 1))
def test_the_tables_are_those_that_tasks_of_spark_write(
    spark: SparkSession, stores: Path, tmp_path: Path, name: str, as_found: bool
) -> None:
    assert_both_import(spark, tmp_path, stores / recovery(name)["store"], as_found=as_found)


@needs_golden5
@pytest.mark.parametrize("name", sampled(stores_that_load(), 1))
def test_the_tables_of_a_broker_5_are_those_that_tasks_of_spark_write(spark: SparkSession, tmp_path: Path, name: str) -> None:
    assert_both_import(spark, tmp_path, store_of(name), as_found=name != "live")


def test_a_store_without_a_message_and_one_without_a_queue_are_imported(spark: SparkSession, tmp_path: Path) -> None:
    stores = (tiny_store(tmp_path / "a", []), tiny_store(tmp_path / "b", [], without_queue=[b"gone"]))
    for number, store in enumerate(sampled(stores, 1)):
        (tmp_path / str(number)).mkdir()
        assert_both_import(spark, tmp_path / str(number), store)


def test_an_import_replaces_the_rows_of_its_broker(spark: SparkSession, tmp_path: Path) -> None:
    first, second = tiny_store(tmp_path / "a", QUEUES), tiny_store(tmp_path / "b", QUEUES[:1])
    for store, version in ((first, 1), (second, 2)):
        done = by_driver(tmp_path / "small", store)
        assert isinstance(done, Imported)
        assert done.lake_version == version
    import_as(spark, tmp_path / "wanted", second, by_spark=True)
    for name in Lake(None, str(tmp_path / "wanted")).at.tables:
        wanted = [row.replace(str(tmp_path / "a"), "") for row in table_rows(tmp_path / "wanted", name)]
        assert table_rows(tmp_path / "small", name) == wanted, name
    assert commits(tmp_path / "small" / "lake_version")


@pytest.fixture(scope="module")
def clustered(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store, and with the clustered lake that Spark made of it as `lake`."""
    folder = tmp_path_factory.mktemp("clustered")
    import_as(spark, folder / "lake", tiny_store(folder / "store", QUEUES), BROKER, layout="clustered")
    return folder


# tests/pipeline/replay compares many pulls, in the long run
def test_a_pull_of_a_clustered_lake_gets_the_messages_of_its_queue(spark: SparkSession, clustered: Path, tmp_path: Path) -> None:
    request = {"group": "g", "topic": "T", "queueId": 1, "offset": 0, "maxMsgNums": 32, "filter": None}
    [line] = answers_of(Lake(spark, str(clustered / "lake")), [{"request": request}], tmp_path)
    units = (clustered / "store" / "consumequeue" / "T" / "1" / ("0" * 20)).read_bytes()[: 20 * MESSAGES]
    wanted = [offset for offset, _, _ in struct.iter_unpack(">qiq", units)]
    assert [message["physicOffset"] for message in line["response"]["messages"]] == wanted


def test_spark_imports_what_only_spark_writes(clustered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, lake = clustered / "store", tmp_path / "lake"
    assert by_driver(lake, store, layout="clustered") == "the layout is clustered"
    assert by_driver(tmp_path / "50%", store) == "deltalake does not open the lake's path"
    assert by_driver("hdfs://nobody/lake", store) == "the store and the lake must be local folders, or on S3"
    assert by_driver(clustered / "lake", store, BROKER) == "only Spark writes the table commit_log of this lake"
    assert isinstance(by_driver(lake, store), Imported)
    assert by_driver(lake, store, broker="another") == "the lake has other brokers"
    monkeypatch.setattr(small_work, "MOST_FILES", 5)
    assert by_driver(lake, store) == "the store has more than 2.0 GiB, or more than 5 files"
    monkeypatch.undo()
    monkeypatch.setattr(small_work, "MOST_BYTES", 1 << 10)
    assert str(by_driver(lake, store)).startswith("the store has more than 1.0 KiB")


def test_folders_whose_links_meet_again_are_refused_at_the_first_link(tmp_path: Path) -> None:
    store = tiny_store(tmp_path / "store", QUEUES)
    for number in range(40):
        (store / f"d{number}").mkdir()
        for name in "ab":
            (store / f"d{number}" / name).symlink_to(f"../d{number + 1}")
    (store / "d40").mkdir()
    with pytest.raises(StoreError, match=r"d0/[ab]: expected a file or a folder, found a link to the folder .*/d1; move the folder"):
        by_driver(tmp_path / "lake", store)


def test_links_to_a_file_of_the_store_and_to_the_store_are_followed(tmp_path: Path) -> None:
    store = tiny_store(tmp_path / "store", QUEUES)
    (store / "lock").write_bytes(b"lock")
    (store / "locked").symlink_to("lock")
    (tmp_path / "link").symlink_to(store)
    assert isinstance(by_driver(tmp_path / "lake", tmp_path / "link"), Imported)
    assert any("'locked'" in row for row in table_rows(tmp_path / "lake", "store_file"))


def test_a_topic_that_names_no_folder_leaves_the_import_to_spark_and_the_lake_as_it_was(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    assert isinstance(by_driver(lake, tiny_store(tmp_path / "a", QUEUES)), Imported)
    odd = tiny_store(tmp_path / "b", [("a b", 0)])
    files = sorted(lake.rglob("*"))
    assert str(by_driver(lake, odd)).endswith(" a topic cannot name a folder")
    assert sorted(lake.rglob("*")) == files
    assert Lake(None, str(lake)).at.version == 1


def test_every_fiftieth_import_joins_the_files_of_the_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_writer, "COMPACTED_EVERY", 2)
    lake, store = tmp_path / "lake", tiny_store(tmp_path / "store", QUEUES)
    for version in (1, 2, 3):
        done = by_driver(lake, store)
        assert isinstance(done, Imported)
        assert done.lake_version == version
    versions = lake / "lake_version"
    found = [row["version"] for add in live_files(versions, 4).values() for row in file_rows(versions, add)]
    assert sorted(found) == [1, 2, 3]
    assert len(DeltaTable(str(lake / "lake_version")).file_uris()) == 2


@pytest.mark.parametrize("table", ["queue", "commit_log"])
def test_a_damaged_table_is_named(tmp_path: Path, table: str) -> None:
    lake, store = tmp_path / "lake", tiny_store(tmp_path / "store", QUEUES)
    by_driver(lake, store)
    (lake / table / "_delta_log" / f"{0:020d}.json").write_text("{")
    with pytest.raises(LakeError, match=f"/{table}: cannot read the log of the Delta table"):
        by_driver(lake, store)


def test_the_error_of_an_unusable_store_is_raised_and_the_lake_is_as_before(tmp_path: Path) -> None:
    lake, store = tmp_path / "lake", tiny_store(tmp_path / "a", QUEUES)
    assert isinstance(by_driver(lake, store), Imported)
    (store / "commitlog" / "00000000000000000007").write_bytes(b"odd")
    with pytest.raises(StoreError, match="00000000000000000007"):
        by_driver(lake, store)
    assert Lake(None, str(lake)).at.version == 1


def test_ctrl_c_ends_an_import_at_the_next_batch_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The signal comes while a table is written whose rows would go on for a minute."""
    lake, store = tmp_path / "lake", tiny_store(tmp_path / "store", QUEUES)
    words = ["import", str(store), "--lake", str(lake), "--broker-name", "b"]
    assert run(words) == 0
    before = {name: table_rows(lake, name) for name in ("commit_log", "consume_queue", "queue")}
    after, most = 0, 600

    def slow(*given: Any) -> Iterator[Any]:
        nonlocal after
        for name, batch in read_stretch(*given):
            yield name, batch
            if not after:
                os.kill(os.getpid(), signal.SIGINT)
            while after < most:
                after += 1
                time.sleep(0.1)
                yield name, batch

    monkeypatch.setattr(whole_module, "read_stretch", slow)
    capsys.readouterr()
    assert run(words) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "pullsim: stopped"
    assert 0 < after < most
    assert Lake(None, str(lake)).at.version == 1
    assert {name: table_rows(lake, name) for name in before} == before
    committed = set(map(str, (path for path in DeltaTable(str(lake / "commit_log")).file_uris())))
    assert {str(path) for path in (lake / "commit_log").rglob("*.parquet")} == committed, "what was half written is gone"
    monkeypatch.undo()
    assert run(words) == 0


def test_a_small_import_needs_no_java(tmp_path: Path) -> None:
    store = tiny_store(tmp_path / "store", QUEUES)
    words = ["import", str(store), "--lake", str(tmp_path / "lake")]
    script = f"from pipeline.main import run; print(run({words!r}))"
    env = {"PATH": "", "PYTHONPATH": str(PROJECT)}
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "0", done.stderr
    assert "starting Spark" not in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"store", "lake"}


@pytest.mark.parametrize(("own", "is_told"), [("broker-a", True), ("b", False)])
def test_a_name_that_is_not_the_broker_s_own_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], own: str, is_told: bool) -> None:
    store = tiny_store(tmp_path / "store", QUEUES)
    words = ["import", str(store), "--lake", str(tmp_path / "lake"), "--broker-name", "b", "--set", f"brokerName={own}"]
    assert run(words) == 0
    err = capsys.readouterr().err
    assert ("the broker is 'b' in the lake, as --broker-name says; its own settings name it 'broker-a'" in err) == is_told
