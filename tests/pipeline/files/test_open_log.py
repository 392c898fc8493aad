"""Files of a commit log stay open: a few of those that are mapped, and one at a time of those that are held in memory."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest

from pipeline.files.store_files import StoreFiles
from pipeline.store import open_log
from pipeline.store.open_log import OpenLog
from store_format.big_endian import Bytes
from store_format.files.changed_files import FileChange
from store_format.files.mapped_files import MappedFile, offset_to_file_name
from store_format.store_paths import COMMIT_LOG

LENGTH = 64


@pytest.fixture
def files(tmp_path: Path) -> list[MappedFile]:
    """Five files, each full of its number."""
    (tmp_path / COMMIT_LOG).mkdir()
    found = []
    for number in range(5):
        name = offset_to_file_name(number * LENGTH)
        (tmp_path / COMMIT_LOG / name).write_bytes(bytes([number]) * LENGTH)
        found.append(MappedFile(name=name, from_offset=number * LENGTH, length=LENGTH, wrote=LENGTH))
    return found


def test_those_last_used_stay_open(tmp_path: Path, files: list[MappedFile], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_log, "_MAPPED_BYTES", 4 * LENGTH - 1)
    log = OpenLog(StoreFiles(str(tmp_path)))
    opened = [log.content(file) for file in files]
    assert [content.tobytes() for content in opened] == [bytes([number]) * LENGTH for number in range(5)]
    again = [log.content(file) for file in reversed(files)]
    assert [new is old for new, old in zip(reversed(again), opened, strict=True)] == [False, False, True, True, True]


def test_of_files_that_were_changed_one_is_in_memory(tmp_path: Path, files: list[MappedFile]) -> None:
    changes: dict[tuple[str, ...], FileChange] = {
        (COMMIT_LOG, file.name): FileChange(length=LENGTH, is_new=False, ranges=[(0, np.frombuffer(b"x", np.uint8))]) for file in files[:2]
    }
    log = OpenLog(StoreFiles(str(tmp_path)).changed(changes, frozenset()))
    first, mapped, second = (log.content(files[number]) for number in (0, 2, 1))
    assert [content[:2].tobytes() for content in (first, second, mapped)] == [b"x\0", b"x\1", b"\2\2"]
    assert log.content(files[1]) is second
    assert log.content(files[2]) is mapped
    assert log.content(files[0]) is not first


def test_without_a_temporary_folder_a_remote_file_is_held_in_memory(files: list[MappedFile], monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    class Remote(StoreFiles):
        def is_mapped(self, *parts: str) -> bool:
            return False

        def content(self, *parts: str) -> Bytes:
            return np.full(LENGTH, int(parts[-1]) // LENGTH, np.uint8)

    monkeypatch.setattr(tempfile, "gettempdir", none)
    log = OpenLog(Remote("s3://bucket/store"))
    assert [log.content(file)[0] for file in files] == [0, 1, 2, 3, 4]
    assert log.content(files[4]) is log.content(files[4])
