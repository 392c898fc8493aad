"""Export writes the very files that were imported if a start does not change the store, else the files that the broker's start leaves."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from pipeline.lake.lake import Lake
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.schema.tables import COMMIT_LOG, CONSUME_QUEUE_SEGMENT
from tests.makers.lakes import import_as, tiny_store
from tests.makers.started_stores import CLEAN, TORN, files_only, started
from tests.makers.store_trees import Tree, differing, tree
from tests.runs.in_session import pullsim_in
from tests.runs.replaying import BROKER, import_into, lake_of
from tests.runs.sampling import sampled, slow_proof
from tests.truth.golden import needs_golden, recovery, shared_dir
from tests.truth.golden5 import needs_golden5, store_of, stores_that_load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.schema.table import Table
    from tests.runs.in_session import Pullsim


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


@pytest.fixture(scope="module")
def tiny(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store and its lake."""
    folder = tmp_path_factory.mktemp("tiny")
    import_as(spark, folder / "lake", tiny_store(folder / "store", [("T", 0)]), BROKER)
    return folder


@pytest.fixture
def tiny_lake(tiny: Path, tmp_path: Path) -> Path:
    """A copy of the lake of `tiny`, which a test may change."""
    return Path(shutil.copytree(tiny / "lake", tmp_path / "lake"))


def exported(lake: Lake, store: Path) -> Tree:
    from pipeline.export.export_store import export_store

    export_store(OpenedBroker(lake, BROKER), str(store), run_id="export", progress=lambda _: None)
    assert sorted(path.name for path in store.parent.iterdir()) == [store.name]
    return tree(store)


@slow_proof
def test_the_store_beside_the_tests_comes_back_to_the_byte(
    spark: SparkSession, small_store: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lake = lake_of(spark, small_store, tmp_path_factory)
    assert differing(exported(lake, tmp_path / "store"), tree(small_store)) == []


@needs_golden
@pytest.mark.parametrize("name", sampled(CLEAN, 1))
def test_a_clean_store_comes_back_to_the_byte(
    spark: SparkSession, stores: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    lake = lake_of(spark, stores / name, tmp_path_factory)
    assert differing(exported(lake, tmp_path / "store"), tree(stores / name)) == []


@slow_proof  # tests/pipeline/importing/test_import_of_5.py exports the store "live" too
@needs_golden5
@pytest.mark.parametrize("name", stores_that_load())
def test_a_store_of_5_5_0_comes_back_to_the_byte(spark: SparkSession, tmp_path: Path, name: str) -> None:
    store = store_of(name)
    options = ["rulesVersion=5.5.0"]
    lake = import_into(spark, tmp_path / "lake", store, options=options)
    found = exported(lake, tmp_path / "out" / "store")
    # without a setting, an import takes enableConsumeQueueExt for true if the store has files of extensions
    expected = started(store, [*options, f"enableConsumeQueueExt={str((store / 'consumequeue_ext').is_dir()).lower()}"])
    if differing(expected, tree(store)) == ["abort"]:  # load and start change nothing, so the store still is one of a clean shutdown
        assert differing(found, tree(store)) == []
    else:
        assert differing(files_only(found, like=expected), files_only(expected, like=expected)) == []


@slow_proof
@needs_golden
def test_an_extension_comes_back_as_the_start_after_a_kill_leaves_it(spark: SparkSession, stores: Path, tmp_path: Path) -> None:
    store = tmp_path / "in" / "store"
    shutil.copytree(stores / "ext", store)
    (store / "abort").touch()
    import_as(spark, tmp_path / "lake", store, BROKER)
    found = exported(Lake(spark, str(tmp_path / "lake")), tmp_path / "out" / "store")
    expected = started(store, ["enableConsumeQueueExt=true"])
    before = tree(store)
    changed = {name for name, file in expected.items() if name.startswith("consumequeue_ext") and file != before.get(name)}
    assert changed  # messages that are dispatched again get new units
    assert differing(files_only(found, like=expected), files_only(expected, like=expected)) == []


@slow_proof  # without Spark: tests/pipeline/export/test_small_export.py
@needs_golden
@pytest.mark.parametrize("name", TORN)
def test_a_store_that_start_changes_comes_back_as_start_leaves_it(spark: SparkSession, stores: Path, tmp_path: Path, name: str) -> None:
    options = [f"{setting}={value}" for setting, value in recovery(name)["config"].items() if setting in {"brokerRole", "brokerId"}]
    import_as(spark, tmp_path / "lake", stores / name, BROKER)
    found = exported(Lake(spark, str(tmp_path / "lake")), tmp_path / "out" / "store")
    expected = started(stores / name, options)
    assert differing(files_only(found, like=expected), files_only(expected, like=expected)) == []


def test_every_kind_of_file_and_every_empty_folder_comes_back(spark: SparkSession, tmp_path: Path) -> None:
    store = tiny_store(tmp_path / "store", [("T", 0), ("%RETRY%g", 3)])
    contents = {
        "config/topics.json.bak": b"{}",
        "config/empty": b"",
        "lock": b"lock",
        "checkpoint": bytes(4096),
        "a file.txt": bytes(range(256)) * 20_000 + bytes(100_000) + b"end" + bytes(10),
        "consumequeue/stray": b"x",
        "consumequeue/T/notes": b"y",
        "consumequeue/T/not a queue/ü": b"z",
        "unknown/deep/er/file": bytes(5_000) + b"1",
    }
    for name, content in contents.items():
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_bytes(content)
    for folder in ("consumequeue/Empty", "consumequeue/U/7", "index", "unknown/none", "consumequeue_ext/T"):
        (store / folder).mkdir(parents=True)
    # bytes after the last entry of a queue, as a kill may leave them, and after the log's end
    queue_file = store / "consumequeue/T/0/00000000000000000000"
    queue_file.write_bytes(queue_file.read_bytes()[:-7] + b"garbage")
    import_as(spark, tmp_path / "lake", store, BROKER)
    found = exported(Lake(spark, str(tmp_path / "lake")), tmp_path / "out" / "store")
    assert differing(found, tree(store)) == []


@pytest.mark.parametrize("there", ["file", "folder with a file"])
def test_what_is_there_is_never_written_over(
    spark: SparkSession, small_store: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, pullsim: Pullsim, there: str
) -> None:
    lake = lake_of(spark, small_store, tmp_path_factory)
    store = tmp_path / "store"
    kept = store if there == "file" else store / "kept"
    kept.parent.mkdir(exist_ok=True)
    kept.write_bytes(b"kept")
    code, _, err = pullsim("export", "--lake", lake.root, store)
    assert (code, kept.read_bytes()) == (2, b"kept")
    assert "expected a name for a new directory, or an empty one" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


@pytest.mark.parametrize(
    ("store", "message"),
    [("s3://bucket/store", "found a URI"), ("{lake}/store", "outside the lake"), ("{lake}", "outside the lake")],
)
def test_places_where_no_store_can_be_written_are_refused(
    spark: SparkSession, small_store: Path, tmp_path_factory: pytest.TempPathFactory, pullsim: Pullsim, store: str, message: str
) -> None:
    lake = lake_of(spark, small_store, tmp_path_factory)
    code, _, err = pullsim("export", "--lake", lake.root, store.format(lake=lake.root))
    assert code == 2, err
    assert message in err


def changed_log(spark: SparkSession, lake: Path, *statements: str) -> Lake:
    """Change commit_log by SQL statements; returns a lake that sees the change."""
    found = Lake(spark, str(lake))
    table = f"delta.`{lake / COMMIT_LOG.name}`"
    for statement in statements:
        spark.sql(statement.format(table))
    newest = spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").first()
    assert newest is not None
    found.at = type(found.at)(found.at.version, {**found.at.tables, COMMIT_LOG.name: newest["version"]})
    return found


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        pytest.param(
            "UPDATE {} SET body = CAST(reverse(CAST(body AS STRING)) AS BINARY) WHERE queueOffset = 1",
            "expected the record whose recordCrc32 the row says, found a row with topic 'T', queueId 0",
            marks=slow_proof,
        ),
        ("DELETE FROM {} WHERE queueOffset = 1", "commit_log: expected 3 records, as commit_log_segment says, found 2"),
    ],
)
def test_rows_that_give_another_log_end_the_export_and_leave_nothing(
    spark: SparkSession, tiny_lake: Path, tmp_path: Path, statement: str, message: str
) -> None:
    from pipeline.export.export_store import export_store

    broken = changed_log(spark, tiny_lake, statement)
    with pytest.raises(Exception, match=message):
        export_store(OpenedBroker(broken, BROKER), str(tmp_path / "out"), run_id="export", progress=lambda _: None)
    assert [path.name for path in tmp_path.iterdir()] == ["lake"]


@slow_proof
def test_rows_that_delta_marks_as_deleted_are_left_out(spark: SparkSession, tiny: Path, tiny_lake: Path, tmp_path: Path) -> None:
    marks = "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableDeletionVectors' = true)"
    twice = "INSERT INTO {0} BY NAME SELECT * EXCEPT (reconsumeTimes), 99 AS reconsumeTimes FROM {0}"
    lake = changed_log(spark, tiny_lake, marks, twice, "OPTIMIZE {}", "DELETE FROM {} WHERE reconsumeTimes = 99")
    assert list((tiny_lake / "commit_log").rglob("deletion_vector*.bin"))
    assert differing(exported(lake, tmp_path / "out" / "store"), tree(tiny / "store")) == []


def cut(file: Path) -> bytes:
    return file.read_bytes()[:-100]


def damaged(column: str) -> Callable[[Path], bytes]:
    """A function that returns the bytes of a file with one bit of a column flipped."""

    def content(file: Path) -> bytes:
        group = pq.read_metadata(file).row_group(0)
        (chunk,) = (one for one in map(group.column, range(group.num_columns)) if one.path_in_schema == column)
        raw = bytearray(file.read_bytes())
        raw[chunk.data_page_offset + chunk.total_compressed_size - 3] ^= 0x40
        return bytes(raw)

    return content


@pytest.mark.parametrize(
    ("table", "content"),
    sampled([(COMMIT_LOG, cut), (COMMIT_LOG, damaged("body")), (CONSUME_QUEUE_SEGMENT, damaged("entries"))], 1),
)
def test_a_data_file_that_cannot_be_read_is_named(
    spark: SparkSession, tiny_lake: Path, tmp_path: Path, table: Table, content: Callable[[Path], bytes]
) -> None:
    from pipeline.export.export_store import export_store

    (file,) = (tiny_lake / table.name).rglob("part-*.parquet")
    file.write_bytes(content(file))
    with pytest.raises(Exception, match=f"{file.name}: expected a Parquet file of the table, found"):
        export_store(OpenedBroker(Lake(spark, str(tiny_lake)), BROKER), str(tmp_path / "out"), run_id="export", progress=lambda _: None)
    assert [path.name for path in tmp_path.iterdir()] == ["lake"]
    with pytest.raises(Exception, match=f"reading file file:.*{file.name}"):
        Lake(spark, str(tiny_lake)).table(table).collect()


@slow_proof
@pytest.mark.parametrize("layout", sampled(["partitioned", "clustered"], 1))
def test_a_broker_of_several_is_exported_by_its_name(spark: SparkSession, tmp_path: Path, pullsim: Pullsim, layout: str) -> None:
    first, second = (tiny_store(tmp_path / name, [(name, 0)]) for name in ("one", "two"))
    lake = tmp_path / "lake"
    for store in (first, second):
        code, _, err = pullsim("import", store, "--lake", lake, "--layout", layout)
        assert code == 0, err
    assert pullsim("export", "--lake", lake, tmp_path / "out")[0] == 2
    code, out, err = pullsim("export", "--lake", lake, tmp_path / "out", "--broker", "two")
    assert code == 0, err
    assert "3 messages" in out
    assert differing(tree(tmp_path / "out"), tree(second)) == []
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "out").mkdir()
    assert pullsim("export", "--lake", lake, tmp_path / "out", "--broker", "one")[0] == 0
    assert differing(tree(tmp_path / "out"), tree(first)) == []


def test_the_golden_stores_are_named_rightly() -> None:
    if (shared := shared_dir()) is not None:
        assert all((shared / "golden" / "store" / "recover" / f"{name}.json").exists() for name in (*CLEAN, *TORN))
