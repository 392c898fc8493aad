"""Store, lake, requests, answers, captures and checkpoints on a real HDFS: each command gives what it gives on local files.

    ./run long -k test_hdfs

The servers are Hadoop's own; `tests/runs/hdfs_server.py` starts them.
"""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from tests.runs.hdfs_server import HdfsServer, environment, hdfs_server
from tests.runs.left_rows import answers_by_run, left_rows
from tests.runs.on_both import COMMANDS, Done, all_files, at_once, check_printed, check_whole_or_refused, on_both
from tests.truth.places import PROJECT


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    with hdfs_server(tmp_path_factory.mktemp("hdfs") / "server") as running:
        yield running


def test_files_are_as_pyarrow_gives_those_of_other_file_systems(server: HdfsServer) -> None:
    files, begun = server.filesystem(), dt.datetime.now(dt.UTC)
    files.create_dir("/a/%RETRY%g#1?x")
    path = "/a/%RETRY%g#1?x/ü"
    with files.open_output_stream(path) as out:
        out.write(b"0123456789" * 1000)
    found = files.get_file_info(path)
    assert (found.type, found.size) == (pafs.FileType.File, 10_000)
    assert abs(found.mtime - begun) < dt.timedelta(minutes=5)
    assert [info.path for info in files.get_file_info(pafs.FileSelector("/a/%RETRY%g#1?x"))] == [path]
    with files.open_input_file(path) as opened:
        assert opened.read_at(5, 9_995) == b"56789"
        assert opened.size() == 10_000
    with files.open_output_stream("/a/other") as out:
        out.write(b"other")
    files.move("/a/other", path)  # replaces it
    with files.open_input_stream(path) as stream:
        assert stream.read() == b"other"
    assert files.get_file_info("/a/other").type == pafs.FileType.NotFound
    assert files.get_file_info(pafs.FileSelector("/none", allow_not_found=True)) == []
    with pytest.raises(FileNotFoundError):
        files.open_input_file("/none")
    files.delete_dir("/a")
    assert files.get_file_info("/a").type == pafs.FileType.NotFound


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory, small_store: Path, server: HdfsServer) -> Path:
    """The folder with all that the commands read; HDFS has a copy at /all."""
    folder = all_files(tmp_path_factory, small_store)
    files = server.filesystem()
    for path in sorted(folder.rglob("*")):
        inside = f"/all/{path.relative_to(folder).as_posix()}"
        if path.is_dir():
            files.create_dir(inside)
            continue
        with files.open_output_stream(inside) as out:
            out.write(path.read_bytes())
    return folder


@pytest.fixture(scope="module")
def done(local: Path, server: HdfsServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Done, Done]:
    """What the commands printed on local files, and on HDFS."""
    return on_both(local, f"{server.uri}/all", environment(), tmp_path_factory)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_on_hdfs_what_it_prints_on_local_files(
    name: str, done: tuple[Done, Done], local: Path, server: HdfsServer
) -> None:
    check_printed(name, done, local, f"{server.uri}/all")


def test_answers_are_those_of_the_real_broker(done: tuple[Done, Done], local: Path, server: HdfsServer) -> None:
    lines = [line for line in map(json.loads, (local / "trace.jsonl").read_text("utf-8").splitlines()) if "request" in line]
    asked = [line for line in lines if (line["request"]["filter"] or {"type": "TAG"})["type"] == "TAG"]
    answered = [line for line in asked if "status" in (line["response"] or {})]  # an exception of the store is no answer on the wire
    assert done[1]["replay"][1].splitlines()[-1] == f"{len(asked)} compared, 0 differ"
    assert done[1]["replay captured"][1].splitlines()[-1] == f"{len(answered)} compared, 0 differ"
    with server.filesystem().open_input_file("/all/answers.jsonl") as answers:
        assert answers.read() == (local / "answers.jsonl").read_bytes()


def test_nothing_but_files_of_tables_and_outputs_is_left(done: tuple[Done, Done], server: HdfsServer) -> None:
    assert done
    found = server.filesystem().get_file_info(pafs.FileSelector("/all", recursive=True))
    assert len(found) > 100
    assert [info.path for info in found if info.base_name.startswith(".pullsim-")] == []


def pullsim(*arguments: str, **variables: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command in a process of its own."""
    command = [sys.executable, "-m", "pipeline.main", *arguments]
    run = subprocess.run(command, cwd=PROJECT, env=environment() | variables, capture_output=True, text=True, timeout=300, check=False)
    return run.returncode, run.stdout, run.stderr


def test_a_question_goes_to_spark_which_is_said(done: tuple[Done, Done], server: HdfsServer) -> None:
    assert done
    asked = ("sql", "--lake", f"{server.uri}/all/lake", "SELECT count(DISTINCT brokerName) AS brokers FROM broker", "--format", "csv")
    code, out, err = pullsim(*asked, "--verbose")
    assert (code, out) == (0, "brokers\n2\n")
    assert [line for line in err.splitlines() if "Spark answers: " in line and server.uri in line]
    code, out, err = pullsim(*asked, "--engine", "duckdb")
    assert (code, out) == (2, "")
    assert "--engine duckdb: " in err


def test_a_lake_that_is_not_there_is_refused_before_an_engine_starts(server: HdfsServer) -> None:
    code, out, err = pullsim("sql", "--lake", f"{server.uri}/none", "SELECT 1", JAVA_HOME="/nowhere")
    said = f"fill it with `pullsim import STORE --lake {server.uri}/none`"
    assert (code, out) == (2, "")
    assert err.splitlines()[-1] == f"pullsim: error: {server.uri}/none: expected a lake, found no table lake_version; {said}"


@pytest.mark.parametrize("where", ["driver", "executors"])
def test_a_missing_package_is_said(where: str, server: HdfsServer, local: Path, tmp_path: Path) -> None:
    """A folder on Python's path hides the package."""
    hidden = tmp_path / "hidden" / "hdfs_native"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('hidden')\n", "utf-8")
    path = str(hidden.parent)
    call = ("import", f"{server.uri}/all/other", "--lake", f"{server.uri}/{where}")
    if where == "driver":
        code, out, err = pullsim(*call, PYTHONPATH=path)
    else:
        code, out, err = pullsim(*call, "--conf", f"spark.executorEnv.PYTHONPATH={path}")
    assert (code, out) == (2, ""), err
    [error] = [line for line in err.splitlines() if "error" in line]
    assert "expected the Python package hdfs-native, which opens hdfs://, found none (hidden); install it on all machines" in error


def copied(server: HdfsServer, lake: str, folder: Path) -> Path:
    """A copy of a lake on HDFS, in a local folder."""
    folder.mkdir()
    pafs.copy_files(lake.removeprefix(server.uri), str(folder), server.filesystem(), pafs.LocalFileSystem())
    return folder


REFUSED = "expected no other run to write to the lake since its version "


def test_imports_of_two_drivers_at_once_lose_nothing(server: HdfsServer, local: Path, tmp_path: Path) -> None:
    """Drivers do not wait for each other: the one that commits second to a table is refused, and starts again."""
    lake = f"{server.uri}/imported/lake"
    brokers = [[f"{driver}{number}" for number in range(3)] for driver in ("x", "y")]
    calls = [[["import", f"{server.uri}/all/other", "--lake", lake, "--broker-name", name] for name in one] for one in brokers]
    imported = check_whole_or_refused(brokers, at_once(calls, environment()), REFUSED)
    found = left_rows(copied(server, lake, tmp_path / "first"))
    assert sorted(found) == imported
    refused = [call for one in calls for call in one if call[-1] not in imported]
    print(f"imports: {len(imported)} whole, {len(refused)} refused")
    if refused:
        assert [code for code, _, _ in at_once([refused], environment())[0]] == [0] * len(refused)
        found = left_rows(copied(server, lake, tmp_path / "again"))
    assert len(found) == 6
    for broker in found:
        assert found[broker] == found[imported[0]], broker


def test_replays_of_two_drivers_at_once_lose_no_answer_and_have_none_twice(server: HdfsServer, local: Path, tmp_path: Path) -> None:
    lake = f"{server.uri}/replayed/lake"
    one = ["replay", "--lake", lake, "--requests", f"{server.uri}/all/trace.jsonl", "--filters", "null,TAG"]
    imported = at_once([[["import", f"{server.uri}/all/store", "--lake", lake, "--broker-name", "b"], one]], environment())
    assert [code for code, _, _ in imported[0]] == [0, 0], imported
    [alone] = answers_by_run(copied(server, lake, tmp_path / "alone")).values()
    told = [result for driver in at_once([[one] * 3] * 2, environment()) for result in driver]
    assert all(not code or (code == 2 and REFUSED in err) for code, _, err in told), told
    whole = sum(1 for code, _, _ in told if not code)
    print(f"replays: {whole} whole, {len(told) - whole} refused")
    found = answers_by_run(copied(server, lake, tmp_path / "lake"))
    assert list(found.values()) == [alone] * (1 + whole)
    assert whole > 0


CALLS = {
    "import": ("import", "hdfs://127.0.0.1:1/store", "--lake", "lake"),
    "lake": ("import", ".", "--lake", "hdfs://127.0.0.1:1/lake"),
    "sql": ("sql", "--lake", "hdfs://127.0.0.1:1/lake", "SELECT 1"),
    "requests": ("replay", "--lake", ".", "--requests", "hdfs://127.0.0.1:1/x.jsonl"),
    "service": ("lag", "--lake", "hdfs://nobody/lake"),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_name_node_that_does_not_answer_is_refused_at_once_in_one_sentence(call: str) -> None:
    begun = time.monotonic()
    command = [sys.executable, "-m", "pipeline.main", *CALLS[call]]
    run = subprocess.run(command, cwd=PROJECT, env=environment(), capture_output=True, text=True, timeout=120, check=False)
    assert (run.returncode, run.stdout, len(run.stderr.splitlines())) == (2, "", 1), run.stderr
    assert "expected a name node that answers, found" in run.stderr
    assert time.monotonic() - begun < 30  # most of it is Python's start
