"""A standalone cluster, of a master and two workers in processes of their own: what commands leave there is what they leave on one machine.

    ./run long -k test_standalone

Executors have an archive with the wheel, and the checkout is on no path of theirs. Executors and workers are killed in the middle of
commands, tasks run twice at once, and a worker's disk gets full. Store, lake and requests are on S3, too.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from tests.runs.event_log import EventLog
from tests.runs.large_store import MESSAGES as LARGE_MESSAGES
from tests.runs.large_store import PULLS, digests, log_bytes, rows, write_large_store, write_pulls
from tests.runs.s3_server import BUCKET, S3Server, s3_server
from tests.runs.small_disk import disk_of, kept_full
from tests.runs.spark_cluster import SparkCluster, ended, environments, finished, spark_cluster
from tests.runs.standalone_commands import (
    FILLING,
    NAMES,
    Commands,
    Undisturbed,
    check_left,
    check_nothing_left,
    run_undisturbed,
    stand_in,
)
from tests.truth.places import PROJECT

pytestmark = [pytest.mark.spark, pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc, to find executors")]

_SECONDS = 300


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "environments").mkdir()
    with spark_cluster(folder / "processes", environments(folder / "environments")) as running:
        yield running


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    return run_undisturbed(tmp_path_factory.mktemp("undisturbed"))


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
    "export": ".pullsim-*.part/exported/commitlog/*",
    "stream": "lake/pull_response/*.parquet",
    "follow": "lake/commit_log/*/*/*.parquet",
}
# an executor may have no task at the moment of its end
_TRIES = 4


def await_written(name: str, commands: Commands, running: subprocess.Popen[str]) -> None:
    """Wait until tasks of a command have begun to write, or until it has ended. The driver creates an export's files, without blocks."""
    until = time.monotonic() + _SECONDS
    while running.poll() is None and not any(name != "export" or path.stat().st_blocks for path in commands.folder.glob(WRITTEN[name])):
        assert time.monotonic() < until
        time.sleep(0.01)


def begun(name: str, cluster: SparkCluster, undisturbed: Undisturbed, folder: Path) -> tuple[Commands, EventLog, subprocess.Popen[str]]:
    """A command in a new folder, with its event log, whose tasks have begun to write."""
    folder.mkdir()
    commands, log = stand_in(undisturbed, name, folder / "place"), EventLog(folder / "events")
    running = cluster.start(*commands.of(name), conf=log.conf)
    await_written(name, commands, running)
    return commands, log, running


@pytest.mark.parametrize("name", WRITTEN)
def test_an_executor_that_is_killed_changes_no_result(name: str, cluster: SparkCluster, undisturbed: Undisturbed, tmp_path: Path) -> None:
    """It is killed when tasks have begun to write. The command is repeated until the killed executor had a task or rows that are needed."""
    for number in range(_TRIES):
        commands, log, running = begun(name, cluster, undisturbed, tmp_path / str(number))
        for executor in cluster.executors()[:1]:
            os.kill(executor, signal.SIGKILL)
        finished(running)
        check_left(name, commands, undisturbed)
        if log.missed_executor():
            return
    raise AssertionError("no executor with a task was killed")


@pytest.mark.parametrize("name", ["import", "replay", "stream"])
def test_a_worker_that_is_killed_and_comes_back_changes_no_result(
    name: str, cluster: SparkCluster, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    """The executor ends with its worker. The worker that comes back has a new one. Until it runs, the other's executor stands still."""
    for number in range(_TRIES):
        commands, log, running = begun(name, cluster, undisturbed, tmp_path / str(number))
        others = cluster.executors_of(cluster.workers[1])
        for executor in others:
            os.kill(executor, signal.SIGSTOP)
        cluster.restart_worker(0)
        until = time.monotonic() + _SECONDS
        while running.poll() is None and log.executors() <= len(cluster.workers) and time.monotonic() < until:
            time.sleep(0.2)
        for executor in others:
            with suppress(ProcessLookupError):
                os.kill(executor, signal.SIGCONT)
        finished(running)
        check_left(name, commands, undisturbed)
        if log.missed_executor() and log.executors() > len(cluster.workers):
            return
    raise AssertionError("no worker with a task was killed, or the command ended before it was back")


# a second attempt of nearly every task, as soon as there is a free core; a stage of one task has one, too
SPECULATION = (
    "spark.speculation=true",
    "spark.speculation.interval=5ms",
    "spark.speculation.minTaskRuntime=1ms",
    "spark.speculation.multiplier=1.0",
    "spark.speculation.quantile=0.01",
    "spark.speculation.task.duration.threshold=1ms",
    "spark.speculation.efficiency.enabled=false",
)


@pytest.mark.parametrize("name", NAMES)
def test_tasks_that_run_twice_at_once_change_no_result(name: str, cluster: SparkCluster, undisturbed: Undisturbed, tmp_path: Path) -> None:
    """The executors stand still in turn, so that a second attempt overtakes the first one, which then goes on for a while."""
    commands, log = stand_in(undisturbed, name, tmp_path / "place"), EventLog(tmp_path / "events")
    running = cluster.start(*commands.of(name), conf=(*log.conf, *SPECULATION))
    with_pauses = threading.Thread(target=pause_in_turn, args=(cluster.executors, lambda: running.poll() is None))
    with_pauses.start()
    finished(running)
    with_pauses.join()
    check_left(name, commands, undisturbed)
    attempts = log.speculative()
    print(name, dict(attempts), f"of {sum(1 for _ in log.events('TaskEnd'))} attempts")
    assert attempts["Success"] > 0, attempts


_PAUSE = 0.3


def pause_in_turn(executors: Callable[[], list[int]], runs: Callable[[], bool]) -> None:
    """Let one executor after another stand still for a moment, while a command runs."""
    turn = 0
    while runs():
        found, turn = executors(), turn + 1
        if not found:
            time.sleep(_PAUSE)
            continue
        stopped = found[turn % len(found)]
        with suppress(ProcessLookupError):
            os.kill(stopped, signal.SIGSTOP)
            time.sleep(_PAUSE)
            os.kill(stopped, signal.SIGCONT)
        time.sleep(_PAUSE)


def check_whole_or_failed(name: str, commands: Commands, undisturbed: Undisturbed, submitted: subprocess.Popen[str], words: str) -> int:
    """The exit code of a command. It must be 0 with the whole result, or 3 with one sentence that has `words`, and nothing visible."""
    code, out, err = ended(submitted)
    if code == 0:
        check_left(name, commands, undisturbed)
        return code
    # spark-submit prints both streams of its Python to stdout
    errors = [line for line in out.splitlines() if line.startswith("pullsim: the engine failed: ")]
    assert (code, len(errors)) == (3, 1), out[-4000:] + err[-4000:]
    assert words in errors[0]
    assert out.rstrip().endswith(errors[0])
    check_nothing_left(name, commands, undisturbed)
    return code


@pytest.mark.parametrize("name", ["replay"])
def test_executors_that_are_killed_all_at_once_leave_a_whole_result_or_nothing(
    name: str, cluster: SparkCluster, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    """Rows that were to be computed once may be lost with them; then the next run of the command succeeds."""
    for number in range(_TRIES):
        commands, log, running = begun(name, cluster, undisturbed, tmp_path / str(number))
        executors = cluster.executors()
        for executor in executors:
            os.kill(executor, signal.SIGKILL)
        code = check_whole_or_failed(name, commands, undisturbed, running, "executors ended that kept rows of this run")
        print(name, len(executors), "killed, exit code", code, dict(log.failures()))
        if code:
            finished(cluster.start(*commands.of(name)))
            check_left(name, commands, undisturbed)
        if len(executors) == len(cluster.workers) and log.missed_executor():
            return
    raise AssertionError("no executors with tasks were killed")


# MiB: the archive and its unpacked content take 1,250
TOO_SMALL = 100


def test_a_worker_whose_disk_is_too_small_for_the_environment_changes_no_result(
    cluster: SparkCluster, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    """The disk has the worker's folders. Spark starts one executor after another there, and each ends before it has a task."""
    commands, log = stand_in(undisturbed, "import", tmp_path / "place"), EventLog(tmp_path / "events")
    with disk_of(tmp_path / "disk", mebibytes=TOO_SMALL) as disk:
        cluster.restart_worker(1, disk)
        try:
            finished(cluster.start(*commands.of("import"), conf=log.conf, archive=True))
        finally:
            cluster.restart_worker(1)
    check_left("import", commands, undisturbed)
    assert log.executors() > len(cluster.workers)


# MiB: the jars of an executor take more than 100
LARGE_ENOUGH = 300


def test_a_worker_whose_disk_gets_full_in_a_replay_leaves_a_whole_result_or_nothing(
    cluster: SparkCluster, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    """The disk has the worker's folders. It is full as soon as its executor has ended a task; later tasks write files of shuffles there."""
    host = "127.0.0.2"
    for number in range(_TRIES):
        commands, log = stand_in(undisturbed, "replay", tmp_path / str(number)), EventLog(tmp_path / f"events{number}")
        with disk_of(tmp_path / f"disk{number}", mebibytes=LARGE_ENOUGH) as disk:
            cluster.restart_worker(1, disk)
            try:
                running = cluster.start(*commands.of("replay"), conf=log.conf)
                until = time.monotonic() + _SECONDS
                while running.poll() is None and all(event["Task Info"]["Host"] != host for event in log.events("TaskEnd")):
                    assert time.monotonic() < until
                    time.sleep(0.01)
                with kept_full(disk):
                    code = check_whole_or_failed("replay", commands, undisturbed, running, "a disk is full (")
            finally:
                cluster.restart_worker(1)
        print("exit code", code, dict(log.failures()))
        if code:
            finished(cluster.start(*commands.of("replay")))
            check_left("replay", commands, undisturbed)
        if any("No space left" in str(event["Task End Reason"]) for event in log.events("TaskEnd")):
            return
    raise AssertionError("no task met the full disk")


# the packages of docs/cluster.md; --packages replaces those of the properties file
PACKAGES = (
    "io.delta:delta-spark_4.2_2.13:4.4.0",
    "io.delta:delta-storage:4.4.0",
    "org.apache.hadoop:hadoop-aws:3.5.0",
    "software.amazon.awssdk:s3-transfer-manager:2.35.4",
    "software.amazon.awssdk:sts:2.35.4",
)
WITH_S3 = ("--packages", ",".join(PACKAGES), "--exclude-packages", "software.amazon.awssdk:bundle")
# the times of the store's files, which are copies, and the path of the store
OF_PLACES = ("store_file.mtimeMs", "broker.store")


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory, undisturbed: Undisturbed) -> Iterator[S3Server]:
    """A server that has the store and the requests."""
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        of_import = undisturbed["import"]
        for place in (of_import.store, of_import.requests):
            pafs.copy_files(str(place), f"{BUCKET}/{place.name}", pafs.LocalFileSystem(), server.filesystem())
        yield server


def replaced(word: str, beginnings: Mapping[str, str]) -> str:
    """A word with its beginning replaced by the first of the beginnings that match."""
    return next((new + word.removeprefix(old) for old, new in beginnings.items() if word.startswith(old)), word)


def test_commands_on_s3_leave_what_they_leave_on_local_files(
    cluster: SparkCluster, undisturbed: Undisturbed, s3: S3Server, tmp_path: Path
) -> None:
    """Only the driver's environment has the credentials. No output, log or object has the secret."""
    variables = {name: value for name, value in s3.environment().items() if name.startswith("AWS_")}
    objects = s3.folder / BUCKET
    for name in ("import", "replay", "replay to a file"):
        log = EventLog(tmp_path / f"events-{name.replace(' ', '-')}")
        place, before = name.replace(" ", "-"), undisturbed[name]
        at = {f"{before.folder}/": f"s3://{BUCKET}/{place}/", f"{before.folder.parent}/": f"s3://{BUCKET}/"}
        call = [replaced(word, at) for word in before.of(name)]
        if name not in FILLING:
            shutil.copytree(objects / "import" / "lake", objects / place / "lake")
        code, out, err = ended(cluster.start(*call, conf=log.conf, options=WITH_S3, variables=variables))
        assert code == 0, err[-4000:]
        assert s3.secret not in out + err
        # the next command removes the logs of this one's executors
        written = [path for folder in (tmp_path, cluster.folder, objects) for path in folder.rglob("*") if path.is_file()]
        assert {"master.log", "worker0.log", "worker1.log", "stderr"} <= {path.name for path in written}
        assert [path for path in written if s3.secret.encode() in path.read_bytes()] == []
        assert any(log.events("EnvironmentUpdate"))
        check_left(name, Commands(before.store, before.requests, objects / place), undisturbed, without=OF_PLACES)


def test_a_large_log_and_millions_of_pulls_are_answered_as_on_one_machine(cluster: SparkCluster, tmp_path: Path) -> None:
    """All rows of all tables are compared, by their numbers and by the sums of their hashes."""
    store, pulls, seconds = write_large_store(tmp_path), tmp_path / "pulls.jsonl", {}
    write_pulls(pulls)
    found = {}
    for place in ("one machine", "cluster"):
        lake = tmp_path / place.replace(" ", "-")
        for name in ("import", "replay"):
            call = [name, str(store)] if name == "import" else [name, "--requests", str(pulls)]
            call += ["--lake", str(lake), *(["--broker-name", "b"] if name == "import" else [])]
            begun = time.monotonic()
            if place == "cluster":
                finished(cluster.start(*call))
            else:
                subprocess.run([sys.executable, "-m", "pipeline.main", *call], cwd=PROJECT, check=True, timeout=1800)
            seconds[place, name] = round(time.monotonic() - begun)
        found[place] = digests(lake)
    print(seconds, log_bytes(lake), {name: rows(lake, name) for name in found["cluster"]})
    assert found["cluster"] == found["one machine"]
    assert log_bytes(lake) > 10**9
    assert rows(lake, "commit_log") == LARGE_MESSAGES
    assert rows(lake, "pull_response") == PULLS
