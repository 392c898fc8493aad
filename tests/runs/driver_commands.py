"""Commands that the driver runs without Spark, and the places in which they run."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.runs.ended_commands import Call, Place, ended, start
from tests.runs.replaying import BROKER, DEMO_TRACE, demo_data
from tests.truth.places import PROJECT

TRAFFIC = PROJECT / "examples" / "traffic.pcap"
STORE, TRACE = "store", "trace.jsonl"


def _of(at: Place) -> list[str | Path]:
    """The options that name the lake and the broker."""
    return ["--lake", at.lake, "--broker", BROKER]


CALLS: dict[str, Call] = {
    "first import": lambda at: ["import", at.folder / STORE, "--lake", at.lake, "--broker-name", BROKER],
    "import again": lambda at: ["import", at.folder / STORE, "--lake", at.lake, "--broker-name", BROKER],
    "import beside": lambda at: ["import", at.folder / STORE, "--lake", at.lake, "--broker-name", "broker-b"],
    "replay": lambda at: ["replay", *_of(at), "--requests", at.folder / TRACE],
    "replay to a file": lambda at: ["replay", *_of(at), "--requests", at.folder / TRACE, "--out", at.out / "answers.jsonl"],
    "export": lambda at: ["export", *_of(at), at.out / "exported"],
    "capture": lambda at: ["capture", *_of(at), TRAFFIC],
    "report": lambda at: ["report", *_of(at), "--format", "json", "--out", at.out / "report.json"],
    "generate": lambda at: ["generate", at.out / "generated", "--messages", "2000", "--set", "mappedFileSizeCommitLog=1048576"],
}


def empty_place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A store and a trace, without a lake."""
    data, folder = demo_data(tmp_path_factory), tmp_path_factory.mktemp("empty") / "place"
    shutil.copytree(data / "cleaned", folder / STORE)
    shutil.copy(data / DEMO_TRACE, folder / TRACE)
    place = Place(folder)
    place.out.mkdir()
    return place


def imported_place(empty: Place, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A store, a trace, and a lake that has the store."""
    place = empty.copied(tmp_path_factory.mktemp("imported") / "place")
    run = ended(CALLS["first import"](place))
    assert run.code == 0, run.err
    return place


_AT_ONCE = ("import beside", "replay", "capture", "replay")


def check_at_once(imported: Place, folder: Path, chance: random.Random, *, under: Sequence[str] = ()) -> None:
    """Run commands at once on one lake: each is done or refused, and those that were refused are done when they run again.

    Args:
        imported: a place with a lake.
        folder: where copies of it are made.
        chance: gives the order of the commands, and the moments at which they start.
        under: the words of a program that runs each command.
    """
    calls = chance.sample([CALLS[name] for name in _AT_ONCE], len(_AT_ONCE))
    one_by_one = imported.copied(folder / "alone")
    for call in calls:
        assert ended(call(one_by_one)).code == 0
    place, processes = imported.copied(folder / "place"), []
    for call in calls:
        processes.append(start(call(place), under=under))
        time.sleep(chance.uniform(0, 0.5))
    errors = [process.communicate(timeout=300)[1] for process in processes]
    codes = [process.returncode for process in processes]
    assert set(codes) <= {0, 2}, errors
    assert 0 in codes
    assert all("start it again" in error for code, error in zip(codes, errors, strict=True) if code), errors
    for call in (call for call, code in zip(calls, codes, strict=True) if code):
        assert ended(call(place)).code == 0
    assert place.left() == one_by_one.left()
