"""A store directory that many tasks write at once: a task that fills a file with zeros never overwrites the bytes of another task."""

from __future__ import annotations

import errno
import os
import random
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipeline.export import store_folder
from pipeline.export.export_store import create_files, folder_beside
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
    made = StoreFolder(str(tmp_path / "store"))
    Path(made.root).mkdir()
    for name in NAMES:
        made.create(path_of(name), LENGTH, USED)
    return made


def contents(folder: StoreFolder) -> list[bytes]:
    """The contents of all log files, in their order."""
    return [path.read_bytes() for path in sorted(Path(folder.root, COMMIT_LOG).iterdir())]


@pytest.mark.parametrize("changed", [{"wrote": 11}, {"wrote": -1}, {"length": None}, {"length": -1, "wrote": None}, {"path": None}])
def test_a_file_that_no_import_describes_is_refused_before_it_is_made(folder: StoreFolder, changed: dict[str, Any]) -> None:
    described = {"kind": COMMIT_LOG, "path": path_of("1"), "length": 10, "wrote": 10} | changed
    kinds = pa.schema({"kind": pa.string(), "path": pa.string(), "length": pa.int64(), "wrote": pa.int64()})
    before = contents(folder)
    with OpenFiles(folder) as opened, pytest.raises(StoreError, match="store_file: expected files with a path, and with 0 <= wrote"):
        create_files(opened, pa.RecordBatch.from_pylist([described], schema=kinds))
    assert contents(folder) == before


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


class Stopped:
    """A thread that runs `work` and stops before the nth line of the module that it runs; `is_past` if `work` ran fewer lines."""

    def __init__(self, line: int, work: Callable[[], object]) -> None:
        self._left, self._go, self._stands = line, threading.Event(), threading.Event()
        self.is_past = False
        self._thread = threading.Thread(target=self._run, args=(work,))
        self._thread.start()
        assert self._stands.wait(10)

    def _run(self, work: Callable[[], object]) -> None:
        sys.settrace(self._trace)
        try:
            work()
        finally:
            sys.settrace(None)
            self.is_past = not self._stands.is_set()
            self._stands.set()

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename != store_folder.__file__:
            return None
        self._left -= event == "line"
        if event == "line" and self._left == 0:
            self._stands.set()
            self._go.wait(10)
        return self._trace

    def go_on(self) -> None:
        self._go.set()
        self._thread.join()


def created_beside(stopped: Stopped, folder: StoreFolder) -> None:
    """Create the first file once more, while a first run of the same task is stopped; if the first run has the lock, it goes on."""
    second = threading.Thread(target=folder.create, args=(path_of(NAMES[0]), LENGTH, USED))
    second.start()
    second.join(0.01)
    if second.is_alive():
        stopped.go_on()
    second.join()


@pytest.mark.parametrize("stops", range(1, 25))
def test_a_run_that_stands_still_takes_nothing_back(tmp_path: Path, stops: int) -> None:
    """A task runs twice at once, and its first run stops before some line; then a task that opens the file stops, while another writes."""
    path = path_of(NAMES[0])
    for opens in range(1, 30, 2):
        folder = StoreFolder(str(tmp_path / str(opens)))
        Path(folder.root).mkdir()
        first = Stopped(stops, partial(folder.create, path, LENGTH, USED))
        created_beside(first, folder)
        with OpenFiles(folder) as files:
            mapped = files.log_file(NAMES[0], LENGTH)
            first.go_on()
            with OpenFiles(folder) as others:
                other = Stopped(opens, partial(others.log_file, NAMES[0], LENGTH))
                mapped[100:USED] = 7
                other.go_on()
        written = Path(folder.path_of(path)).read_bytes()
        assert written == bytes(100) + b"\x07" * (USED - 100) + bytes(LENGTH - USED)
        assert [str(one.relative_to(folder.root)) for one in Path(folder.root).rglob("*")] == [COMMIT_LOG, path]
        if first.is_past or other.is_past:
            break


@pytest.mark.parametrize("stops", range(1, 30))
def test_a_first_run_that_ends_after_the_export_leaves_nothing_in_the_store(tmp_path: Path, stops: int) -> None:
    folder = StoreFolder(str(tmp_path / "store"))
    Path(folder.root).mkdir()
    first = Stopped(stops, lambda: folder.create(path_of(NAMES[0]), LENGTH, USED))
    created_beside(first, folder)
    folder.close(path_of(NAMES[0]), 0)
    first.go_on()
    assert [str(one.relative_to(folder.root)) for one in Path(folder.root).rglob("*")] == [COMMIT_LOG, path_of(NAMES[0])]


def test_a_run_that_comes_after_the_export_leaves_the_time_of_a_file(folder: StoreFolder) -> None:
    folder.close(path_of(NAMES[0]), 1_700_000_000_000)
    folder.create(path_of(NAMES[0]), LENGTH, USED)
    assert Path(folder.path_of(path_of(NAMES[0]))).stat().st_mtime == 1_700_000_000


def test_an_exported_store_has_its_files_alone(tmp_path: Path) -> None:
    lake: Any = SimpleNamespace(root=str(tmp_path / "lake"))
    with folder_beside(str(tmp_path / "store"), lake, "run") as folder:
        for name in NAMES:
            folder.create(path_of(name), LENGTH, USED)
        with OpenFiles(folder) as files:
            files.log_file(NAMES[0], LENGTH)[:1] = 8
    assert sorted(one.name for one in (tmp_path / "store").rglob("*")) == [*NAMES, COMMIT_LOG]
    assert [one.name for one in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize("left", [b"", b"3", b"30000", b"30000\nfil"])
def test_a_state_that_a_crash_cut_short_is_written_again(folder: StoreFolder, left: bytes) -> None:
    """Spark runs the task again, which writes the state; the next task that opens the file fills it from its begin."""
    path = path_of(NAMES[0])
    Path(folder._state_of(path)).write_bytes(left)
    folder.create(path, LENGTH, USED)
    with OpenFiles(folder) as files:
        files.log_file(NAMES[0], LENGTH)[:1] = 8
    with Path(folder.path_of(path)).open("rb") as file:
        assert os.lseek(file.fileno(), 0, os.SEEK_HOLE) >= USED
    assert Path(folder._state_of(path)).read_bytes() == b"30000\nfilled\n"


@pytest.mark.parametrize("left", [b"", b"3", b"abc"])
def test_a_state_without_a_number_is_no_file_without_zeros(folder: StoreFolder, left: bytes) -> None:
    Path(folder._state_of(path_of(NAMES[0]))).write_bytes(left)
    with OpenFiles(folder) as files, pytest.raises(StoreError, match="expected a number of bytes to fill, found none"):
        files.log_file(NAMES[0], LENGTH)


def test_zeros_that_a_dead_task_began_to_write_are_written_by_the_next_one(folder: StoreFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(place: str, _count: int) -> None:
        with Path(place).open("r+b") as file:
            file.write(bytes(4096))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched, OpenFiles(folder) as files:
        patched.setattr(store_folder, "_write_zeros", dies)
        with pytest.raises(StoreError, match="No space left"):
            files.log_file(NAMES[0], LENGTH)
    with OpenFiles(folder) as files:
        files.log_file(NAMES[0], LENGTH)[:1] = 8
    with Path(folder.path_of(path_of(NAMES[0]))).open("rb") as file:
        assert os.lseek(file.fileno(), 0, os.SEEK_HOLE) >= USED


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
