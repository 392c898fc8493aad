"""Store, lake, requests, answers, captures and checkpoints on a real S3: each command gives what it gives on local files.

    ./run long -k test_s3

The server is versitygw; `tests/runs/s3_server.py` says why, and builds it once with Go.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from pipeline.delta.delta_log import run_of
from pipeline.delta.table_commits import append_files, create_table
from pipeline.lake.driver_lock import DEAD_SECONDS, NAME, write_alone
from pipeline.schema.tables import LAKE_VERSION, REPLAY_RUN
from pullsim import Error
from pullsim import open as open_lake
from tests.makers.aged_lakes import age, replaced_lake
from tests.makers.lakes import file_rows, live_files
from tests.makers.plain_lakes import plain_lake
from tests.runs.killed_streams import lake_versions
from tests.runs.left_rows import left_rows
from tests.runs.on_both import COMMANDS, Done, all_files, at_once, check_printed, check_whole_or_refused, on_both
from tests.runs.s3_server import BUCKET, S3Server, s3_server
from tests.truth.places import PROJECT

ON_S3 = f"s3://{BUCKET}/all"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory, small_store: Path, server: S3Server) -> Path:
    """The folder with all that the commands read; S3 has a copy."""
    folder = all_files(tmp_path_factory, small_store)
    pafs.copy_files(str(folder), f"{BUCKET}/all", pafs.LocalFileSystem(), server.filesystem())
    return folder


@pytest.fixture(scope="module")
def done(local: Path, server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[Done, Done]:
    """What the commands printed on local files, and on S3."""
    return on_both(local, ON_S3, server.environment(), tmp_path_factory)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_on_s3_what_it_prints_on_local_files(name: str, done: tuple[Done, Done], local: Path) -> None:
    check_printed(name, done, local, ON_S3)


def test_answers_are_those_of_the_real_broker(done: tuple[Done, Done], local: Path, server: S3Server) -> None:
    lines = [line for line in map(json.loads, (local / "trace.jsonl").read_text("utf-8").splitlines()) if "request" in line]
    asked = [line for line in lines if (line["request"]["filter"] or {"type": "TAG"})["type"] == "TAG"]
    answered = [line for line in asked if "status" in (line["response"] or {})]  # an exception of the store is no answer on the wire
    assert done[1]["replay"][1].splitlines()[-1] == f"{len(asked)} compared, 0 differ"
    assert done[1]["replay captured"][1].splitlines()[-1] == f"{len(answered)} compared, 0 differ"
    with server.filesystem().open_input_file(f"{BUCKET}/all/answers.jsonl") as answers:
        assert answers.read() == (local / "answers.jsonl").read_bytes()


def test_nothing_but_files_of_tables_and_outputs_is_left_on_s3(done: tuple[Done, Done], server: S3Server) -> None:
    assert done
    left = [path for path in server.folder.rglob(".pullsim-*") if path.is_file()]
    assert [path for path in left if path.name != NAME] == []
    assert are_free(server)


def are_free(server: S3Server) -> bool:
    """Whether each lake that was written to has been released."""
    contents = {path.read_text("utf-8") for path in server.folder.rglob(NAME)}
    return contents == {'{"released": true}'}


def pullsim(server: S3Server, *arguments: str, **changed: str | None) -> tuple[int, str, str, float]:
    """Exit code, stdout, stderr and seconds of a command in a process of its own; None takes a variable out of its environment."""
    environment = {name: value for name, value in (server.environment() | changed).items() if value is not None}
    begun = time.monotonic()
    call = [sys.executable, "-m", "pipeline.main", *arguments]
    run = subprocess.run(call, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    return run.returncode, run.stdout, run.stderr, time.monotonic() - begun


NO_VARIABLES = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_REGION"))


def test_no_secret_is_printed_or_written(server: S3Server, local: Path, tmp_path: Path) -> None:
    """Credentials as settings of Spark, and a path by Hadoop's name."""
    given = {"access.key": server.key, "secret.key": server.secret, "endpoint": server.endpoint, "path.style.access": "true"}
    conf = [part for name, value in given.items() for part in ("--conf", f"spark.hadoop.fs.s3a.{name}={value}")]
    lake = f"s3a://{BUCKET}/secrets/lake"
    call = ("import", f"s3a://{BUCKET}/all/other", "--lake", lake, "--broker-name", "c", "--verbose", *conf)
    code, out, err, _ = pullsim(server, *call, "--conf", "spark.log.level=INFO", **NO_VARIABLES)
    assert code == 0, err
    assert "imported broker c" in out
    log = server.folder / BUCKET / "secrets" / "lake" / "lake_version" / "_delta_log"
    assert list(log.glob("*.json"))
    assert server.secret not in out + err
    written = [path for path in (server.folder / BUCKET).rglob("*") if path.is_file()]
    assert [path for path in written if server.secret.encode() in path.read_bytes()] == []


def replaced(arguments: Sequence[str], old: str, new: str) -> list[str]:
    return [argument.replace(old, new) for argument in arguments]


LOCAL_ENDPOINT = "http://127.0.0.1:1"
# what is wrong: variables, bucket, and words of the message
WRONG: dict[str, tuple[dict[str, str | None], str, str]] = {
    "endpoint": ({"AWS_ENDPOINT_URL": LOCAL_ENDPOINT}, BUCKET, f"expected S3 at {LOCAL_ENDPOINT}, found no answer"),
    "no credentials": ({"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None}, BUCKET, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
    "secret": ({"AWS_SECRET_ACCESS_KEY": "wrong"}, BUCKET, "found that it refuses the given ones"),
    "key": ({"AWS_ACCESS_KEY_ID": "wrong"}, BUCKET, "found that it refuses the given ones"),
    "bucket": ({}, "nobody", "expected a bucket nobody"),
    "region": ({"AWS_ENDPOINT_URL": None, "AWS_REGION": None}, BUCKET, "expected the region of S3 in AWS_REGION"),
    "profile": ({"AWS_ACCESS_KEY_ID": None, "AWS_PROFILE": "nobody"}, BUCKET, "AWS_PROFILE=nobody: expected a profile"),
}
CALLS = {
    "import": ("import", "s3://B/all/store", "--lake", "lake"),
    "lake": ("import", ".", "--lake", "s3a://B/lake"),
    "sql": ("sql", "--lake", "s3://B/lake", "SELECT 1"),
    "replay": ("replay", "--lake", "s3://B/lake", "--requests", "s3://B/x.jsonl"),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("call", CALLS)
def test_what_cannot_be_opened_is_refused_at_once_in_one_sentence(call: str, wrong: str, server: S3Server) -> None:
    variables, bucket, words = WRONG[wrong]
    code, out, err, seconds = pullsim(server, *replaced(CALLS[call], "//B", f"//{bucket}"), **variables)
    assert (code, out, len(err.splitlines())) == (2, "", 1), err
    assert words in err
    assert seconds < 30  # most of it is Python's start


@pytest.mark.parametrize("call", CALLS)
def test_a_scheme_that_nobody_opens_is_refused_at_once(call: str, server: S3Server) -> None:
    code, out, err, _ = pullsim(server, *[part.replace("s3a:", "s4:").replace("s3:", "s4:") for part in CALLS[call]])
    assert (code, out, len(err.splitlines())) == (2, "", 1), err
    assert "s4://" in err


def test_a_lake_that_is_not_there_is_refused_before_an_engine_starts(server: S3Server) -> None:
    code, out, err, _ = pullsim(server, "sql", "--lake", f"s3://{BUCKET}/none", "SELECT 1")
    said = f"fill it with `pullsim import STORE --lake s3://{BUCKET}/none`\n"
    assert (code, out) == (2, "")
    assert err == f"pullsim: error: s3://{BUCKET}/none: expected a lake, found no table lake_version; " + said


# topic, queue and offset of entries
QUEUED = [("t", 0, 0), ("t", 0, 1), ("t", 1, 5), ("a b/%", 0, 0), ("a b/%", 1, 7), ("a b/%", 1, 9), ("ü", 3, 1)]
ROWS = [{"brokerName": "b", "topic": topic, "queueId": queue, "queueOffset": offset, "size": 100} for topic, queue, offset in QUEUED]


def test_questions_are_answered_from_s3_without_spark(server: S3Server, tmp_path: Path) -> None:
    """A lake that deltalake wrote locally, and a copy of it; credentials in a profile."""
    lake = plain_lake(tmp_path / "lake", {"consume_queue": ROWS})
    pafs.copy_files(str(lake), f"{BUCKET}/plain", pafs.LocalFileSystem(), server.filesystem())
    profile = tmp_path / "credentials"
    keys = f"aws_access_key_id = {server.key}\naws_secret_access_key = {server.secret}\nendpoint_url = {server.endpoint}\n"
    profile.write_text(f"[reader]\n{keys}", "utf-8")
    variables = NO_VARIABLES | {"AWS_PROFILE": "reader", "AWS_SHARED_CREDENTIALS_FILE": str(profile)}
    for question in (
        "SELECT topic, queueId, count(*), min(queueOffset), sum(size) FROM consume_queue GROUP BY ALL ORDER BY ALL",
        "SELECT queueOffset FROM consume_queue WHERE topic = 'a b/%' AND queueId = 1 ORDER BY ALL",
        "SELECT version, what, tables FROM lake_version",
    ):
        asked = [
            pullsim(server, "sql", "--lake", at, question, "--engine", "duckdb", "--format", "csv", **variables)
            for at in (str(lake), f"s3a://{BUCKET}/plain")
        ]
        (code, out, err, _), (code_on_s3, out_on_s3, err_on_s3, _) = asked
        assert (code, err, code_on_s3, err_on_s3) == (0, "", 0, "")
        assert len(out.splitlines()) > 1
        assert out == out_on_s3


def test_vacuum_deletes_on_s3_what_it_deletes_on_local_files(server: S3Server, tmp_path: Path, small_store: Path) -> None:
    at, files = f"s3://{BUCKET}/vacuumed", server.folder / BUCKET / "vacuumed"
    replaced_lake(tmp_path / "lake", small_store)
    pafs.copy_files(str(tmp_path / "lake"), f"{BUCKET}/vacuumed", pafs.LocalFileSystem(), server.filesystem())
    age(tmp_path / "lake", 3)
    age(files, 3)
    asked = "SELECT topic, queueId, queueOffset, physicOffset FROM consume_queue ORDER BY ALL"
    before = pullsim(server, "sql", "--lake", at, asked, "--format", "csv")
    told = [pullsim(server, "vacuum", "--lake", lake, "--keep", "2", "--format", "csv") for lake in (str(tmp_path / "lake"), at)]
    assert [(code, err.split()[1]) for code, _, err, _ in told] == [(0, told[0][2].split()[1])] * 2
    counted = [[line.split(",")[:3] for line in out.splitlines()] for _, out, _, _ in told]
    assert len(counted[0]) > 5
    assert counted[0] == counted[1]
    left = [len(list(folder.rglob("*.parquet"))) for folder in (tmp_path / "lake", files)]
    assert left[0] == left[1]
    assert pullsim(server, "sql", "--lake", at, asked, "--format", "csv")[:2] == before[:2]


def test_python_asks_a_lake_on_s3(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    lake = plain_lake(tmp_path / "lake", {"consume_queue": ROWS})
    pafs.copy_files(str(lake), f"{BUCKET}/door", pafs.LocalFileSystem(), server.filesystem())
    query = "SELECT topic, queueId, queueOffset FROM consume_queue ORDER BY topic, queueId, queueOffset"
    found = open_lake(f"s3a://{BUCKET}/door").sql(query).arrow()
    assert [tuple(row.values()) for row in found.to_pylist()] == sorted(QUEUED)
    with pytest.raises(Error, match="expected a bucket nowhere at"):
        open_lake("s3://nowhere/lake")


def test_of_commits_at_once_one_succeeds(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """These commits are those that the driver makes through deltalake, for example to lake_version."""
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    path = f"s3://{BUCKET}/met/lake_version"
    create_table(LAKE_VERSION, path, {}, (), "{}")
    for version in range(5):
        with ThreadPoolExecutor(8) as pool:
            commits = [pool.submit(append_files, path, version, (), json.dumps({"runId": f"run {number}"})) for number in range(8)]
        errors = [commit.exception() for commit in commits]
        assert sorted(type(error).__name__ for error in errors) == ["CommitConflictError"] * 7 + ["NoneType"]
        assert run_of(path, version + 1) == f"run {errors.index(None)}"


def test_runs_of_two_processes_take_turns_and_lose_nothing(server: S3Server) -> None:
    lake, count = f"s3://{BUCKET}/turns/lake", 10
    calls = [[sys.executable, "-m", "tests.runs.small_runs", lake, name, str(count)] for name in ("x", "y")]
    processes = [subprocess.Popen(call, cwd=PROJECT, env=server.environment()) for call in calls]
    assert [process.wait(300) for process in processes] == [0, 0]
    folder, runs = server.folder / BUCKET / "turns" / "lake", sorted(f"{name}{number}" for name in ("x", "y") for number in range(count))
    versions = lake_versions(folder)
    assert sorted(row["runId"] for row in versions) == runs
    table = folder / REPLAY_RUN.name
    files = live_files(table, dict(versions[-1]["tables"])[REPLAY_RUN.name]).values()
    assert sorted(row["runId"] for add in files for row in file_rows(table, add)) == runs
    assert are_free(server)


def test_imports_of_two_drivers_at_once_follow_one_another(server: S3Server, local: Path) -> None:
    """All imports but the first write tables that hold other brokers, which Spark commits. An import that waits too long is refused."""
    lake = f"s3://{BUCKET}/shared/lake"
    brokers = [[f"{driver}{number}" for number in range(3)] for driver in ("x", "y")]
    commands = [[["import", f"{ON_S3}/other", "--lake", lake, "--broker-name", broker] for broker in of_driver] for of_driver in brokers]
    told = at_once(commands, server.environment())
    imported = check_whole_or_refused(brokers, told, "expected no other process that writes to this lake on S3, found import ")
    found = left_rows(server.folder / BUCKET / "shared" / "lake")
    assert sorted(found) == imported
    for broker in found:
        assert found[broker] == found[imported[0]], broker
    assert are_free(server)


def test_the_lake_of_a_driver_that_was_killed_is_taken_over(server: S3Server, local: Path) -> None:
    call = ["import", f"{ON_S3}/other", "--lake", f"s3://{BUCKET}/killed/lake", "--broker-name", "x0"]
    killed = subprocess.Popen(
        [sys.executable, "-m", "pipeline.main", *call],
        cwd=PROJECT,
        env=server.environment(),
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + 300
    while not list(server.folder.rglob(f"killed/**/{NAME}")):
        assert killed.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    code, _, err, seconds = pullsim(server, *call)
    assert code == 0, err
    assert seconds >= DEAD_SECONDS
    [found] = left_rows(server.folder / BUCKET / "killed" / "lake").values()
    assert len(found["commit_log"]) > 0
    assert are_free(server)


def test_a_lake_that_another_driver_writes_to_is_refused(server: S3Server, local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    lake = f"s3://{BUCKET}/busy/lake"
    alive = write_alone(lake, "a-stream", "stream")
    code, out, err, _ = pullsim(server, "import", f"{ON_S3}/other", "--lake", lake, "--broker-name", "c")
    alive.release()
    assert (code, out) == (2, "")
    [error] = [line for line in err.splitlines() if "error" in line]
    found = f"found stream a-stream, process {os.getpid()} on {socket.gethostname()}; start this again when the other one has ended"
    assert error == f"pullsim: error: {lake}: expected no other process that writes to this lake on S3, {found}"
