"""A file of results has the mode that the umask gives, and appears whole or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.files.whole_file import whole_file


@pytest.fixture(params=[0o077, 0o022, 0o027])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_the_umask_decides_who_reads_a_file(tmp_path: Path, umask: int) -> None:
    with whole_file(str(tmp_path / "out")) as file:
        file.write(b"answers")
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o666 & ~umask
    assert [one.name for one in tmp_path.iterdir()] == ["out"]


def test_a_link_stays_and_its_file_is_written(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "out")
    for text in (b"first", b"second"):
        with whole_file(str(tmp_path / "link")) as file:
            file.write(text)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "out").read_bytes() == text


def test_a_pipe_or_a_folder_stays_what_it_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(OSError, match="a device, a pipe or a folder"), whole_file(str(tmp_path / name)):
            pass
    assert sorted(one.name for one in tmp_path.iterdir()) == ["folder", "pipe"]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_file_that_is_not_written_to_its_end_leaves_the_former_one(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"former")
    files = whole_file(str(tmp_path / "out"))
    files.__enter__().write(b"half")
    assert not files.__exit__(KeyError, KeyError(), None)
    assert (tmp_path / "out").read_bytes() == b"former"
    assert [one.name for one in tmp_path.iterdir()] == ["out"]
