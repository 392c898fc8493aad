"""`pullsim export` of small stores: this process writes them without Java, byte for byte as Spark's tasks do."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipeline.commands.engine import Engine
from pipeline.export import small_export as module
from pipeline.lake.lake import Lake
from pipeline.main import run
from pipeline.schema.tables import COMMIT_LOG
from pipeline.tasks import small_work
from tests.makers.lakes import tiny_store
from tests.makers.started_stores import CLEAN, TORN, files_only, started
from tests.makers.store_trees import Tree, differing, tree
from tests.runs.sampling import sampled
from tests.truth.golden import needs_golden, recovery
from tests.truth.golden5 import needs_golden5, store_of, stores_that_load


@pytest.fixture(autouse=True)
def _no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "session", None)


def imported(store: Path, lake: Path, *options: str) -> Path:
    assert run(["import", str(store), "--lake", str(lake), "--broker-name", store.name, *options]) == 0
    return lake


def exported(lake: Path, store: Path, *options: str) -> Tree:
    assert run(["export", str(store), "--lake", str(lake), *options]) == 0
    assert sorted(path.name for path in store.parent.iterdir()) == [store.name]
    return tree(store)


@needs_golden
@pytest.mark.parametrize("name", sampled(CLEAN, 4))
def test_a_clean_store_comes_back_to_the_byte(stores: Path, tmp_path: Path, name: str) -> None:
    found = exported(imported(stores / name, tmp_path / "lake"), tmp_path / "out" / "store")
    assert differing(found, tree(stores / name)) == []


@needs_golden
@pytest.mark.parametrize("name", sampled(TORN, 3))
def test_a_store_that_start_changes_comes_back_as_start_leaves_it(stores: Path, tmp_path: Path, name: str) -> None:
    options = [f"{setting}={value}" for setting, value in recovery(name)["config"].items() if setting in {"brokerRole", "brokerId"}]
    lake = imported(stores / name, tmp_path / "lake", *(word for option in options for word in ("--set", option)))
    expected = started(stores / name, options)
    found = exported(lake, tmp_path / "out" / "store")
    assert differing(files_only(found, like=expected), files_only(expected, like=expected)) == []


@needs_golden
@pytest.mark.parametrize("name", sampled(TORN, 2))
def test_a_store_that_was_imported_as_found_comes_back_to_the_byte(stores: Path, tmp_path: Path, name: str) -> None:
    found = exported(imported(stores / name, tmp_path / "lake", "--as-found"), tmp_path / "out" / "store")
    assert differing(found, tree(stores / name)) == []


@needs_golden5
@pytest.mark.parametrize("name", sampled(stores_that_load(), 2))
def test_a_store_of_5_5_0_that_was_imported_as_found_comes_back_to_the_byte(tmp_path: Path, name: str) -> None:
    store = store_of(name)
    found = exported(imported(store, tmp_path / "lake", "--as-found", "--rules", "5.5.0"), tmp_path / "out" / "store")
    assert differing(found, tree(store)) == []


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """A store, and a lake of it."""
    store = tiny_store(tmp_path / "store", [("T", 0)])
    lake = imported(store, tmp_path / "lake")
    return store, lake


def test_rows_of_other_brokers_are_left_out(two: tuple[Path, Path], tmp_path: Path) -> None:
    store, lake = two
    path = lake / COMMIT_LOG.name
    others = pa.table(DeltaTable(path).to_pyarrow_table())
    others = others.set_column(others.schema.get_field_index("brokerName"), others.schema.field("brokerName"), [["zz"] * len(others)])
    write_deltalake(path, others, mode="append")
    found = Lake(None, str(lake))
    version = DeltaTable(path).version()
    found.at = type(found.at)(found.at.version, {**found.at.tables, COMMIT_LOG.name: version})
    from pipeline.export.export_store import export_store
    from pipeline.lake.opened_broker import OpenedBroker

    done = export_store(OpenedBroker(found, "store"), str(tmp_path / "out"), run_id="export", progress=lambda _: None)
    assert done.messages == 3
    assert differing(tree(tmp_path / "out"), tree(store)) == []


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"MOST_BYTES": 100}, "the log has more than 100 B"),
        ({"MOST_FILES": 1}, "the store has more than 1 files"),
    ],
)
def test_a_larger_store_is_left_to_spark(
    two: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int], reason: str
) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(small_work, name, value)
    told: list[str] = []
    done = module.export_small_store(str(two[1]), None, str(tmp_path / "out"), run_id="r", progress=told.append, tell=told.append)
    assert (done, told) == (None, [f"Spark exports: {reason}"])


def test_a_lake_that_only_spark_opens_is_left_to_it(two: tuple[Path, Path], tmp_path: Path) -> None:
    lake = Path(shutil.move(two[1], tmp_path / "50% lake"))
    told: list[str] = []
    done = module.export_small_store(str(lake), None, str(tmp_path / "out"), run_id="r", progress=told.append, tell=told.append)
    assert done is None
    assert [line.partition(": ")[0] for line in told] == ["Spark exports"]
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_lost_ends_the_export_and_leaves_nothing(
    two: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in (two[1] / COMMIT_LOG.name).rglob("*.parquet"):
        file.unlink()
    (tmp_path / "out").mkdir()
    assert run(["export", str(tmp_path / "out" / "store"), "--lake", str(two[1])]) == 2
    assert "expected a Parquet file of the table, found" in capsys.readouterr().err
    assert [*(tmp_path / "out").iterdir()] == []
