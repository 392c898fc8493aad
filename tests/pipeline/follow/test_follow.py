"""`pullsim import --follow`: after all batches the tables are those of an import of the store, whatever happened on the way."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.lake.lake import Lake
from pipeline.schema.follow_tables import FOLLOW_EVENT
from tests.makers.living_store import LivingStore, stages
from tests.runs.following import assert_as_imported, rewrite_stamps
from tests.runs.in_session import pullsim_in
from tests.runs.prometheus import parse
from tests.runs.replaying import BROKER
from tests.runs.sampling import slow_proof

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.runs.in_session import Pullsim


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


@pytest.mark.parametrize("batches", [2, pytest.param(1, marks=slow_proof), pytest.param(9, marks=slow_proof)])
def test_what_was_followed_is_what_an_import_gives(
    spark: SparkSession, small_store: Path, tmp_path: Path, pullsim: Pullsim, batches: int
) -> None:
    living, lake = LivingStore(small_store, tmp_path / "store"), tmp_path / "lake"
    offsets = living.record_offsets()
    if batches > 2:  # a broker makes the first file of its log for the first message
        (living.path / "commitlog" / f"{0:020d}").unlink()
        assert pullsim("import", living.path, "--lake", lake, "--broker-name", BROKER, "--follow", "--once")[0] == 0
    metrics = tmp_path / "follow.prom"
    for number, end in enumerate(stages(offsets, batches)):
        living.cut_at(end, half=37 if number % 2 else 0)
        # a group moves on, one stays, one goes, one comes
        living.commit_offsets({"TopicTest@group": {"0": number}, "TopicTest@stays": {"0": 3}, f"TopicTest@{number}": {"1": 5}})
        follow = ("import", living.path, "--lake", lake, "--broker-name", BROKER, "--follow", "--once", "--metrics", metrics)
        code, out, err = pullsim(*follow)
        assert code == 0, err
        assert ("imported again" in out + err) == (batches > 2 and number == 0), "only a log that begins is"
    assert_told(metrics, offsets, [0, *stages(offsets, batches)][-2:] if batches > 1 else [offsets[-1]] * 2)
    code, _, err = pullsim("export", "--lake", lake, tmp_path / "out")
    if batches > 1:
        assert code == 2 and "found 'broker-a' followed; import it again" in err  # noqa: PT018
    else:  # nothing came after the import
        assert code == 0, err
    assert_as_imported(spark, pullsim, lake, living.path, tmp_path / "other")


def assert_told(metrics: Path, offsets: list[int], ends: list[int]) -> None:
    """Assert that the metrics of the last run count the records between two ends of the log."""
    found = {name: sum(metric.series.values()) for name, metric in parse(metrics.read_text("utf-8")).items()}
    before, end = ends
    told = {"running": 0, "failed": 0, "log_offset": end, "bytes_total": end - before, "whole_imports_total": 0}
    told["messages_total"] = sum(before <= offset < end for offset in offsets)
    assert {name: found[f"pullsim_follow_{name}"] for name in told} == told


@slow_proof
def test_a_log_that_was_cut_and_written_on_is_imported_again(
    spark: SparkSession, small_store: Path, tmp_path: Path, pullsim: Pullsim
) -> None:
    living, lake = LivingStore(small_store, tmp_path / "store"), tmp_path / "lake"
    offsets = living.record_offsets()
    half, more = offsets[len(offsets) // 2], offsets[-40]
    follow = ("import", living.path, "--lake", lake, "--broker-name", BROKER, "--follow", "--once")
    for end in (half, more):
        living.cut_at(end)
        assert pullsim(*follow)[0] == 0
    # what the broker wrote after its restart: the same messages, stored later
    living.cut_at(half)
    rewrite_stamps(small_store, tmp_path / "rewritten", half)
    living.grown = tmp_path / "rewritten"
    living.cut_at(offsets[-1])
    code, out, err = pullsim(*follow)
    assert code == 0, err
    assert "TRUNCATED" in err
    assert "1 times the whole store was imported again" in out
    assert_as_imported(spark, pullsim, lake, living.path, tmp_path / "other")
    (event,) = Lake(spark, str(lake)).table(FOLLOW_EVENT).collect()
    assert (event["event"], event["maxPhyOffset"]) == ("TRUNCATED", offsets[-1])
    assert half < event["physicOffset"] < more


@slow_proof
def test_a_log_whose_first_file_is_deleted_is_imported_again(
    spark: SparkSession, small_store: Path, tmp_path: Path, pullsim: Pullsim
) -> None:
    living, lake = LivingStore(small_store, tmp_path / "store"), tmp_path / "lake"
    offsets = living.record_offsets()
    follow = ("import", living.path, "--lake", lake, "--broker-name", BROKER, "--follow", "--once")
    living.cut_at(offsets[-30])
    assert pullsim(*follow)[0] == 0
    living.cut_at(offsets[-1])
    first, second, *_ = sorted((living.path / "commitlog").iterdir())
    first.unlink()
    code, _, err = pullsim(*follow)
    assert code == 0, err
    assert f"CLEANED: the log begins at {int(second.name)} now, it began at 0" in err
    assert_as_imported(spark, pullsim, lake, living.path, tmp_path / "other")
