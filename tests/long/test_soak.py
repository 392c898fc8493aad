"""A stream that holds pulls, beside a follower, for hours: each pull gets one right answer, and memory, files and time do not grow.

    PULLSIM_SOAK_SECONDS=21600 ./run long -k test_soak

Pulls and messages come at a bounded rate, and the time of the pulls is that of the clock. PULLSIM_SOAK_SECONDS is the time of the run.
"""

from __future__ import annotations

import csv
import io
import json
import os
import random
import subprocess
import sys
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.makers.growing_store import GrowingStore
from tests.runs.ended_commands import ended, start
from tests.runs.prometheus import parse
from tests.truth.places import PROJECT

SECONDS = int(os.environ.get("PULLSIM_SOAK_SECONDS", "1800"))
# seconds after which memory and files that a process takes only at its start no longer count
SETTLED = 900
TICK, PULLS = 2.0, 30
# seconds that the store is ahead of the pulls: a follower needs time to import messages, a minute at its start on a busy machine
AHEAD = 300
# seconds within which the last pulls are answered
REST = 180
WORKLOAD = f"""
seed = 3
start = 2026-01-01T00:00:00Z
duration = "{SECONDS + AHEAD + REST}s"
[settings]
mappedFileSizeCommitLog = 1048576
messageIndexEnable = false
[[topics]]
name = "busy"
queues = 4
rate = 20
tags = {{ a = 1, b = 1 }}
body = 100
[[topics]]
name = "quiet"
queues = 1
rate = 0.05
body = 100
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """What the two processes have at a moment: KiB of memory, open files, and the batches and seconds of the stream so far."""

    seconds: float
    memory: int
    files: int
    batches: float
    batch_seconds: float
    lake_files: int


def processes_of(pid: int) -> list[int]:
    """A process and its descendants."""
    found = [pid]
    for one in found:
        with suppress(OSError):  # it, or a thread of it, has ended
            for task in Path(f"/proc/{one}/task").iterdir():
                found += map(int, (task / "children").read_text("ascii").split())
    return found


def memory_and_files(pids: Sequence[int]) -> tuple[int, int]:
    """The memory, KiB, without what others share, and the open files of processes."""
    memory, files = 0, 0
    for pid in pids:
        try:
            told = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii")
            files += len(os.listdir(f"/proc/{pid}/fd"))
        except OSError:  # it has ended
            continue
        memory += next(int(line.split()[1]) for line in told.splitlines() if line.startswith("Pss:"))
    return memory, files


class Pulls:
    """Makes pulls of a moment, each of a group of its own by which its answer is found."""

    def __init__(self, store: GrowingStore) -> None:
        self.chance, self.made = random.Random(5), dict[str, dict[str, Any]]()
        self._queues: dict[tuple[str, int], list[int]] = {("none", 0): []}
        for moment, queue in zip(store.times, store.queues, strict=True):
            self._queues.setdefault(queue, []).append(moment)

    def at(self, moment: int) -> list[dict[str, Any]]:
        """Some pulls within a tick of a moment, ms: of old messages, and of the next one, which may have to come."""
        found = []
        for number in range(PULLS):
            topic, queue = self.chance.choice(list(self._queues))
            now = moment + number
            end = bisect_right(self._queues[topic, queue], now)
            group, waits = f"g{len(self.made)}", self.chance.random() < 0.3
            request: dict[str, Any] = {"group": group, "topic": topic, "queueId": queue, "maxMsgNums": 32, "timestamp": now}
            request |= {"offset": end if waits else self.chance.randint(0, end), "sysFlag": 3, "suspendTimeoutMillis": 15_000}
            tag = self.chance.choice([None, None, "a", "z"])
            request["filter"] = None if tag is None else {"type": "TAG", "expression": tag}
            self.made[group] = request
            found.append({"request": request})
        return found


def write_requests(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    """Put a file into the folder of a stream, as a whole."""
    new = path.with_name(f".{path.name}")
    new.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    new.rename(path)


def stream_metrics(path: Path) -> dict[str, float]:
    """Values of the stream's metrics; durations have the phase in their name."""
    found = {}
    for name, metric in parse(path.read_text("utf-8")).items() if path.exists() else ():
        for labels, value in metric.series.items():
            found[" ".join([name, *(text for label, text in labels if label == "phase")])] = value
    return found


def sampled(begun: float, running: Sequence[subprocess.Popen[str]], metrics: Path, lake: Path) -> Sample:
    memory, files = memory_and_files([pid for process in running for pid in processes_of(process.pid)])
    found = stream_metrics(metrics)
    batches = found.get("pullsim_stream_batches_total", 0)
    took = found.get("pullsim_stream_duration_seconds_total triggerExecution", 0)
    return Sample(time.monotonic() - begun, memory, files, batches, took, sum(len(names) for _, _, names in os.walk(lake)))


def check_flat(samples: Sequence[Sample]) -> None:
    """Check that the processes take no more in the last third of the time than in the second third."""
    parts = [samples[len(samples) * part // 3 : len(samples) * (part + 1) // 3] for part in (1, 2)]
    memory, files = ([max(getattr(one, name) for one in part) for part in parts] for name in ("memory", "files"))
    batch = [(part[-1].batch_seconds - part[0].batch_seconds) / (part[-1].batches - part[0].batches) for part in parts]
    assert memory[1] <= memory[0] * 1.1 + 50 * 1024, memory
    assert files[1] <= files[0] + 30, files
    assert batch[1] <= batch[0] * 1.3 + 0.1, batch


def answers_of(lake: Path) -> list[dict[str, str]]:
    asked = "SELECT consumerGroup, status, nextBeginOffset, minOffset, maxOffset, messageCount, wokenMillis FROM pull_response"
    command = [sys.executable, "-m", "pipeline.main", "sql", "--lake", str(lake), asked, "--format", "csv"]
    run = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    return list(csv.DictReader(io.StringIO(run.stdout)))


def answered_alone(folder: Path, pulls: dict[str, dict[str, Any]], answers: Sequence[dict[str, str]]) -> dict[str, dict[str, Any]]:
    """The replay's answer to each pull, sent again at the moment of its answer and without waiting."""
    requests, out = folder / "alone.jsonl", folder / "alone-answers.jsonl"
    asked = [pulls[row["consumerGroup"]] | {"sysFlag": 1} for row in answers]
    moments = [int(row["wokenMillis"] or one["timestamp"]) for row, one in zip(answers, asked, strict=True)]
    write_requests(requests, [{"request": one | {"timestamp": moment}} for one, moment in zip(asked, moments, strict=True)])
    call: list[str | Path] = ["replay", "--lake", folder / "lake", "--requests", requests, "--at", "request-time", "--out", out]
    run = ended(call)
    assert run.code == 0, run.err
    found = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    return {line["request"]["group"]: line["response"] for line in found}


def test_a_stream_and_a_follower_go_on_for_hours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "workload.toml").write_text(WORKLOAD, "utf-8")
    assert ended(["generate", tmp_path / "grown", "--workload", tmp_path / "workload.toml"]).code == 0
    store = GrowingStore(tmp_path / "grown", tmp_path / "store")
    lake, incoming, metrics, pulls = tmp_path / "lake", tmp_path / "incoming", tmp_path / "stream.prom", Pulls(store)
    incoming.mkdir()
    first = store.times[0]
    store.grow_to(first)
    importing: list[str | Path] = ["import", tmp_path / "store", "--lake", lake, "--broker-name", "b"]
    assert ended(importing).code == 0
    store.grow_to(first + AHEAD * 1000)
    one_gib = ("--master", "local[2]", "--conf", "spark.driver.memory=1g")
    asked: list[str | Path] = ["--lake", lake, "--requests", incoming, "--checkpoint", tmp_path / "of-stream"]
    asked += ["--at", "request-time", "--hold"]
    told = [tmp_path / "follower.txt", tmp_path / "stream.txt"]
    running = [
        start([*importing, "--follow", "--trigger", "5", *one_gib], told=told[0]),
        start(["stream", *asked, "--metrics", metrics, *one_gib], told=told[1]),
    ]
    samples, number = [], 0
    try:
        while "batch 0:" not in told[0].read_text("utf-8"):  # the first batch takes minutes on a busy machine, the next ones less
            assert [process.poll() for process in running] == [None, None]
            time.sleep(1)
        begun = time.monotonic()
        while (now := time.monotonic() - begun) < SECONDS:
            assert [process.poll() for process in running] == [None, None]
            count = store.grow_to(first + int((now + AHEAD) * 1000))
            moment = first + int(now * 1000)
            write_requests(incoming / f"{number:08d}.jsonl", [*pulls.at(moment), {"kind": "heartbeat", "timestamp": moment + PULLS}])
            samples.append(sampled(begun, running, metrics, lake))
            number += 1
            time.sleep(max(begun + number * TICK - time.monotonic(), 0))
        write_requests(incoming / "end.jsonl", [{"kind": "heartbeat", "timestamp": moment + 60_000}])
        while stream_metrics(metrics).get("pullsim_stream_requests_answered_total") != len(pulls.made):
            assert time.monotonic() - begun < SECONDS + REST, stream_metrics(metrics)
            time.sleep(1)
    finally:
        for process in running:
            process.terminate()
        codes = [process.wait(timeout=120) for process in running]
    assert codes == [0, 0], [path.read_text("utf-8")[-3000:] for path in told]
    answers = answers_of(lake)
    assert Counter(row["consumerGroup"] for row in answers) == Counter([*pulls.made])
    alone = answered_alone(tmp_path, pulls.made, answers)
    with capsys.disabled():
        held = sum(bool(row["wokenMillis"]) for row in answers)
        print(f"{SECONDS} s: {len(answers)} pulls answered once, {held} held; {count} messages; {samples[:: max(len(samples) // 12, 1)]}")
    compared = ((row, alone[row["consumerGroup"]]) for row in answers)
    assert [row for row, replayed in compared if any(row[name] != str(replayed[name]) for name in ("status", "nextBeginOffset"))] == []
    if SECONDS >= SETTLED:
        check_flat(samples)
