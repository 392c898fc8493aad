"""A store directory that many tasks write to at once: what one wrote is never taken back by another that fills the file with zeros."""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from pipeline.export import store_folder
from pipeline.export.store_folder import OpenFiles, StoreFolder
from store_format.errors import StoreError
from store_format.files.mapped_files import offset_to_file_name
from store_format.store_paths import COMMIT_LOG

LENGTH, USED, FILES, TASKS = 40_000, 30_000, 6, 4
NAMES = [offset_to_file_name(number * LENGTH) for number in range(FILES)]


def path_of(name: str) -> str:
    return f"{COMMIT_LOG}/{name}"


@pytest.fixture
def folder(tmp_path: Path) -> StoreFolder:
    made = StoreFolder(str(tmp_path))
    for name in NAMES:
        made.create(path_of(name), LENGTH, USED)
    return made


def contents(folder: StoreFolder) -> list[bytes]:
    """Of all files there are, in their order."""
    return [path.read_bytes() for path in sorted(Path(folder.root, COMMIT_LOG).iterdir())]


@pytest.mark.parametrize("seed", range(20))
def test_tasks_that_open_the_same_files_keep_what_each_other_wrote(folder: StoreFolder, seed: int) -> None:
    def task(number: int) -> None:
        order = random.Random(seed * TASKS + number).sample(NAMES, FILES)
        with OpenFiles(folder) as files:
            for name in order:
                files.log_file(name, LENGTH)[number:USED:TASKS] = number + 1
                files.write(path_of(name), USED + number, bytes([number + 1]))

    with ThreadPoolExecutor(TASKS) as pool:
        list(pool.map(task, range(TASKS)))
    written = np.zeros(LENGTH, np.uint8)
    written[: USED + TASKS] = np.arange(USED + TASKS) % TASKS + 1
    assert contents(folder) == [written.tobytes()] * FILES


def test_a_file_that_is_created_once_more_keeps_what_was_written(folder: StoreFolder) -> None:
    """Spark may run a task twice."""
    with OpenFiles(folder) as files:
        files.log_file(NAMES[0], LENGTH)[:USED] = 7
    folder.create(path_of(NAMES[0]), LENGTH, USED)
    with OpenFiles(folder) as files:
        files.log_file(NAMES[0], LENGTH)[:1] = 8
    folder.close(path_of(NAMES[0]), 0)
    assert Path(folder.root, path_of(NAMES[0])).read_bytes() == b"\x08" + b"\x07" * (USED - 1) + bytes(LENGTH - USED)


def test_a_marker_that_comes_late_takes_nothing_back(folder: StoreFolder) -> None:
    """A task that runs twice at once, and stands still in its first run between the file and its marker."""
    place = folder.path_of(path_of(NAMES[0]))
    with OpenFiles(folder) as files:
        files.log_file(NAMES[0], LENGTH)[100:USED] = 7
    Path(store_folder._marker(place)).write_text(str(USED))
    with OpenFiles(folder) as files:
        files.log_file(NAMES[0], LENGTH)[:1] = 8
    folder.close(path_of(NAMES[0]), 0)
    assert Path(place).read_bytes() == b"\x08" + bytes(99) + b"\x07" * (USED - 100) + bytes(LENGTH - USED)


def test_zeros_that_a_dead_task_began_to_write_are_written_by_the_next_one(folder: StoreFolder) -> None:
    place = folder.path_of(path_of(NAMES[0]))
    Path(store_folder._marker(place)).write_text(f"{USED} begun")
    with Path(place).open("r+b") as file:
        file.write(bytes(4096))
    with OpenFiles(folder) as files:
        files.log_file(NAMES[0], LENGTH)[:1] = 8
    with Path(place).open("rb") as file:
        assert os.lseek(file.fileno(), 0, os.SEEK_HOLE) >= USED
    assert not Path(store_folder._marker(place)).exists()


def test_files_that_nobody_writes_to_are_closed_as_zeros_with_their_times(folder: StoreFolder) -> None:
    for number, name in enumerate(NAMES):
        folder.close(path_of(name), 1_700_000_000_000 + number)
    assert contents(folder) == [bytes(LENGTH)] * FILES
    assert [Path(folder.root, path_of(name)).stat().st_mtime_ns // 1_000_000 for name in NAMES] == [
        1_700_000_000_000 + number for number in range(FILES)
    ]


def test_a_log_file_of_another_length_is_refused(folder: StoreFolder) -> None:
    with OpenFiles(folder) as files, pytest.raises(StoreError, match=f"expected a file of {LENGTH + 1} bytes.*found {LENGTH} bytes"):
        files.log_file(NAMES[0], LENGTH + 1)


@pytest.mark.parametrize(("position", "data"), [(-1, b"x"), (LENGTH, b"x"), (LENGTH - 1, b"xy")])
def test_bytes_outside_a_file_are_refused(folder: StoreFolder, position: int, data: bytes) -> None:
    with OpenFiles(folder) as files, pytest.raises(StoreError, match=f"expected bytes inside the file's {LENGTH}"):
        files.write(path_of(NAMES[0]), position, data)


@pytest.mark.parametrize("path", ["../a", "a/../../b", "/a", "a//b", "a/./b", "", "a\0b"])
def test_a_path_that_leaves_the_store_is_refused(folder: StoreFolder, path: str) -> None:
    with pytest.raises(StoreError, match="expected a path below the store"):
        folder.create(path, LENGTH, 0)


def test_the_file_not_used_for_longest_is_closed_first(folder: StoreFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_folder, "_OPEN_AT_ONCE", 2)
    opened: dict[int, str] = {}
    closed: list[str] = []
    close, names = os.close, dict(zip("abc", NAMES, strict=False))

    def closing(file: int) -> None:
        closed.append(opened.pop(file))
        close(file)

    with OpenFiles(folder) as files:
        for key in "abc":
            files.write(path_of(names[key]), 0, b"x")  # filled: what is opened from here on is the file alone
        opened |= {file: names[key] for key, file in zip("bc", files._files.values(), strict=True)}
        monkeypatch.setattr(os, "close", closing)
        for key in "ca":
            files.write(path_of(names[key]), 0, b"y")
        assert closed == [names["b"]]
        opened[files._files[path_of(names["a"])]] = names["a"]
    assert closed == [names["b"], names["c"], names["a"]]
