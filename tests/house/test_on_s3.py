"""An import, replays, questions and an export on S3 without Spark, compared with local files: a sample of tests/long/test_s3.py.

The server is moto's: `pip install '.[dev]'` installs it, and it starts in a second. Its 14 packages take 11 s of the installation. The
long tests use versitygw, which also checks signatures, but takes five minutes to build with Go.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import obstore
import pyarrow.fs as pafs
import pytest
from obstore.exceptions import AlreadyExistsError, PreconditionError

from pipeline.files.store_files import StoreFiles
from pipeline.lake.driver_lock import NAME, _bucket
from pipeline.main import run
from pipeline.store import load_files as lf
from pipeline.store import open_log
from pipeline.store.open_log import OpenLog
from tests.makers.made_store import Record, make_store
from tests.runs.counting_proxy import CountingProxy, counting_proxy
from tests.runs.left_rows import left_rows
from tests.runs.moto_server import moto_server
from tests.runs.on_both import without_runs
from tests.runs.s3_server import BUCKET, S3Server

ON_S3 = f"s3://{BUCKET}"
LAKE = ("--lake", "{at}/lake")
REQUESTS = ("--requests", "{at}/pulls.jsonl")
# some of these topics have characters that are escaped in the names of objects
QUEUES = [("T", 0), ("T", 1), ("%RETRY%g", 0), ("a_b-%|c", 2)]
RECORDS = [Record(topic=topic, queue_id=queue, tag="ab"[i % 2], stamp=1_700_000_000_000 + i) for i in range(60) for topic, queue in QUEUES]
# name -> arguments, and the words of stderr that say who does the work
COMMANDS = {
    "import": (("import", "{at}/store", *LAKE, "--broker-name", "b"), "the driver imports, without Java"),
    "answer": (("replay", *LAKE, *REQUESTS, "--out", "{at}/answers.jsonl"), "the driver answers, without Java"),
    "replay": (("replay", *LAKE, *REQUESTS), "the driver answers, without Java"),
    "explain": (
        ("explain", *LAKE, "--group", "g", "--topic", "T", "--queue", "1", "--offset", "7"),
        "the driver explains, without Java",
    ),
    "lag": (("lag", *LAKE, "--format", "csv"), "DuckDB answered, without Java"),
    "sql": (("sql", *LAKE, "SELECT status, count(*) FROM pull_response GROUP BY ALL ORDER BY ALL"), "DuckDB answered, without Java"),
    "export": (("export", *LAKE, "{out}"), "the driver exports, without Java"),
    "verify": (("verify", "{at}/store"), ""),
}
# exit code, stdout and stderr of each command
Done = dict[str, tuple[int, str, str]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server that this process's environment variables name."""
    with moto_server(tmp_path_factory.mktemp("moto")) as running, pytest.MonkeyPatch.context() as patch:
        for name, value in running.environment().items():
            patch.setenv(name, value)
        yield running


@pytest.fixture(scope="module")
def local(server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of a few log files, and pulls; S3 has a copy."""
    folder = tmp_path_factory.mktemp("local")
    make_store(folder / "store", RECORDS, log_file=16384, queue_file=20 * 40)
    filters = (None, {"type": "TAG", "expression": "a"})
    asked = [
        {"group": "g", "topic": topic, "queueId": queue, "offset": offset, "maxMsgNums": 32, "filter": wanted}
        for topic, queue in QUEUES
        for offset in (0, 37, 60, 61)
        for wanted in filters
    ]
    (folder / "pulls.jsonl").write_text("".join(f"{json.dumps({'request': request})}\n" for request in asked), "utf-8")
    pafs.copy_files(str(folder), BUCKET, pafs.LocalFileSystem(), server.filesystem())
    return folder


@pytest.fixture(scope="module")
def done(local: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Done, Done]:
    """What the commands printed on local files, and on S3."""
    out = tmp_path_factory.mktemp("out")
    return printed(str(local), str(out / "local")), printed(ON_S3, str(out / "s3"))


def printed(at: str, out: str) -> Done:
    found: Done = {}
    for name, (arguments, _) in COMMANDS.items():
        stdout, stderr = StringIO(), StringIO()
        with redirect_stdout(stdout), redirect_stderr(stderr):
            code = run([*(argument.format(at=at, out=out) for argument in arguments), "--verbose"])
        found[name] = code, without_runs(stdout.getvalue().replace(at, "AT").replace(out, "OUT")), stderr.getvalue()
    found["exported"] = 0, repr({str(path.relative_to(out)): path.read_bytes() for path in Path(out).rglob("*") if path.is_file()}), ""
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_on_s3_what_it_prints_on_local_files(name: str, done: tuple[Done, Done]) -> None:
    (code, out, _), (code_on_s3, out_on_s3, err_on_s3) = done[0][name], done[1][name]
    assert (code, code_on_s3) == (0, 0), err_on_s3
    assert COMMANDS[name][1] in err_on_s3
    assert out_on_s3 == out


def test_an_import_and_replays_leave_on_s3_what_they_leave_on_local_files(
    done: tuple[Done, Done], local: Path, server: S3Server, tmp_path: Path
) -> None:
    assert done[1]["exported"] == done[0]["exported"]
    pafs.copy_files(f"{BUCKET}/lake", str(tmp_path / "lake"), server.filesystem(), pafs.LocalFileSystem())
    left, left_here = left_rows(tmp_path / "lake")["b"], left_rows(local / "lake")["b"]
    assert (len(left["commit_log"]), len(left["pull_response"])) == (len(RECORDS), 32)
    for table in ("broker", "store_file"):  # with the store's path, and the times of its files
        assert len(left.pop(table)) == len(left_here.pop(table))
    assert left == left_here
    assert (tmp_path / "lake" / NAME).read_text("utf-8") == '{"released": true}'
    with server.filesystem().open_input_file(f"{BUCKET}/answers.jsonl") as answers:
        assert answers.read() == (local / "answers.jsonl").read_bytes()
    names = [info.base_name for info in server.filesystem().get_file_info(pafs.FileSelector(BUCKET, recursive=True))]
    assert [name for name in names if name.startswith(".pullsim-") and name != NAME] == []


def test_the_server_refuses_a_put_whose_condition_does_not_hold(server: S3Server) -> None:
    """Writers of a lake rely on this: without it, the writes of these tests would prove nothing about S3."""
    bucket = _bucket(BUCKET)
    tag = obstore.put(bucket, "condition", b"1", mode="create")["e_tag"]
    with pytest.raises(AlreadyExistsError):
        obstore.put(bucket, "condition", b"2", mode="create")
    with pytest.raises(PreconditionError):
        obstore.put(bucket, "condition", b"2", mode={"e_tag": '"0123"'})
    assert obstore.put(bucket, "condition", b"3", mode={"e_tag": tag})["e_tag"] != tag


@pytest.fixture
def counted(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[CountingProxy]:
    """The requests of this process to the server."""
    with counting_proxy(server.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        yield proxy


@pytest.mark.parametrize(("room", "free_part", "times"), [(8 << 30, 8, 1), (0, 8, 3), (8 << 30, 1 << 62, 3), (20_000, 8, 3)])
def test_a_log_file_on_s3_is_fetched_once_where_there_is_room(
    room: int, free_part: int, times: int, local: Path, counted: CountingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without room for copies, or with room for one, a file is fetched again after another file, but not twice in a row."""
    monkeypatch.setattr(open_log, "COPIED_BYTES", room)
    monkeypatch.setattr(open_log, "FREE_PART", free_part)
    store = StoreFiles(f"{ON_S3}/store")
    files = lf.load_log(store, lf.file_sizes(store, {}))[:2]
    opened = OpenLog(store)
    counted.clear()
    for _ in range(3):
        for file in files:
            for _ in range(2):
                assert opened.content(file).tobytes() == (local / "store" / "commitlog" / file.name).read_bytes()
    assert json.loads(json.dumps(counted.counts())) == {"head": 2 * times, "range": 2 * times}
