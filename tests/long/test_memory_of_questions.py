"""Questions without Spark over a lake of 100 million entries take less than 1 GiB of memory.

The lake is written by pyarrow, 0.6 GB in a minute. Measured on two cores: 0.2 GiB for a count, 0.5 GiB for lag and for the report.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.made.entry_tables import write_tables
from tests.truth.places import PROJECT

ENTRIES, GROUPS = 100_000_000, 1000
LIMIT = 1 << 30


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "lake"
    write_tables(path, entries=ENTRIES, groups=GROUPS)
    return path


@pytest.mark.parametrize(
    "words",
    [
        ("sql", "SELECT topic, queueId, count(*) AS entries, sum(size) AS bytes FROM consume_queue GROUP BY topic, queueId"),
        ("sql", "SELECT consumerGroup, sum(lag) AS lag, max(lagMillis) AS millis FROM consume_lag GROUP BY consumerGroup"),
        ("lag",),
        ("groups",),
        ("report", "--out", "report.html"),
    ],
)
def test_a_question_takes_less_than_a_gibibyte(lake: Path, words: tuple[str, ...], tmp_path: Path) -> None:
    call = [sys.executable, "-m", "pipeline.main", *words, "--lake", str(lake)]
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(call, cwd=tmp_path, env={"PATH": "", "PYTHONPATH": str(PROJECT)}, stdout=out)
        _, status, used = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert used.ru_maxrss * 1024 < LIMIT
