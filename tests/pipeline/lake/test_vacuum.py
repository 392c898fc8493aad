"""Vacuum deletes files that no version of the lake needs, and keeps those of the last hours, also when runs died or still write."""

from __future__ import annotations

import datetime as dt
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.delta.unneeded_files import UnneededFile, delete_files, unneeded_log
from pipeline.lake.lake import Lake, LakeError
from pipeline.lake.lake_writer import LakeWriter
from pipeline.lake.vacuum import Vacuumed, vacuum
from pipeline.main import run
from pipeline.schema import tables as t
from pipeline.schema.arrow_types import arrow_schema
from tests.makers.aged_lakes import age, age_file, import_here, name_another_table, replaced_lake
from tests.makers.lakes import contents, import_as, live_files, rows, tiny_store
from tests.runs.replaying import NOON

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUEUES = [("TopicA", 0), ("TopicA", 1)]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return replaced_lake(tmp_path / "lake", tiny_store(tmp_path / "store", QUEUES))


def vacuumed(lake: Path, hours: int = 2, *, dry_run: bool = False) -> dict[str, Vacuumed]:
    return {one.table: one for one in vacuum(str(lake), hours, now=dt.datetime.now(dt.UTC), dry_run=dry_run)}


def files_of(lake: Path, pattern: str = "*.parquet") -> set[Path]:
    return {path for path in lake.rglob(pattern) if path.parent.name != "_delta_log"}


def needed(lake: Path) -> set[Path]:
    """The files of all tables at the newest version of the lake, by Delta's protocol."""
    at = dict(Lake(None, str(lake)).at.tables)
    at["lake_version"] = max(int(path.stem) for path in (lake / "lake_version/_delta_log").glob("*.json"))
    return {lake / name / path for name, version in at.items() for path in live_files(lake / name, version)}


def listed(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


@pytest.mark.parametrize("part", ["", "/_delta_log"])
def test_files_of_another_table_to_which_a_link_leads_stay(lake: Path, tmp_path: Path, part: str) -> None:
    other = replaced_lake(tmp_path / "other", tiny_store(tmp_path / "other-store", QUEUES)) / "queue"
    (lake / f"queue{part}").rename(tmp_path / "former")
    (lake / f"queue{part}").symlink_to(f"{other}{part}")
    age(lake, 30)
    age(tmp_path / "other", 30)
    before = listed(other)
    told = vacuumed(lake)["queue"]
    assert listed(other) == before
    assert (told.files, told.log_files) == (0, 0)
    assert told.note is not None


def test_names_of_tables_that_a_lake_tells_lead_nowhere_else(lake: Path, tmp_path: Path) -> None:
    other = replaced_lake(tmp_path / "other", tiny_store(tmp_path / "other-store", QUEUES)) / "queue"
    age(lake, 30)
    age(tmp_path / "other", 30)
    before = listed(other)
    name_another_table(lake, "../other/queue")
    with suppress(LakeError):
        vacuumed(lake)
    assert listed(other) == before


def test_replaced_files_go_and_the_rows_stay(lake: Path) -> None:
    tables = dict(Lake(None, str(lake)).at.tables)
    before = contents(lake, tables)
    age(lake, 3)
    told = vacuumed(lake, dry_run=True)
    assert files_of(lake) > needed(lake)
    assert vacuumed(lake) == told
    assert files_of(lake) == needed(lake)
    assert contents(lake, tables) == before
    assert sum(one.files for one in told.values()) > 5
    assert all(one.files == 0 for one in vacuumed(lake).values())


def test_files_that_were_replaced_within_the_hours_stay(lake: Path) -> None:
    there = files_of(lake)
    age(lake, 1)
    assert all(one.files == one.log_files == 0 for one in vacuumed(lake).values())
    assert files_of(lake) == there


def test_files_in_no_commit_go_once_they_are_old(lake: Path) -> None:
    old, young = lake / "broker" / "part-old.parquet", lake / "broker" / "part-young.parquet"
    for path in (old, young):
        path.write_bytes(b"left")
    age_file(old, 3)
    assert vacuumed(lake)["broker"] == Vacuumed(table="broker", files=1, size=4)
    assert (old.exists(), young.exists()) == (False, True)


def replaced_by_a_run_that_dies(lake: Path) -> None:
    """A run replaces the rows of `broker` and dies: readers see rows of files that the table's newest version does not have."""
    LakeWriter(Lake(None, str(lake)), run_id="dead", what="import", broker="b").replace_rows(t.BROKER, arrow_schema(t.BROKER).empty_table())


@pytest.mark.parametrize("copied", [False, True])
def test_rows_that_a_dead_run_replaced_stay(lake: Path, copied: bool) -> None:
    """A copy loses the files' times: its commits look new, but the removals that they name are old."""
    before = Lake(None, str(lake)).rows(t.BROKER).to_pylist()
    replaced_by_a_run_that_dies(lake)
    age(lake, 3)
    if copied:
        for path in (lake / "broker" / "_delta_log").iterdir():
            age_file(path, 0)
    told = vacuumed(lake)
    assert (told["broker"].files, told["broker"].note) == (1, None)
    assert Lake(None, str(lake)).rows(t.BROKER).to_pylist() == before


def test_a_reader_of_the_last_hours_sees_its_version_after_a_dead_run_and_an_import(lake: Path, tmp_path: Path) -> None:
    replaced_by_a_run_that_dies(lake)
    age(lake, 3)
    reader = Lake(None, str(lake))
    import_here(lake, tmp_path / "store", dt.datetime.now(dt.UTC))
    vacuumed(lake)
    assert reader.rows(t.BROKER).num_rows == 1
    assert Lake(None, str(lake)).at.version == 3


def test_what_is_no_data_of_the_table_stays(lake: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    others = [elsewhere / "x.parquet", lake / "broker" / "README", lake / "queue" / "notes.txt"]
    for path in others:
        path.write_text("text", "utf-8")
    (lake / "broker" / "linked").symlink_to(elsewhere)
    age(lake, 3)
    age(elsewhere, 3)
    vacuumed(lake)
    assert all(path.exists() for path in others)


def test_a_table_that_was_never_committed_is_named(lake: Path) -> None:
    LakeWriter(Lake(None, str(lake)), run_id="dead", what="replay", broker="b").prepare(t.REPLAY_RUN)
    assert "no version of the lake has it" in (vacuumed(lake)["replay_run"].note or "")


def test_versions_that_an_earlier_vacuum_took_from_the_log_are_not_asked_for(old: Path) -> None:
    vacuumed(old, 2)
    assert vacuumed(old, 24)["broker"] == Vacuumed(table="broker")


def test_a_log_that_is_deleted_in_part_goes_on_without_a_gap(old: Path) -> None:
    files = unneeded_log(str(old / "broker"), 56, dt.datetime.now(dt.UTC))
    with pytest.raises(IsADirectoryError):
        delete_files(str(old / "broker"), [*files[:10], UnneededFile("_delta_log", 0), *files[10:]], in_order=True)
    assert log_of(old, "broker")[0] == f"{10:020}.json"


def test_a_table_that_a_run_writes_just_now_keeps_what_readers_see(lake: Path) -> None:
    before = Lake(None, str(lake)).rows(t.BROKER).to_pylist()
    age(lake, 3)
    replaced_by_a_run_that_dies(lake)
    told = vacuumed(lake)["broker"]
    assert (told.files, told.note) == (1, None)
    assert Lake(None, str(lake)).rows(t.BROKER).to_pylist() == before


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with so many commits of the table `broker` that its log has a checkpoint at version 49. Tests copy it."""
    folder = tmp_path_factory.mktemp("committed")
    lake = replaced_lake(folder / "lake", tiny_store(folder / "store", QUEUES))
    commit(lake, 55)
    return lake


@pytest.fixture
def old(committed: Path, tmp_path: Path) -> Path:
    """A copy of the lake `committed`, all of whose files are three hours old."""
    lake = tmp_path / "old"
    shutil.copytree(committed, lake)
    age(lake, 3)
    return lake


def commit(lake: Path, times: int) -> None:
    """Commit versions of the lake in which only the table `broker` is written anew."""
    for _ in range(times):
        opened = Lake(None, str(lake))
        writer = LakeWriter(opened, run_id="later", what="import", broker="b")
        writer.replace_rows(t.BROKER, opened.rows(t.BROKER))
        writer.commit(NOON)


def log_of(lake: Path, name: str) -> list[str]:
    return sorted(path.name for path in (lake / name / "_delta_log").iterdir() if path.name[0].isdigit())


def test_a_log_begins_at_its_newest_old_checkpoint(old: Path) -> None:
    before, at = Lake(None, str(old)).rows(t.BROKER).to_pylist(), Lake(None, str(old)).at
    commit(old, 1)
    told = vacuumed(old)
    assert log_of(old, "broker")[:3] == [f"{49:020}.checkpoint.parquet", f"{49:020}.json", f"{50:020}.json"]
    assert told["broker"].log_files == 49
    newest = Lake(None, str(old))
    assert newest.at.version == at.version + 1
    assert newest.rows(t.BROKER).to_pylist() == before
    commit(old, 1)
    assert Lake(None, str(old)).rows(t.BROKER).to_pylist() == before


def test_a_checkpoint_without_its_end_is_a_damaged_table(old: Path) -> None:
    checkpoint = old / "broker" / "_delta_log" / f"{49:020}.checkpoint.parquet"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    there = log_of(old, "broker")
    with pytest.raises(LakeError, match="broker: cannot look through the Delta table"):
        vacuumed(old)
    assert log_of(old, "broker") == there


def test_a_checkpoint_within_the_hours_is_not_relied_on(lake: Path) -> None:
    age(lake, 3)
    commit(lake, 55)
    assert vacuumed(lake)["broker"].log_files == 0


def test_the_command_tells_what_goes_and_keeps_a_week_by_default(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    age(lake, 24)
    assert run(["vacuum", "--lake", str(lake)]) == 0
    assert capsys.readouterr().err == "pullsim: 0 files of 0 B were deleted\n"
    assert run(["vacuum", "--lake", str(lake), "--keep", "2", "--format", "csv"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "table,files,logFiles,bytes,note"
    assert "broker,1,0," in out
    assert "were deleted" in err


def test_what_is_no_lake_is_refused(tmp_path: Path, lake: Path) -> None:
    with pytest.raises(LakeError, match="found no table lake_version"):
        vacuumed(tmp_path / "nothing")
    (lake / "queue" / "_delta_log" / f"{1:020}.json").write_text("{", "utf-8")
    with pytest.raises(LakeError, match="queue: cannot look through the Delta table"):
        vacuumed(lake)


def test_a_file_that_cannot_be_deleted_is_named(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_path: str, _files: object, **_: object) -> None:
        raise PermissionError(13, "Permission denied", "part-0.parquet")

    age(lake, 3)
    monkeypatch.setattr("pipeline.lake.vacuum.delete_files", refused)
    with pytest.raises(LakeError, match=r"cannot delete a file: .*part-0\.parquet.*start the command again"):
        vacuumed(lake)


def test_clustered_tables_are_vacuumed_and_spark_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    lake, store = tmp_path / "lake", tiny_store(tmp_path / "store", QUEUES)
    for number in range(2):
        import_as(spark, lake, store, layout="clustered", run_id=f"run{number}", by_spark=True)
    before = rows(spark, lake, t.CONSUME_QUEUE)
    age(lake, 3)
    told = vacuumed(lake)
    assert told["consume_queue"].files > 0
    assert all(one.note is None for one in told.values())
    assert files_of(lake) == needed(lake)
    assert not [path for path in lake.rglob(".*.crc") if not path.with_name(path.name[1:-4]).exists()]
    assert sorted(map(repr, rows(spark, lake, t.CONSUME_QUEUE))) == sorted(map(repr, before))
    import_as(spark, lake, store, layout="clustered", run_id="run2", by_spark=True)
