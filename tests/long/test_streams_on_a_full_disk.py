"""Streams on a disk that gets full: they end with an error that says so, and go on where they were when there is room."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from following import assert_as_imported
from in_session import Pullsim, pullsim_in
from living_store import LivingStore
from replaying import BROKER, DEMO_TRACE, all_lines, demo_data, import_into, write_lines
from small_disk import disk_of, filled, taken
from test_stream import answers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES, LINES = 8, 5
# of what a batch needs
SHARES = (0.0, 0.1, 0.25, 0.4, 0.6, 0.8)


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with disk_of(tmp_path / "disk", mebibytes=64) as place:
        yield place


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("full") / "lake"
    import_into(spark, folder, demo_data(tmp_path_factory) / "cleaned")
    return folder


def assert_ended_by_a_full_disk(told: tuple[int, str, str]) -> None:
    code, out, err = told
    assert (code in {2, 3}, out) == (True, ""), err
    assert code == 2 or "the engine failed: a disk is full (" in err
    assert "No space left on device" in err


@pytest.mark.parametrize("hold", [False, True], ids=["", "hold"])
def test_a_stream_on_a_full_disk_loses_nothing(
    spark: SparkSession, lake: Path, disk: Path, pullsim: Pullsim, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, hold: bool
) -> None:
    lines: list[dict[str, Any]] = all_lines(demo_data(tmp_path_factory) / DEMO_TRACE)[1:]
    folder = tmp_path / "incoming"
    folder.mkdir()
    for number in range(FILES):
        write_lines(folder / f"{number}.jsonl", lines[number * LINES : (number + 1) * LINES])
    held = ("--at", "request-time", "--hold") if hold else ()

    def command(on: Path, files_max: int = 1) -> tuple[object, ...]:
        of_run = ("--checkpoint", on / "checkpoint", "--run-id", "r", "--max-files", files_max, "--once")
        return ("stream", "--lake", on / "lake", "--requests", folder, *of_run, *held)

    enough = tmp_path / "enough"
    shutil.copytree(lake, enough / "lake")
    assert pullsim(*command(enough))[0] == 0
    needed, expected = (taken(enough) - taken(lake)) / FILES, answers(spark, enough / "lake", "r")
    shutil.copytree(lake, disk / "lake")
    for share in SHARES[::2] if hold else SHARES:
        with filled(disk, left=int(share * needed)):
            assert_ended_by_a_full_disk(pullsim(*command(disk)))
        found = answers(spark, disk / "lake", "r")
        assert len(found) == len(set(map(repr, found)))
        assert set(map(repr, found)) < set(map(repr, expected))
    code, _, err = pullsim(*command(disk, FILES))
    assert code == 0, err
    assert answers(spark, disk / "lake", "r") == expected


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
