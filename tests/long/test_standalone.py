"""A standalone cluster, of a master and two workers in processes of their own: what commands leave there is what they leave on one machine.

    ./run long -k test_standalone

Executors have an archive with the wheel, and the checkout is on no path of theirs. In some cases an executor is killed in the middle
of a command.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.main import run as run_here
from tests.runs.left_rows import left_rows
from tests.runs.spark_cluster import SparkCluster, environments, finished, spark_cluster
from tests.truth.places import PROJECT

pytestmark = [pytest.mark.spark, pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc, to find executors")]

MESSAGES, LINES = 40_000, 6_000
SIZES = ("mappedFileSizeCommitLog=4194304", "mappedFileSizeConsumeQueue=60000", "maxHashSlotNum=5000", "maxIndexNum=20000")
_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Commands:
    """Commands on a store, and where they read and write."""

    store: Path
    requests: Path
    folder: Path

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    @property
    def answers(self) -> Path:
        return self.folder / "answers.jsonl"

    def of(self, name: str) -> list[str]:
        """The arguments of a command."""
        lake, one_file = ["--lake", str(self.lake)], ["--requests", str(self.requests / "all.jsonl")]
        once = ["--checkpoint", str(self.folder / "checkpoint"), "--once"]
        return {
            "import": ["import", str(self.store), *lake, "--broker-name", "b"],
            "replay": ["replay", *lake, *one_file],
            "replay to a file": ["replay", *lake, *one_file, "--out", str(self.answers)],
            "export": ["export", *lake, str(self.folder / "exported")],
            "stream": ["stream", *lake, "--requests", str(self.requests), *once],
        }[name]


Undisturbed = dict[str, Commands]
NAMES = ("import", "replay", "replay to a file", "export", "stream")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "environments").mkdir()
    with spark_cluster(folder / "processes", environments(folder / "environments")) as running:
        yield running


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """Each command, run on one machine in a folder of its own."""
    folder = tmp_path_factory.mktemp("undisturbed")
    all_commands = {name: Commands(folder / "store", folder / "requests", folder / name) for name in NAMES}
    of_import = all_commands["import"]
    assert (
        run_here(["generate", str(of_import.store), "--messages", str(MESSAGES), *(word for size in SIZES for word in ("--set", size))])
        == 0
    )
    write_requests(of_import)
    calls = []
    for name, commands in all_commands.items():
        commands.folder.mkdir()
        calls += [commands.of(one) for one in dict.fromkeys(("import", name))]
    call = [sys.executable, "-m", "tests.runs.commands_in_turn", json.dumps(calls)]
    run = subprocess.run(call, cwd=PROJECT, stdout=subprocess.PIPE, text=True, timeout=1800, check=True)
    for command, (code, _, err) in zip(calls, json.loads(run.stdout), strict=True):
        assert code == 0, (command, err)
    assert files_of(all_commands["export"].folder / "exported") == files_of(of_import.store)
    return all_commands


def write_requests(commands: Commands) -> None:
    """Requests for random offsets of all queues."""
    chance = random.Random(7)
    queues = [(path.parent.name, int(path.name)) for path in sorted(commands.store.glob("consumequeue/*/*"))]
    lines = []
    for _ in range(LINES):
        topic, queue = chance.choice(queues)
        offset = chance.randint(-2, MESSAGES // len(queues) * 2)
        asked = {"group": "g", "topic": topic, "queueId": queue, "offset": offset, "maxMsgNums": chance.choice([1, 32, 64])}
        asked["filter"] = chance.choice([None, {"type": "TAG", "expression": "*"}, {"type": "TAG", "expression": "paid || sent"}])
        lines.append(f"{json.dumps({'request': asked})}\n")
    commands.requests.mkdir()
    (commands.requests / "all.jsonl").write_text("".join(lines), "utf-8")


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def stand_in(undisturbed: Undisturbed, name: str, folder: Path) -> Commands:
    """The commands for another folder, which has the imported lake for all but the import."""
    of_import = undisturbed["import"]
    if name != "import":
        shutil.copytree(of_import.lake, folder / "lake")
    return Commands(of_import.store, of_import.requests, folder)


def check_left(name: str, commands: Commands, undisturbed: Undisturbed) -> None:
    """What a command left is what it left without a disturbance."""
    before = undisturbed[name]
    if name == "export":
        assert files_of(commands.folder / "exported") == files_of(before.folder / "exported")
    elif name == "replay to a file":
        assert commands.answers.read_bytes() == before.answers.read_bytes()
    else:
        assert left_rows(commands.lake) == left_rows(before.lake)
    assert list(commands.folder.glob(".pullsim-*")) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_command_leaves_what_it_leaves_on_one_machine(name: str, cluster: SparkCluster, undisturbed: Undisturbed, tmp_path: Path) -> None:
    commands = stand_in(undisturbed, name, tmp_path)
    cluster.run(*commands.of(name))
    check_left(name, commands, undisturbed)


def test_the_demo_runs(cluster: SparkCluster, tmp_path: Path) -> None:
    assert "446 compared, 0 differ" in cluster.run("demo", "--lake", str(tmp_path / "lake")).splitlines()


# what the tasks of a command write: a pattern in its folder
WRITTEN = {
    "import": "lake/commit_log/*/*/*.parquet",
    "replay": "lake/pull_response/*.parquet",
    "replay to a file": ".pullsim-*.parts/*",
    "export": ".pullsim-*.part/store/commitlog/*",
}
# an executor may have no task at the moment of its end
_TRIES = 4
_LOST = ("ExecutorLostFailure", "FetchFailed", "Resubmitted")


@pytest.mark.parametrize("name", WRITTEN)
def test_an_executor_that_is_killed_changes_no_result(name: str, cluster: SparkCluster, undisturbed: Undisturbed, tmp_path: Path) -> None:
    """It is killed when tasks have begun to write; again with the same command, until it had a task or its rows are missed."""
    for number in range(_TRIES):
        place, events = tmp_path / str(number), tmp_path / f"events{number}"
        place.mkdir()
        events.mkdir()
        commands = stand_in(undisturbed, name, place)
        logged = ("spark.eventLog.enabled=true", f"spark.eventLog.dir={events.as_uri()}", "spark.eventLog.compress=false")
        running = cluster.start(*commands.of(name), conf=logged)
        until = time.monotonic() + _SECONDS
        while running.poll() is None and not any(place.glob(WRITTEN[name])):
            assert time.monotonic() < until
            time.sleep(0.01)
        for executor in cluster.executors()[:1]:
            os.kill(executor, signal.SIGKILL)
        finished(running)
        check_left(name, commands, undisturbed)
        text = "".join(path.read_text("utf-8", "replace") for path in events.rglob("*") if path.is_file())
        if any(f'"Reason":"{reason}"' in text for reason in _LOST):
            return
    raise AssertionError("no executor with a task was killed")
