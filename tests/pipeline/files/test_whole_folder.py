"""A folder of results appears when it is complete."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.files.output_file import OutputError
from pipeline.files.whole_folder import whole_folder


def _fill(path: str) -> None:
    with whole_folder(path, "run") as folder:
        Path(folder, "sub").mkdir()
        Path(folder, "sub", "file").write_text("text", "utf-8")
        Path(folder, "other").write_text("text", "utf-8")


def _end_meanwhile(path: str, end: Callable[[], None]) -> None:
    with whole_folder(path, "run") as folder:
        Path(folder, "file").write_text("ours", "utf-8")
        end()


def _found(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


FILLED = ["other", "sub", "sub/file"]


@pytest.mark.parametrize("name", ["new", "new/", "above/new"])
def test_a_new_folder_is_made(tmp_path: Path, name: str) -> None:
    _fill(f"{tmp_path}/{name}")
    assert _found(tmp_path / name) == FILLED


def test_an_empty_folder_stays_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be a mounted volume, which cannot be replaced, or the current folder of a shell."""
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o750)
    before = mine.stat()
    monkeypatch.chdir(mine)
    _fill(".")
    assert sorted(os.listdir(".")) == ["other", "sub"]
    assert _found(tmp_path) == ["mine", *(f"mine/{name}" for name in FILLED)]
    assert (mine.stat().st_ino, mine.stat().st_mode) == (before.st_ino, before.st_mode)


@pytest.mark.parametrize("is_made", [False, True])
def test_an_error_leaves_nothing(tmp_path: Path, is_made: bool) -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    if is_made:
        (tmp_path / "target").mkdir()
    with pytest.raises(KeyboardInterrupt):
        _end_meanwhile(f"{tmp_path}/target", fail)
    assert _found(tmp_path) == (["target"] if is_made else [])


@pytest.mark.parametrize("is_made", [False, True])
def test_what_others_put_there_meanwhile_stays(tmp_path: Path, is_made: bool) -> None:
    target = tmp_path / "target"

    def put() -> None:
        target.mkdir(exist_ok=True)
        (target / "file").write_text("theirs", "utf-8")

    if is_made:
        target.mkdir()
    with pytest.raises(OutputError, match="expected a name that is free"):
        _end_meanwhile(str(target), put)
    assert _found(tmp_path) == ["target", "target/file"]
    assert (target / "file").read_text("utf-8") == "theirs"


def test_a_folder_that_a_killed_run_left_is_named(tmp_path: Path) -> None:
    (tmp_path / ".pullsim-1.part").mkdir()
    with pytest.raises(OutputError, match=r"found \.pullsim-1\.part in it; remove that if no run is writing it"):
        _fill(str(tmp_path))
