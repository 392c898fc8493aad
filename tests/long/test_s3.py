"""Store, lake, requests, answers, captures and checkpoints on a real S3: each command gives what it gives on local files.

    ./run long tests/long/test_s3.py

The server is versitygw; `tests/runs/s3_server.py` says why, and builds it once with Go.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from pipeline.delta.delta_log import run_of
from pipeline.delta.table_commits import append_files, create_table
from pipeline.schema.tables import LAKE_VERSION
from store_format.remoting.command import SerializeType
from tests.makers.captured_runs import store_with_topics
from tests.makers.plain_lakes import plain_lake
from tests.makers.recorded_pulls import capture_of, conversation, recorded
from tests.runs.s3_server import BUCKET, S3Server, s3_server
from tests.truth.places import PROJECT

ON_S3 = f"s3://{BUCKET}/all"
LAKE = ("--lake", "{at}/lake", "--broker", "b")
# name -> arguments; {at} is the folder of all files, local or on S3
COMMANDS = {
    "import": ("import", "{at}/store", "--lake", "{at}/lake", "--broker-name", "b"),
    "import another": ("import", "{at}/other", "--lake", "{at}/lake", "--broker-name", "c"),
    "import again": ("import", "{at}/store", "--lake", "{at}/lake", "--broker-name", "b"),
    "replay": ("replay", *LAKE, "--requests", "{at}/trace.jsonl", "--out", "{at}/answers.jsonl", "--filters", "null,TAG", "--compare"),
    "lag": ("lag", "--lake", "{at}/lake", "--format", "csv"),
    "sql": ("sql", "--lake", "{at}/lake", "SELECT brokerName, topic, count(*), sum(storeSize) FROM commit_log GROUP BY ALL ORDER BY ALL"),
    "verify": ("verify", "{at}/store", *LAKE),
    "export": ("export", *LAKE, "{out}/exported"),
    "capture": ("capture", "{at}/traffic.pcap", *LAKE),
    "replay captured": ("replay", *LAKE, "--compare"),
    "report": ("report", *LAKE, "--out", "{at}/report.html"),
    "stream": ("stream", *LAKE, "--requests", "{at}/requests", "--checkpoint", "{at}/checkpoint", "--once"),
    "streamed": ("sql", "--lake", "{at}/lake", "SELECT status, count(*) FROM pull_response GROUP BY ALL ORDER BY ALL", "--engine", "spark"),
    "follow": ("import", "{at}/store", "--lake", "{at}/followed", "--broker-name", "b", "--follow", "--once"),
    "followed": ("sql", "--lake", "{at}/followed", "SELECT topic, count(*) FROM consume_queue GROUP BY ALL ORDER BY ALL"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory, small_store: Path, server: S3Server) -> Path:
    """The folder with all that the commands read; S3 has a copy."""
    folder = tmp_path_factory.mktemp("all")
    store, trace = store_with_topics(tmp_path_factory)
    shutil.copytree(store, folder / "store")
    shutil.copytree(small_store, folder / "other")
    lines = [line for line in recorded(trace) if (line["request"]["filter"] or {"type": "TAG"})["type"] == "TAG"]
    shutil.copy(trace, folder / "trace.jsonl")
    (folder / "traffic.pcap").write_bytes(capture_of(conversation(lines, store, SerializeType.ROCKETMQ)))
    (folder / "requests").mkdir()
    asked = "".join(f"{json.dumps({'request': line['request']})}\n" for line in lines[:50])
    (folder / "requests" / "first.jsonl").write_text(asked, "utf-8")
    pafs.copy_files(str(folder), f"{BUCKET}/all", pafs.LocalFileSystem(), server.filesystem())
    return folder


Done = Mapping[str, tuple[int, str, str]]


@pytest.fixture(scope="module")
def done(local: Path, server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[Done, Done]:
    """What the commands printed on local files, and on S3."""
    outs = [tmp_path_factory.mktemp(f"out{number}", numbered=False) for number in range(2)]
    places = zip((str(local), ON_S3), outs, strict=True)
    commands = [[part.format(at=at, out=out) for part in one] for at, out in places for one in COMMANDS.values()]
    commands.append(["export", "--lake", f"{ON_S3}/lake", "--broker", "b", f"{ON_S3}/exported"])
    call = [sys.executable, "-m", "tests.runs.commands_in_turn", json.dumps(commands)]
    run = subprocess.run(call, cwd=PROJECT, env=server.environment(), stdout=subprocess.PIPE, text=True, timeout=1800, check=True)
    told = [(code, out, err) for code, out, err in json.loads(run.stdout)]
    names = len(COMMANDS)
    assert told[-1][0] == 2, told[-1]
    assert "found a URI" in told[-1][2]
    copies = [{path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()} for out in outs]
    assert copies[0] == copies[1]
    # the broker's own files, to the byte
    assert {path for path in copies[1] if "commitlog" in path.parts}
    for path, content in copies[1].items():
        assert (local / "store" / path.relative_to("exported")).read_bytes() == content
    return dict(zip(COMMANDS, told[:names], strict=True)), dict(zip(COMMANDS, told[names:], strict=False))


# the store, which the broker's cleaning left, has findings
CODES = {"verify": 1}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_on_s3_what_it_prints_on_local_files(name: str, done: tuple[Done, Done], local: Path) -> None:
    (code, out, err), (code_on_s3, out_on_s3, err_on_s3) = done[0][name], done[1][name]
    assert (code, code_on_s3) == (CODES.get(name, 0),) * 2, (err, err_on_s3)
    assert without_runs(out_on_s3).replace(ON_S3, "AT").replace("/out1/", "/out0/") == without_runs(out).replace(str(local), "AT")


def without_runs(text: str) -> str:
    """A text without the ids of runs, which are random."""
    words = text.split(" ")
    return " ".join("RUN" if len(word.strip(":\n")) == 32 and "run" in words[max(at - 1, 0)] else word for at, word in enumerate(words))


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
    assert left == []


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


def test_of_commits_at_once_one_succeeds(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commits of the driver itself, which deltalake makes, as those of lake_version."""
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
