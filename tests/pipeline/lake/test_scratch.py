"""Temporary files of Spark: other users cannot read them, and those of killed runs are deleted."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pipeline.lake.scratch import scratch_folder
from tests.truth.places import PROJECT

_RUN = "from pipeline.lake.scratch import scratch_folder\nprint(scratch_folder(), flush=True)\ninput()\n"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def _run(temporary: Path) -> tuple[subprocess.Popen[str], Path]:
    environment = os.environ | {"TMPDIR": str(temporary)}
    run = subprocess.Popen(
        [sys.executable, "-c", _RUN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=PROJECT, env=environment
    )
    assert run.stdout is not None
    return run, Path(run.stdout.readline().strip())


def test_only_the_user_can_enter_the_folders(temporary: Path) -> None:
    folder = Path(scratch_folder())
    assert folder.parent.parent == temporary
    assert [stat.S_IMODE(one.stat().st_mode) for one in (folder, folder.parent)] == [0o700, 0o700]


def test_a_folder_that_others_can_enter_is_not_taken(temporary: Path) -> None:
    usual = temporary / f"pullsim-{os.getuid()}"
    usual.mkdir()
    usual.chmod(0o777)
    folder = Path(scratch_folder())
    assert folder.parent != usual
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


def test_the_folder_goes_with_its_run(temporary: Path) -> None:
    run, folder = _run(temporary)
    assert folder.is_dir()
    run.communicate("\n")
    assert not folder.exists()


def test_the_next_run_removes_what_a_killed_one_left_and_nothing_of_one_that_lives(temporary: Path) -> None:
    killed, left = _run(temporary)
    living, kept = _run(temporary)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert left.is_dir()
    scratch_folder()
    assert not left.exists()
    assert kept.is_dir()
    living.communicate("\n")


def test_a_folder_that_is_not_locked_yet_stays(temporary: Path) -> None:
    usual = Path(scratch_folder()).parent
    (usual / "begun.new").mkdir()
    scratch_folder()
    assert (usual / "begun.new").is_dir()
