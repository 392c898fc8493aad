"""The requests that commands make of S3, and the bytes on the wire, counted: they depend on files, not on messages.

    ./run long -k test_s3_requests

Each command is a process of its own, without Spark, and reaches moto's server through a proxy that counts. docs/cluster.md has the figures.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from benchmarks.made.synthetic_store import Shape, write_store
from tests.runs.counting_proxy import CountingProxy, counting_proxy
from tests.runs.moto_server import moto_server
from tests.runs.s3_server import BUCKET, S3Server
from tests.truth.places import PROJECT

MESSAGES, TOPICS, QUEUES, PULLS = 10_000, 2, 2, 400
# both have 3 log files and 4 queue files
SMALL = Shape(messages=MESSAGES, topics=TOPICS, queues=QUEUES, log_file_bytes=4 << 20)
FOUR_TIMES = Shape(messages=4 * MESSAGES, topics=TOPICS, queues=QUEUES, log_file_bytes=16 << 20)
MANY_QUEUES = Shape(messages=MESSAGES, topics=8, queues=4, log_file_bytes=4 << 20, queue_file_entries=1000)
SHAPES = {"small": SMALL, "four times": FOUR_TIMES, "many queues": MANY_QUEUES}
LAKE = ("--lake", "{at}/lake")
REQUESTS = ("--requests", "{at}/pulls.jsonl")
COMMANDS = {
    "import": ("import", "{at}/store", *LAKE, "--broker-name", "b"),
    "answer": ("replay", *LAKE, *REQUESTS, "--no-messages", "--out", "{at}/answers.jsonl"),
    "replay": ("replay", *LAKE, *REQUESTS),
    "messages": ("replay", *LAKE, *REQUESTS, "--out", "{at}/answers.jsonl"),
    "lag": ("lag", *LAKE),
    "sql": ("sql", *LAKE, "SELECT topic, count(*), sum(storeSize) FROM commit_log GROUP BY ALL"),
    "export": ("export", *LAKE, "{out}/exported"),
    "verify": ("verify", "{at}/store"),
}
# name -> most requests, and most for each further file of store and lake
MOST = {
    "import": (600, 8.0),
    "answer": (80, 0.1),
    "replay": (170, 0.1),
    "messages": (130, 4.0),
    "lag": (65, 0.5),
    "sql": (60, 1.2),
    "export": (125, 4.0),
    "verify": (85, 4.0),
}


@dataclass(frozen=True)
class Counted:
    """The requests of the commands on one store to S3, and their bytes.

    Attributes:
        counts: requests by command and kind.
        received: bytes of objects that each command read.
        sent: bytes of objects that each command wrote.
        log: bytes of the commit log's files.
        store: bytes of all files of the store.
        lake: bytes of the lake's files after the import, and of each table.
        files: number of the store's and the lake's files after the import.
    """

    counts: dict[str, Counter[str]]
    received: dict[str, int]
    sent: dict[str, int]
    log: int
    store: int
    lake: Counter[str]
    files: int

    def requests(self, name: str) -> int:
        return self.counts[name].total()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[S3Server, CountingProxy]]:
    with moto_server(tmp_path_factory.mktemp("moto")) as running, counting_proxy(running.endpoint) as proxy:
        yield running, proxy


@pytest.fixture(scope="module")
def counted(server: tuple[S3Server, CountingProxy], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Counted]:
    found = {name: count(shape, name.replace(" ", "-"), server, tmp_path_factory.mktemp("shape")) for name, shape in SHAPES.items()}
    for name, one in found.items():
        for command in COMMANDS:
            print(name, command, dict(one.counts[command]), f"read {one.received[command]:,}, wrote {one.sent[command]:,}")
        print(f"{name}: log {one.log:,}, store {one.store:,}, lake {one.lake.total():,}, {one.files} files")
    return found


def count(shape: Shape, name: str, server: tuple[S3Server, CountingProxy], folder: Path) -> Counted:
    """Run the commands on a store of a shape, and count their requests and bytes."""
    (running, proxy), at = server, f"s3://{BUCKET}/{name}"
    write_store(folder / "store", shape)
    dice = random.Random(1)
    topics = sorted(path.name for path in (folder / "store" / "consumequeue").iterdir())
    of_queue = shape.messages // (shape.topics * shape.queues)
    with (folder / "pulls.jsonl").open("w") as lines:
        for _ in range(PULLS):
            place = {"topic": dice.choice(topics), "queueId": dice.randrange(shape.queues), "offset": dice.randrange(of_queue)}
            lines.write(f"{json.dumps({'request': {'group': 'g', 'maxMsgNums': 32, 'filter': None, **place}})}\n")
    filesystem = running.filesystem()
    pafs.copy_files(str(folder), f"{BUCKET}/{name}", pafs.LocalFileSystem(), filesystem)
    counts, received, sent, lake, files = {}, {}, {}, Counter[str](), 0
    for command, arguments in COMMANDS.items():
        proxy.clear()
        call = [sys.executable, "-m", "pipeline.main", *(one.format(at=at, out=folder) for one in arguments)]
        environment = running.environment() | {"AWS_ENDPOINT_URL": proxy.endpoint}
        subprocess.run(call, cwd=PROJECT, env=environment, capture_output=True, timeout=300, check=True)
        counts[command], received[command], sent[command] = proxy.counts(), proxy.received(), proxy.sent()
        if command == "import":
            infos = filesystem.get_file_info(pafs.FileSelector(f"{BUCKET}/{name}/lake", recursive=True))
            for info in infos:
                lake[info.path.split("/")[3]] += info.size or 0
            files = sum(info.size is not None for info in infos)
    of_store = {path: path.stat().st_size for path in (folder / "store").rglob("*") if path.is_file()}
    log = sum(size for path, size in of_store.items() if path.parent.name == "commitlog")
    return Counted(counts, received, sent, log, sum(of_store.values()), lake, files + len(of_store))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_keeps_within_its_requests(name: str, counted: dict[str, Counted]) -> None:
    most, of_file = MOST[name]
    small = counted["small"]
    for shape, one in counted.items():
        assert one.requests(name) <= most + of_file * (one.files - small.files), (shape, one.counts[name])


@pytest.mark.parametrize("name", COMMANDS)
def test_more_messages_in_as_many_files_make_no_more_requests(name: str, counted: dict[str, Counted]) -> None:
    """Only some more parts of files are requested, of files that become too large for one read."""
    small, large = counted["small"], counted["four times"]
    assert abs(large.requests(name) - small.requests(name)) <= 20, (small.counts[name], large.counts[name])


@pytest.mark.parametrize("shape", SHAPES)
def test_bytes_on_the_wire_are_near_the_least_possible(shape: str, counted: dict[str, Counted]) -> None:
    """The import reads the log for its recovery, for its messages, and twice to look entries up; queue files for recovery, and their rest.

    pyarrow reads the end of a table's file, 64 KiB, and then its columns: a small file is read twice.
    """
    one = counted[shape]
    small = (1 << 20) + (one.files << 16)
    assert one.received["import"] <= 4 * one.log + 2.5 * (one.store - one.log) + small
    assert one.sent["import"] <= 1.01 * one.lake.total() + small
    written_back = sum(one.lake[table] for table in ("commit_log", "consume_queue_segment", "store_file_range"))
    assert one.received["export"] <= 1.1 * written_back + small
    assert one.received["verify"] <= one.store + 0.5 * one.log + small
    assert one.received["lag"] <= one.lake.total() / 4 + small
    assert one.received["sql"] <= one.lake["commit_log"] / 4 + small
    assert one.received["answer"] <= one.lake["consume_queue_segment"] + small
    assert one.received["messages"] <= one.lake["consume_queue_segment"] + one.lake["commit_log"] + small


def test_commands_that_read_write_nothing(counted: dict[str, Counted]) -> None:
    for one in counted.values():
        assert [one.sent[name] for name in ("lag", "sql", "export", "verify")] == [0] * 4


def test_an_object_is_written_by_one_request(counted: dict[str, Counted]) -> None:
    """A file of more than 5 MB is an upload of several parts."""
    assert counted["small"].counts["import"]["upload"] == 0
