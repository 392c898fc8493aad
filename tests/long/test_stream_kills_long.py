"""A hundred kills of streams, and thirty of followers: at whatever moment they die, nothing is lost and nothing is there twice.

Processes of ten each are killed again and again; their answers, or the rows that they added, are compared at the end.
"""

from __future__ import annotations

import random
import shutil
import sys
from collections import Counter
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.lake.lake import Lake
from tests.makers.held_store import CASES, held_store, pull
from tests.makers.lakes import import_as
from tests.makers.living_store import LivingStore
from tests.runs.checked_kills import check_killed_streams
from tests.runs.following import assert_same_tables, rewrite_stamps
from tests.runs.held_answers import answered, told
from tests.runs.in_session import Pullsim, pullsim_in
from tests.runs.killed_streams import Dying, assert_nothing_twice, kill_together, places
from tests.runs.replaying import BROKER, DEMO_TRACE, all_lines, demo_data, import_into, write_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAMS = 10
# files that a stream gets before each kill, so that it is always at work
BATCHES_A_ROUND = 4


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


@pytest.fixture(scope="module")
def imported(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kills") / "lake"
    import_into(spark, folder, demo_data(tmp_path_factory) / "cleaned")
    return folder


@pytest.mark.parametrize("seed", range(1))
def test_streams_killed_again_and_again_answer_each_request_once(
    spark: SparkSession, imported: Path, pullsim: Pullsim, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    lines: list[dict[str, Any]] = all_lines(demo_data(tmp_path_factory) / DEMO_TRACE)[1:]
    lake = shutil.copytree(imported, tmp_path / "lake")
    found = check_killed_streams(spark, pullsim, lake, lines, tmp_path, streams=STREAMS, kills=70, seed=seed)
    print(f"{found.total()} streams were killed: {found}", file=sys.__stderr__)
    assert len(found) > 2, found


@pytest.mark.parametrize("seed", range(1))
def test_streams_that_hold_pulls_and_are_killed_again_and_again_answer_each_once(
    spark: SparkSession, pullsim: Pullsim, tmp_path: Path, seed: int
) -> None:
    chance, base = random.Random(seed), tmp_path / "base"
    import_as(spark, base, held_store(tmp_path / "store"))
    dying = []
    for number in range(STREAMS):
        incoming, lake, checkpoint = (tmp_path / f"{name}{number}" for name in ("incoming", "lake", "checkpoint"))
        incoming.mkdir()
        shutil.copytree(base, lake)
        cases = chance.sample(CASES, len(CASES))  # later ones may come before earlier ones
        for first in range(0, len(cases), 2):
            write_lines(incoming / f"{first:02d}.jsonl", [case[0] for case in cases[first : first + 2]])
        write_lines(incoming / "99.jsonl", [pull(0, 60_000, sys_flag=0, topic="other")])
        of_stream = ("--lake", lake, "--requests", incoming, "--checkpoint", checkpoint, "--run-id", f"killed{number}")
        options = ("--at", "request-time", "--hold", "--trigger", "0", "--max-files", "1")
        dying.append(Dying(lake, checkpoint, ["stream", *map(str, of_stream), *options]))
    found, rounds = Counter[str](), 0
    # the writes of small batches are short: it may take many kills until one of them is met
    while found.total() < 30 or (len(found) < 3 and found.total() < 200):
        for number, part in product(range(STREAMS), range(BATCHES_A_ROUND)):
            write_lines(tmp_path / f"incoming{number}" / f"more-{rounds:03d}-{part}.jsonl", [pull(0, 60_000, sys_flag=0, topic="other")])
        rounds += 1
        found += places(kill_together(dying, tmp_path / "killed.err", chance))
        for stream in dying:
            assert_nothing_twice(stream)
    for number, stream in enumerate(dying):
        code, _, err = pullsim(*stream.command, "--max-files", "1000", "--once")
        assert code == 0, err
        rows = [row for row in answered(spark, stream.lake, f"killed{number}") if row["topic"] != "other"]
        assert len({row["requestId"] for row in rows}) == len(rows)
        assert sorted(map(told, rows), key=repr) == sorted((case[1:] for case in CASES), key=repr)
    print(f"{found.total()} streams that hold were killed: {found}", file=sys.__stderr__)
    assert len(found) > 2, found


def test_followers_killed_again_and_again_have_what_an_import_gives(
    spark: SparkSession, small_store: Path, pullsim: Pullsim, tmp_path: Path
) -> None:
    chance, living, base = random.Random(7), LivingStore(small_store, tmp_path / "store"), tmp_path / "base"
    offsets = living.record_offsets()
    before, behind = (iter(range(first * len(offsets) // 6, (first + 2) * len(offsets) // 6, 3)) for first in (2, 4))

    reached = 0

    def cut(place: int) -> None:
        nonlocal reached
        reached = place
        living.cut_at(offsets[place], half=chance.choice([0, 37]))
        living.commit_offsets({"TopicTest@group": {"0": place}})

    def grow() -> None:
        if chance.random() < 0.1 and (place := next(before if living.grown == small_store else behind, None)) is not None:
            cut(place)

    cut(len(offsets) // 4)
    assert pullsim("import", living.path, "--lake", base, "--broker-name", BROKER)[0] == 0
    dying = []
    for number in range(STREAMS):
        lake, checkpoint = tmp_path / f"lake{number}", tmp_path / f"checkpoint{number}"
        if number:  # the first one imports the store itself
            shutil.copytree(base, lake)
        of_stream = ("--lake", lake, "--broker-name", BROKER, "--follow", "--checkpoint", checkpoint, "--trigger", "0")
        dying.append(Dying(lake, checkpoint, ["import", str(living.path), *map(str, of_stream)]))
    killed = 0
    while killed < 30:
        if killed >= 20 and living.grown == small_store:  # the broker was killed, cut its log when it came back, and writes on
            place = reached
            cut(place - 40)
            rewrite_stamps(small_store, tmp_path / "rewritten", offsets[place - 40])
            living.grown = tmp_path / "rewritten"
            cut(place)
        killed += len(kill_together(dying, tmp_path / "killed.err", chance, meanwhile=grow, steps=5))
    living.cut_at(offsets[-1])
    code, _, err = pullsim("import", living.path, "--lake", tmp_path / "other", "--broker-name", BROKER)
    assert code == 0, err
    expected = Lake(spark, str(tmp_path / "other"))
    for stream in dying:
        code, _, err = pullsim(*stream.command[:-2], "--once")
        assert code == 0, err
        assert_same_tables(Lake(spark, str(stream.lake)), expected)
    print(f"{killed} followers were killed", file=sys.__stderr__)
