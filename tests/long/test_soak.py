"""A stream that holds pulls, beside a follower, for hours: each pull gets one right answer, and memory, files and time do not grow.

    PULLSIM_SOAK_SECONDS=21600 ./run long -k test_soak

Pulls and messages come at a bounded rate, and the time of the pulls is that of the clock. PULLSIM_SOAK_SECONDS is the time of the run.
PULLSIM_SOAK_FOLDER is a folder that is kept. A run goes on where the former run of the folder ended, or died: hours can be parts.
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
# seconds that all runs of a folder have together
ALL_RUNS = max(SECONDS, 25_000)
# seconds after which memory and files that a process takes only at its start no longer count
SETTLED = 900
TICK, PULLS = 2.0, 30
# ticks between looks at memory and files
LOOKS = 5
# seconds between batches: a batch costs much the same whatever it holds, and a part of the machine stays free for other work
TRIGGER_OF_STREAM, TRIGGER_OF_FOLLOWER = "15", "100"
# seconds that the store is ahead of the pulls: a follower needs time to import messages, a minute at its start on a busy machine
AHEAD = 300
# seconds within which the last pulls are answered
REST = 180
ANSWERS = "SELECT consumerGroup, status, nextBeginOffset, minOffset, maxOffset, messageCount, wokenMillis FROM pull_response"
WORKLOAD = f"""
seed = 3
start = 2026-01-01T00:00:00Z
duration = "{ALL_RUNS + AHEAD + REST}s"
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

    def __init__(self, store: GrowingStore, sent: Sequence[Path]) -> None:
        """`sent`: the files of former runs."""
        lines = (json.loads(line) for path in sent for line in path.read_text("utf-8").splitlines())
        self.made: dict[str, dict[str, Any]] = {line["request"]["group"]: line["request"] for line in lines if "request" in line}
        self.chance = random.Random(len(self.made))
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


def found_in(lake: Path, asked: str) -> list[dict[str, str]]:
    """The rows of a question to a lake."""
    command = [sys.executable, "-m", "pipeline.main", "sql", "--lake", str(lake), asked, "--format", "csv"]
    run = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    return list(csv.DictReader(io.StringIO(run.stdout)))


def answered_alone(
    lake: Path, folder: Path, pulls: dict[str, dict[str, Any]], answers: Sequence[dict[str, str]]
) -> dict[str, dict[str, Any]]:
    """The replay's answer to each pull, sent again at the moment of its answer and without waiting; files go into `folder`."""
    requests, out = folder / "alone.jsonl", folder / "alone-answers.jsonl"
    asked = [pulls[row["consumerGroup"]] | {"sysFlag": 1} for row in answers]
    moments = [int(row["wokenMillis"] or one["timestamp"]) for row, one in zip(answers, asked, strict=True)]
    write_requests(requests, [{"request": one | {"timestamp": moment}} for one, moment in zip(asked, moments, strict=True)])
    call: list[str | Path] = ["replay", "--lake", lake, "--requests", requests, "--at", "request-time", "--out", out]
    run = ended(call)
    assert run.code == 0, run.err
    found = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    return {line["request"]["group"]: line["response"] for line in found}


class Soak:
    """The folder of a soak: the store, the lake, the requests, and what former runs left.

    Attributes:
        former: seconds up to which the stream has answered.
        number: number of files of requests.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.lake, self.incoming, self.metrics = folder, folder / "lake", folder / "incoming", folder / "stream.prom"
        self.importing: list[str | Path] = ["import", folder / "store", "--lake", self.lake, "--broker-name", "b"]
        if not self.incoming.exists():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "workload.toml").write_text(WORKLOAD, "utf-8")
            assert ended(["generate", folder / "grown", "--workload", folder / "workload.toml"]).code == 0
        self.store = GrowingStore(folder / "grown", folder / "store")
        self.first = self.store.times[0]
        if not self.incoming.exists():
            self.store.grow_to(self.first)
            assert ended(self.importing).code == 0
            self.incoming.mkdir()
        sent = sorted(self.incoming.glob("*.jsonl"))
        self.pulls, self.number, self.former = Pulls(self.store, sent), len(sent), 0.0
        if sent:
            self.former = (json.loads(sent[-1].read_text("utf-8").splitlines()[-1])["timestamp"] - self.first) / 1000 + TICK
        self.grow(0)
        self.metrics.unlink(missing_ok=True)

    def start(self) -> tuple[list[subprocess.Popen[str]], list[Path]]:
        """The follower and the stream, and the files to which they print."""
        one_gib = ("--master", "local[2]", "--conf", "spark.driver.memory=1g")
        told = [self.folder / "follower.txt", self.folder / "stream.txt"]
        asked: list[str | Path] = ["--lake", self.lake, "--requests", self.incoming, "--checkpoint", self.folder / "of-stream"]
        asked += ["--at", "request-time", "--hold", "--trigger", TRIGGER_OF_STREAM, "--metrics", self.metrics]
        follower = start([*self.importing, "--follow", "--trigger", TRIGGER_OF_FOLLOWER, *one_gib], told=told[0])
        return [follower, start(["stream", *asked, *one_gib], told=told[1])], told

    def grow(self, now: float) -> int:
        """Show the store's messages up to a moment of this run, s, and those that are ahead of it; returns their number."""
        return self.store.grow_to(self.first + int((self.former + now + AHEAD) * 1000))

    def ask(self, now: float) -> None:
        """Send the pulls of a moment of this run, s."""
        moment = self._moment(now)
        self._write([*self.pulls.at(moment), {"kind": "heartbeat", "timestamp": moment + PULLS}])

    def end(self, now: float) -> None:
        """Let the time of the requests go on so far that no pull is held any more."""
        self._write([{"kind": "heartbeat", "timestamp": self._moment(now) + 60_000}])

    def _moment(self, now: float) -> int:
        return self.first + int((self.former + now) * 1000)

    def _write(self, lines: Sequence[dict[str, Any]]) -> None:
        write_requests(self.incoming / f"{self.number:08d}.jsonl", lines)
        self.number += 1


def test_a_stream_and_a_follower_go_on_for_hours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    soak = Soak(Path(os.environ.get("PULLSIM_SOAK_FOLDER", tmp_path)))
    running, told = soak.start()
    samples, ticks = list[Sample](), 0
    try:
        while "batch " not in told[0].read_text("utf-8"):  # the first batch takes minutes on a busy machine, the next ones less
            assert [process.poll() for process in running] == [None, None]
            time.sleep(1)
        begun = time.monotonic()
        while (now := time.monotonic() - begun) < SECONDS:
            assert [process.poll() for process in running] == [None, None]
            count = soak.grow(now)
            soak.ask(now)
            if ticks % LOOKS == 0:
                samples.append(sampled(begun, running, soak.metrics, soak.lake))
            ticks += 1
            time.sleep(max(begun + ticks * TICK - time.monotonic(), 0))
        soak.end(now)
        while found_in(soak.lake, "SELECT count(*) AS count FROM pull_response") != [{"count": str(len(soak.pulls.made))}]:
            assert time.monotonic() - begun < SECONDS + REST, stream_metrics(soak.metrics)
            time.sleep(1)
    finally:
        for process in running:
            process.terminate()
        codes = [process.wait(timeout=120) for process in running]
    assert codes == [0, 0], [path.read_text("utf-8")[-3000:] for path in told]
    answers = found_in(soak.lake, ANSWERS)
    assert Counter(row["consumerGroup"] for row in answers) == Counter([*soak.pulls.made])
    alone = answered_alone(soak.lake, tmp_path, soak.pulls.made, answers)
    with capsys.disabled():
        held, shown = sum(bool(row["wokenMillis"]) for row in answers), samples[:: max(len(samples) // 12, 1)]
        print(f"{soak.former + now:.0f} s: {len(answers)} pulls answered once, {held} held; {count} messages; {shown}")
    compared = ((row, alone[row["consumerGroup"]]) for row in answers)
    assert [row for row, replayed in compared if any(row[name] != str(replayed[name]) for name in ("status", "nextBeginOffset"))] == []
    if SECONDS >= SETTLED:
        check_flat(samples)
