"""Commands that the driver does without Spark, ended by signals at moments over their whole time, on disks that fill up, and at once.

./run long -k test_commands_ended_early
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runs.driver_commands import CALLS, check_at_once, empty_place, imported_place
from tests.runs.ended_commands import Place, Whole, check_signals, ended
from tests.runs.sampling import sampled
from tests.runs.small_disk import disk_of, filled, room

SIGNALS = 24
# the disk has room for 0, 1, ... of STEPS parts of what a command needs
STEPS = 8


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return empty_place(tmp_path_factory)


@pytest.fixture(scope="module")
def imported(empty: Place, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return imported_place(empty, tmp_path_factory)


@pytest.fixture(scope="module", params=[name for name, _ in sampled(CALLS.items(), 3)])
def whole(request: pytest.FixtureRequest, empty: Place, imported: Place, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """A command that ran to its end."""
    base = empty if request.param == "first import" else imported
    return Whole.of(CALLS[request.param], base, tmp_path_factory.mktemp("whole") / "place")


def test_a_command_that_gets_a_signal_leaves_all_or_nothing(whole: Whole, tmp_path: Path) -> None:
    found = check_signals(whole, tmp_path / "place", random.Random(1), count=SIGNALS)
    print(f"{found}, {whole.seconds:.1f} s", file=sys.__stderr__)
    assert found["before"] > SIGNALS // 4, found


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with disk_of(tmp_path / "disk", mebibytes=256) as disk:
        yield disk


def test_a_command_on_a_disk_that_fills_up_leaves_all_or_nothing(whole: Whole, disk: Path) -> None:
    refused = 0
    place = whole.base.copied(disk / "place")
    before = room(disk)
    assert ended(whole.call(place)).code == 0
    needed = before - room(disk)
    for step in range(STEPS):
        place = whole.base.copied(disk / "place")
        with filled(disk, left=needed * step // STEPS):
            run = ended(whole.call(place))
        refused += run.code != 0
        left = place.left()
        assert left == (whole.after if run.code == 0 else whole.before), (step, run)
        assert run.code in {0, 2, 3}, (step, run)
        assert "Traceback" not in run.err, (step, run)
        assert run.code == 0 or re.search("space|bytes left", run.err.splitlines()[-1]), (step, run)
        run = ended(whole.call(whole.base.copied(place.folder) if run.code == 0 else place))
        assert run.code == 0, run.err
        assert place.left() == whole.after
        assert place.unfinished() == []
    assert refused > STEPS // 4


@pytest.mark.parametrize("seed", sampled(range(6), 1))
def test_of_commands_at_once_each_is_done_or_refused(imported: Place, tmp_path: Path, seed: int) -> None:
    check_at_once(imported, tmp_path, random.Random(seed))
