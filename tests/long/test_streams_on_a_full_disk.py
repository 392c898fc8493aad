"""Streams on a disk that gets full: they end with an error that says so, and continue where they were when there is room again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.makers.held_store import CASES, held_store, pull
from tests.makers.lakes import import_as
from tests.makers.living_store import LivingStore
from tests.runs.following import assert_as_imported
from tests.runs.in_session import Pullsim, pullsim_in
from tests.runs.replaying import BROKER, DEMO_TRACE, all_lines, demo_data, import_into, write_lines
from tests.runs.small_disk import disk_of, filled, taken
from tests.runs.streamed_answers import answers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES, LINES = 8, 5
# shares of the room that a batch needs
SHARES = (0.0, 0.1, 0.25, 0.4, 0.6, 0.8)


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with disk_of(tmp_path / "disk", mebibytes=64) as place:
        yield place


def assert_ended_by_a_full_disk(told: tuple[int, str, str]) -> None:
    code, out, err = told
    assert (code in {2, 3}, out) == (True, ""), err
    assert code == 2 or "the engine failed: a disk is full (" in err
    assert "No space left on device" in err


def check_on_a_full_disk(
    spark: SparkSession, pullsim: Pullsim, lake: Path, disk: Path, files: list[list[dict[str, Any]]], *options: str, shares: Sequence[float]
) -> None:
    """Check that a stream of these files that ends again and again for lack of room gives the answers of a stream with enough room."""
    folder, enough = lake.parent / "incoming", lake.parent / "enough"
    folder.mkdir()
    for number, lines in enumerate(files):
        write_lines(folder / f"{number:02d}.jsonl", lines)

    def command(on: Path, files_max: int = 1) -> tuple[object, ...]:
        of_run = ("--checkpoint", on / "checkpoint", "--run-id", "r", "--max-files", files_max, "--once")
        return ("stream", "--lake", on / "lake", "--requests", folder, *of_run, *options)

    shutil.copytree(lake, enough / "lake")
    code, _, err = pullsim(*command(enough))
    assert code == 0, err
    needed, expected = (taken(enough) - taken(lake)) / len(files), answers(spark, enough / "lake", "r")
    assert len(expected) == sum(map(len, files))
    shutil.copytree(lake, disk / "lake")
    for share in shares:
        with filled(disk, left=int(share * needed)):
            assert_ended_by_a_full_disk(pullsim(*command(disk)))
        found = answers(spark, disk / "lake", "r")
        assert len(found) == len(set(map(repr, found)))
        assert set(map(repr, found)) < set(map(repr, expected))
    code, _, err = pullsim(*command(disk, len(files)))
    assert code == 0, err
    assert answers(spark, disk / "lake", "r") == expected


def test_a_stream_on_a_full_disk_loses_nothing(
    spark: SparkSession, disk: Path, pullsim: Pullsim, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = demo_data(tmp_path_factory)
    lines: list[dict[str, Any]] = all_lines(data / DEMO_TRACE)[1 : 1 + FILES * LINES]
    import_into(spark, tmp_path / "lake", data / "cleaned")
    files = [lines[first : first + LINES] for first in range(0, len(lines), LINES)]
    check_on_a_full_disk(spark, pullsim, tmp_path / "lake", disk, files, shares=SHARES)


def test_a_stream_that_holds_pulls_loses_none_on_a_full_disk(spark: SparkSession, disk: Path, pullsim: Pullsim, tmp_path: Path) -> None:
    import_as(spark, tmp_path / "lake", held_store(tmp_path / "store"))
    asked = [[case[0] for case in CASES[first : first + LINES]] for first in range(0, len(CASES), LINES)]
    files = [*asked, [pull(0, 60_000, sys_flag=0, topic="other")]]  # a pull later than the timeouts of all others
    check_on_a_full_disk(spark, pullsim, tmp_path / "lake", disk, files, "--at", "request-time", "--hold", shares=SHARES[::2])


def test_a_followed_store_on_a_full_disk_is_followed_on(
    spark: SparkSession, small_store: Path, disk: Path, pullsim: Pullsim, tmp_path: Path
) -> None:
    living, lake, enough = LivingStore(small_store, tmp_path / "store"), disk / "lake", tmp_path / "enough"
    offsets = living.record_offsets()

    def follow(lake: Path) -> tuple[int, str, str]:
        return pullsim("import", living.path, "--lake", lake, "--broker-name", BROKER, "--follow", "--once")

    living.cut_at(offsets[len(offsets) // 2])
    for place in (lake, enough):
        code, _, err = follow(place)
        assert code == 0, err
    living.cut_at(offsets[-1])
    before = taken(enough)
    code, _, err = follow(enough)
    assert code == 0, err
    needed = taken(enough) - before
    for share in SHARES:
        with filled(disk, left=int(share * needed)):
            assert_ended_by_a_full_disk(follow(lake))
    code, _, err = follow(lake)
    assert code == 0, err
    assert_as_imported(spark, pullsim, lake, living.path, tmp_path / "other")
