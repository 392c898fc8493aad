"""Commands that the driver does without Spark, ended by signals at moments over their whole time, on disks that fill up, and at once.

./run long -k test_commands_ended_early
"""

from __future__ import annotations

import random
import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runs.ended_commands import Call, Place, Whole, check_signals, ended, start
from tests.runs.replaying import BROKER, DEMO_TRACE, demo_data
from tests.runs.sampling import sampled
from tests.runs.small_disk import disk_of, filled, room
from tests.truth.places import PROJECT

TRAFFIC = PROJECT / "examples" / "traffic.pcap"
STORE, TRACE = "store", "trace.jsonl"


def of(at: Place) -> list[str | Path]:
    """The options that name the lake and the broker."""
    return ["--lake", at.lake, "--broker", BROKER]


CALLS: dict[str, Call] = {
    "first import": lambda at: ["import", at.folder / STORE, "--lake", at.lake, "--broker-name", BROKER],
    "import again": lambda at: ["import", at.folder / STORE, "--lake", at.lake, "--broker-name", BROKER],
    "import beside": lambda at: ["import", at.folder / STORE, "--lake", at.lake, "--broker-name", "broker-b"],
    "replay": lambda at: ["replay", *of(at), "--requests", at.folder / TRACE],
    "replay to a file": lambda at: ["replay", *of(at), "--requests", at.folder / TRACE, "--out", at.out / "answers.jsonl"],
    "export": lambda at: ["export", *of(at), at.out / "exported"],
    "capture": lambda at: ["capture", *of(at), TRAFFIC],
    "report": lambda at: ["report", *of(at), "--format", "json", "--out", at.out / "report.json"],
    "generate": lambda at: ["generate", at.out / "generated", "--messages", "2000", "--set", "mappedFileSizeCommitLog=1048576"],
}
SIGNALS = 24
# how much of what a command needs a disk has room for, in parts of STEPS
STEPS = 8


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A store and a trace, without a lake."""
    data, folder = demo_data(tmp_path_factory), tmp_path_factory.mktemp("empty") / "place"
    shutil.copytree(data / "cleaned", folder / STORE)
    shutil.copy(data / DEMO_TRACE, folder / TRACE)
    place = Place(folder)
    place.out.mkdir()
    return place


@pytest.fixture(scope="module")
def imported(empty: Place, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The same, with a lake of the store."""
    place = empty.copied(tmp_path_factory.mktemp("imported") / "place")
    run = ended(CALLS["first import"](place))
    assert run.code == 0, run.err
    return place


@pytest.fixture(scope="module", params=[name for name, _ in sampled(CALLS.items(), 3)])
def whole(request: pytest.FixtureRequest, empty: Place, imported: Place, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """A command, which ran to its end."""
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


AT_ONCE = ("import beside", "replay", "capture", "replay")


@pytest.mark.parametrize("seed", sampled(range(6), 1))
def test_of_commands_at_once_each_is_done_or_refused(imported: Place, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    calls = chance.sample([CALLS[name] for name in AT_ONCE], len(AT_ONCE))
    one_by_one = imported.copied(tmp_path / "alone")
    for call in calls:
        assert ended(call(one_by_one)).code == 0
    place, processes = imported.copied(tmp_path / "place"), []
    for call in calls:
        processes.append(start(call(place)))
        time.sleep(chance.uniform(0, 0.5))
    errors = [process.communicate(timeout=300)[1] for process in processes]
    codes = [process.returncode for process in processes]
    assert set(codes) <= {0, 2}, errors
    assert 0 in codes
    assert all("start it again" in error for code, error in zip(codes, errors, strict=True) if code), errors
    for call in (call for call, code in zip(calls, codes, strict=True) if code):
        assert ended(call(place)).code == 0
    assert place.left() == one_by_one.left()
