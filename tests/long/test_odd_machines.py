"""Commands that the driver does without Spark: on a lake that nobody can write, with a clock that is set back, and on a slow disk.

./run long -k test_odd_machines
"""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runs.driver_commands import CALLS, check_at_once, empty_place, imported_place
from tests.runs.ended_commands import Place, Whole, ended
from tests.runs.sampling import sampled
from tests.runs.small_disk import disk_of

WRITE_TO_THE_LAKE = ("import again", "import beside", "replay", "capture")


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return imported_place(empty_place(tmp_path_factory), tmp_path_factory)


@pytest.fixture(scope="module", params=[name for name in CALLS if name != "first import"])
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def whole(name: str, imported: Place, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """A command that ran to its end."""
    return Whole.of(CALLS[name], imported, tmp_path_factory.mktemp("whole") / "place")


@pytest.fixture
def read_only(imported: Place, tmp_path: Path) -> Iterator[Place]:
    """The place on a disk that is read only; its outputs lie on another one."""
    with disk_of(tmp_path / "disk", mebibytes=256) as disk:
        place, out = imported.copied(disk / "place"), tmp_path / "out"
        shutil.rmtree(place.out)
        out.mkdir()
        place.out.symlink_to(out)
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        yield place


def test_a_lake_that_is_read_only_is_read_and_whoever_would_write_it_is_refused(name: str, whole: Whole, read_only: Place) -> None:
    run = ended(whole.call(read_only))
    if name in WRITE_TO_THE_LAKE:
        assert (run.code, read_only.left()) == (2, whole.before), run
        *progress, error = run.err.splitlines()
        assert str(read_only.lake) in error
        assert "Read-only file system" in error or error.endswith("may this process write there?"), error
        assert all(line.startswith("pullsim: ") for line in (*progress, error)), run
    else:
        assert (run.code, read_only.left()) == (0, whole.after), run


@pytest.mark.skipif(shutil.which("faketime") is None, reason="needs faketime: apt-get install faketime")
@pytest.mark.parametrize("back", ["-2 hours", "-20 years"])
def test_a_clock_that_is_set_back_changes_no_result(whole: Whole, tmp_path: Path, back: str) -> None:
    place = whole.base.copied(tmp_path / "place")
    run = ended(whole.call(place), under=["faketime", "-f", back])
    assert (run.code, place.left()) == (0, whole.after), run
    again = ended(["sql", "--lake", place.lake, "SELECT count(*) FROM commit_log"])
    assert again.code == 0, again


# each call waits for 100 ms before it reaches the disk
_WAITING = "fsync,fdatasync,rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,ftruncate,fallocate"


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace: apt-get install strace")
@pytest.mark.parametrize("seed", sampled(range(4), 1))
def test_of_commands_at_once_on_a_slow_disk_each_is_done_or_refused(imported: Place, tmp_path: Path, seed: int) -> None:
    slow = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={_WAITING}", "-e", f"inject={_WAITING}:delay_enter=100000"]
    check_at_once(imported, tmp_path, random.Random(seed), under=slow)
