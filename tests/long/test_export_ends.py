"""Exports that end before they are done, killed at random moments or on a full disk: there never is a folder of the store's name."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.generate.generate import run_generate
from pipeline.generate.workload import DEFAULT_WORKLOAD, workload_of
from pipeline.settings.settings import BrokerSettings
from tests.makers.lakes import import_as
from tests.makers.store_trees import differing, tree
from tests.runs.small_disk import disk_of
from tests.truth.golden import unpack_small
from tests.truth.places import PROJECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTS = ((), ("--from", "1"))


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    settings = BrokerSettings({"mappedFileSizeCommitLog": 1 << 22, "maxHashSlotNum": 1000, "maxIndexNum": 40_000})
    run_generate(str(folder / "store"), workload_of(DEFAULT_WORKLOAD, "here"), messages=30_000, settings=settings)
    import_as(spark, folder / "lake", folder / "store")
    return folder / "lake"


def export(lake: Path, out: Path, *options: str) -> subprocess.Popen[str]:
    command: list[str | Path] = [sys.executable, "-m", "pipeline.main", "export", "--lake", lake, out, *options]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=PROJECT, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


@pytest.mark.parametrize("options", PARTS, ids=["whole", "part"])
@pytest.mark.parametrize("seed", range(4))
def test_a_killed_export_leaves_nothing_under_the_name_of_the_store(
    lake: Path, tmp_path: Path, seed: int, options: tuple[str, ...]
) -> None:
    process = export(lake, tmp_path / "store", *options)
    while process.poll() is None and not list(tmp_path.glob(".pullsim-*.part")):
        time.sleep(0.01)
    time.sleep(random.Random(seed).uniform(0, 3))
    was_running = process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    if was_running:
        assert not (tmp_path / "store").exists()
    else:
        assert process.returncode == 0
    again = export(lake, tmp_path / "again", *options)
    assert again.wait() == 0, again.stderr
    if not options:
        assert differing(tree(tmp_path / "again"), tree(lake.parent / "store")) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with less room than the store of `lake` takes."""
    with disk_of(tmp_path / "disk", mebibytes=6) as place:
        yield place


@pytest.mark.parametrize("options", PARTS, ids=["whole", "part"])
def test_a_full_disk_is_an_error_that_names_a_file_and_leaves_nothing(lake: Path, small_disk: Path, options: tuple[str, ...]) -> None:
    process = export(lake, small_disk / "store", *options)
    _, err = process.communicate()
    assert process.returncode == 2, err
    assert "expected a file that can be written, found No space left on device" in err
    assert list(small_disk.iterdir()) == []


def test_the_small_store_fits(spark: SparkSession, small_disk: Path, tmp_path: Path) -> None:
    """The disk is small, not broken."""
    import_as(spark, tmp_path / "lake", unpack_small(tmp_path / "small"))
    process = export(tmp_path / "lake", small_disk / "store")
    assert process.wait() == 0
