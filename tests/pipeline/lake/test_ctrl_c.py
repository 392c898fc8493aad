"""A command in a process of its own: Ctrl-C ends it with 130 and no traceback, and it leaves nothing in the working directory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.makers.lag_lakes import write_state
from tests.runs.sampling import sampled
from tests.truth.places import PROJECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# a question that takes longer than the test waits
ENDLESS = "SELECT count(*) FROM range(100000000000000) a JOIN queue q ON a.id > q.maxOffset"
PULLSIM = (sys.executable, "-c", "import sys; from pipeline.main import main; print('begun', file=sys.stderr, flush=True); main()")


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("interrupted") / "lake"
    write_state(spark, folder, "a", {("g", "orders", 0): 40}, {("orders", 0): (10, 100)})
    return folder


# seconds from the first line of the process: while Spark starts, and while it works
@pytest.mark.parametrize("after", [0.7, *sampled([1.5, 2.5, 4, 9, 16, 25], 1)])
def test_ctrl_c_ends_with_130_and_no_traceback(lake: Path, tmp_path: Path, after: float) -> None:
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    command = [*PULLSIM, "sql", "--engine", "spark", "--lake", str(lake), ENDLESS]
    # a group of its own, which gets the signal as a whole, as from a terminal
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as run:
        try:
            assert run.stderr is not None
            assert run.stderr.readline() == "begun\n"
            time.sleep(after)
            os.killpg(run.pid, signal.SIGINT)
            out, err = run.communicate(timeout=60)
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
    assert (run.returncode, out) == (130, ""), err
    assert [line for line in err.splitlines() if line] in (["pullsim: stopped"], ["pullsim: starting Spark", "pullsim: stopped"])
    assert list(tmp_path.iterdir()) == []
    assert ends(run.pid), "a JVM is still there"


def ends(group: int, within: float = 30) -> bool:
    """Whether the last process of a group ends."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.2)
    os.killpg(group, signal.SIGKILL)
    return False


def test_a_command_leaves_nothing_in_the_working_directory(lake: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    command = [*PULLSIM, "sql", "--lake", str(lake), "SHOW TABLES"]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "consumer_offset" in run.stdout
    assert list(tmp_path.iterdir()) == []
