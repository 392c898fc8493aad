"""Streams killed anywhere and started again, stopped, two at once, checkpoints half-written: every request has its one answer."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from dying_runs import commits_made, doomed
from in_session import Pullsim, pullsim_in
from replaying import BROKER, DEMO_TRACE, NOON, all_lines, demo_data, import_into, write_lines
from sampling import sampled, slow_proof
from test_stream import answers

from pipeline import tables as t
from pipeline.lake import Lake
from pipeline.settings import BrokerSettings
from pipeline.stream.batches import Batches
from pipeline.stream.report import report_of
from pipeline.stream.request_log import RequestLog
from pipeline.stream.stream_job import run_stream
from pipeline.stream.stream_run import REQUESTS, run_of_checkpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES, LINES = 6, 10
# a batch commits to pull_response and lake_version, the first one creates more
COMMITS_MAX = 12


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return all_lines(demo_data(tmp_path_factory) / DEMO_TRACE)[1:]


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    import_into(spark, tmp_path / "lake", demo_data(tmp_path_factory) / "cleaned")
    return tmp_path / "lake"


def kill_stream(command: list[str], lake: Path, chance: random.Random) -> None:
    """Start a stream as a process of its own and kill it some commits and some milliseconds later."""
    until = commits_made(lake) + chance.randint(0, COMMITS_MAX)
    with doomed(command, lake.parent / "killed.err") as run:
        while commits_made(lake) < until and run.poll() is None:
            time.sleep(0.02)
        time.sleep(chance.uniform(0, 0.5))


def cut_newest(checkpoint: Path, kind: str, chance: random.Random) -> None:
    """Leave half of the newest file of a kind, as a machine that lost its power does."""
    numbered = [path for path in (checkpoint / kind).glob("*") if path.name.removesuffix(".json").isdigit()]
    if numbered:
        newest = max(numbered, key=lambda path: int(path.name.removesuffix(".json")))
        newest.write_bytes(newest.read_bytes()[: chance.randrange(newest.stat().st_size)])


@pytest.mark.parametrize("seed", sampled(range(100), 1))
def test_a_killed_stream_goes_on_where_it_was(
    spark: SparkSession, lake: Path, lines: list[dict[str, Any]], pullsim: Pullsim, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    folder, checkpoint = tmp_path / "incoming", tmp_path / "checkpoint"
    folder.mkdir()
    command = [str(part) for part in ("stream", "--lake", lake, "--requests", folder, "--checkpoint", checkpoint, "--run-id", "killed")]
    for number in range(FILES):
        write_lines(folder / f"{number}.jsonl", lines[number * LINES : (number + 1) * LINES])
    kill_stream([*command, "--trigger", "0", "--max-files", "1"], lake, chance)
    cut = chance.choice([None, None, "spark/offsets", "spark/commits", "requests"])
    if cut is not None:
        cut_newest(checkpoint, cut, chance)
    code, _, err = pullsim(*command, "--max-files", "2", "--once")
    assert code == 0, err
    whole = write_lines(tmp_path / "whole.jsonl", lines[: FILES * LINES])
    assert pullsim("replay", "--lake", lake, "--requests", whole)[0] == 0
    replayed = Lake(spark, str(lake)).versions().orderBy("version").collect()[-1]["runId"]
    expected = [row[:3] + row[4:] for row in answers(spark, lake, replayed)]
    found = [row[:3] + row[4:] for row in answers(spark, lake, "killed")]
    assert sorted(found, key=repr) == sorted(expected, key=repr)


def started(lake: Path, folder: Path, checkpoint: Path, run_id: str) -> Batches:
    """What answers the batches of a stream of its own."""
    stored: dict[str, str] = {}
    run, _ = run_of_checkpoint(
        str(checkpoint), run_id=run_id, lake=str(lake), broker=BROKER, source=str(folder), at="snapshot", settings=stored
    )
    return Batches(
        root=str(lake),
        run=run,
        settings_of=lambda header, where: BrokerSettings.from_sources(header=header, header_where=where),
        now=lambda: NOON,
        stop=threading.Event(),
    )


@slow_proof
def test_two_streams_write_to_one_lake(spark: SparkSession, lake: Path, lines: list[dict[str, Any]], tmp_path: Path) -> None:
    folder = tmp_path / "incoming"
    folder.mkdir()
    for number in range(FILES):
        write_lines(folder / f"{number}.jsonl", lines[number * LINES : (number + 1) * LINES])
    streams = [started(lake, folder, tmp_path / name, name) for name in ("one", "other")]

    def run(batches: Batches, checkpoint: Path) -> None:
        log = RequestLog(f"{checkpoint}/{REQUESTS}")
        report = report_of(spark, batches.run, log, batches.counts, progress=lambda _: None, now=lambda: NOON, publish=None)
        run_stream(Lake(spark, str(lake)), batches.run, str(checkpoint), batches, report, files_max=2, once=True, trigger_seconds=0)

    threads = [threading.Thread(target=run, args=(batches, tmp_path / batches.run.run_id)) for batches in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [batches.failed for batches in streams] == [None, None]
    one, other = (answers(spark, lake, batches.run.run_id) for batches in streams)
    assert len(one) == FILES * LINES
    assert one == other
    runs = Lake(spark, str(lake)).table(t.REPLAY_RUN).orderBy("runId").collect()
    assert [(row["runId"], row["finishedAt"] is None) for row in runs] == [("one", False), ("other", False)]


@slow_proof
def test_a_stream_that_is_told_to_end_ends_behind_its_batch(
    spark: SparkSession, lake: Path, lines: list[dict[str, Any]], tmp_path: Path
) -> None:
    folder = tmp_path / "incoming"
    folder.mkdir()
    write_lines(folder / "first.jsonl", lines[:LINES])
    command = ("stream", "--lake", lake, "--requests", folder, "--checkpoint", tmp_path / "checkpoint", "--run-id", "told")
    stream = subprocess.Popen(
        [sys.executable, "-m", "pipeline.main", *map(str, command)],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert stream.stderr is not None
    for line in stream.stderr:
        if line.startswith("pullsim: batch 0"):
            break
    write_lines(folder / "second.jsonl", lines[LINES : 2 * LINES])
    time.sleep(2)  # it may be at its second batch, or not
    stream.send_signal(signal.SIGTERM)
    out, err = stream.communicate(timeout=120)
    assert (stream.returncode, out.startswith("run told: answered ")) == (0, True), err
    assert len(answers(spark, lake, "told")) in {LINES, 2 * LINES}
    [run] = Lake(spark, str(lake)).table(t.REPLAY_RUN).collect()
    assert run["finishedAt"] is not None
