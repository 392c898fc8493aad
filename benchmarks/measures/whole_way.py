"""The measures of the whole way: what a user waits for, from the shell to the exit code, with a cold JVM each time.

Beside the seconds of an import or a replay stand the number of Spark jobs that it runs and of Delta commits that it makes.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tarfile
from importlib.resources import as_file, files
from itertools import count
from pathlib import Path
from statistics import median

import pyarrow.json as pj
import pyarrow.parquet as pq

from benchmarks.figures import Figure, Peer, held_against, median_seconds, timed_runs
from benchmarks.made.synthetic_store import TOPIC_PREFIX
from benchmarks.peers.table_columns import seconds_to_write
from benchmarks.stand import BROKER, Stand

PULLS = 1_000_000
_SMALL = "broker-a"
_JOB_STARTS = '{"Event":"SparkListenerJobStart"'
_SEED = 7
# else the driver does what is small
_ON_SPARK = ("--master", "local[*]")


def measure_whole_way(stand: Stand) -> list[Figure]:
    """Seconds of whole commands: imports, checks and exports of two stores, replays of a JSONL file, an upgrade, lag and a query."""
    small, lake, folder = small_store(stand.folder), stand.lake, stand.folder
    stand.close()  # a session beside the commands would take their memory and cores
    requests, written = folder / "pulls.jsonl", (str(folder / f"whole-{number}") for number in count())
    _write_pulls(requests, stand)
    loads = Peer("json.loads", "json.loads of the lines, one core", median_seconds(lambda: _load(requests), stand.repeats))
    version = Peer("--version", "pullsim --version", median_seconds(lambda: run_pullsim("--version"), stand.repeats))
    figures = []
    imports = (("small ", small, ()), ("small ", small, _ON_SPARK), ("", stand.store, ()), ("", stand.store, _ON_SPARK))
    for size, store, more in imports:
        name, lakes = f"{size}import{' on Spark' if more else ''}", list[str]()

        def run(store: Path = store, lakes: list[str] = lakes, more: tuple[str, ...] = more) -> None:
            lakes.append(next(written))
            run_pullsim("import", str(store), "--lake", lakes[-1], "--broker-name", BROKER, *more)

        seconds = timed_runs(run, stand.repeats)
        peer, target = version, "" if more else "8 s"
        if store is not small:
            written_again = seconds_to_write(Path(lakes[0]), folder / "rewritten")
            peer, target = Peer("pyarrow", "pyarrow writing the same tables, all cores", written_again), ""
        figures += held_against(f"whole {name}", seconds, "s", peer, target=target)
        if more:
            lakes.append(next(written))
            figures += _work_of(name, Path(lakes[-1]), folder, "import", str(store), "--lake", lakes[-1], "--broker-name", BROKER)
        else:
            figures += _ways_back(size, store, lakes[0], folder, stand.repeats, version)
        for done in lakes:
            shutil.rmtree(done)
    rows = folder / "pulls.parquet"
    pq.write_table(pj.read_json(requests), rows)
    asked = ("--lake", str(lake), "--requests", str(requests))
    replays = 0.0
    to_a_file = ("--no-messages", "--out", str(folder / "answers.jsonl"))
    ways: dict[str, tuple[str, ...]] = {
        "replay to a table": asked,
        "replay to a table on Spark": (*asked, *_ON_SPARK),
        "replay to a file": (*asked, *to_a_file),
        "replay to a file on Spark": (*asked, *to_a_file, *_ON_SPARK),
        "replay of Parquet to a table": (*asked[:-1], str(rows)),
    }
    for name, way in ways.items():
        seconds = timed_runs(lambda way=way: run_pullsim("replay", *way), stand.repeats)  # type: ignore[misc]
        figures += held_against(f"whole {name}", seconds, "s", loads, target="15 s" if stand.scale == 1 else "")
        if _ON_SPARK[0] in way:
            figures += _work_of(name, lake, folder, "replay", *way)
            replays = replays or 2 * median(seconds)
    seconds = timed_runs(lambda: run_pullsim("upgrade", *asked, "--from", "4.9.3", "--to", "5.5.0", finds=True), stand.repeats)
    both = Peer("two replays", "two replays to a table on Spark", replays)
    figures += held_against("whole upgrade", seconds, "s", both, target="ratio 1")
    for name, command in (("lag", ("lag",)), ("query", ("sql", "SELECT count(*) FROM consume_queue"))):
        seconds = timed_runs(lambda command=command: run_pullsim(*command, "--lake", str(lake)), stand.repeats)  # type: ignore[misc]
        figures += held_against(f"whole {name}", seconds, "s", version)
    return figures


def _ways_back(size: str, store: Path, lake: str, folder: Path, repeats: int, version: Peer) -> list[Figure]:
    """A store checked, and written from its lake."""

    def export() -> None:
        run_pullsim("export", "--lake", lake, str(folder / "again"))
        shutil.rmtree(folder / "again")

    verified = timed_runs(lambda: run_pullsim("verify", str(store), finds=True), repeats)
    return [
        *held_against(f"whole {size}verify", verified, "s", version),
        *held_against(f"whole {size}export", timed_runs(export, repeats), "s", version),
    ]


def run_pullsim(*arguments: str, finds: bool = False) -> None:
    """Run one command in a process of its own; an error of it ends the benchmarks. One that `finds` something may end with 1."""
    done = subprocess.run([sys.executable, "-m", "pipeline.main", *arguments], check=not finds, capture_output=True)
    assert done.returncode <= 1, done.stderr


def _work_of(name: str, lake: Path, folder: Path, *command: str) -> list[Figure]:
    """The Spark jobs that a command runs and the commits that it makes to tables of a lake."""
    events = folder / "events"
    events.mkdir()
    settings = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri(), "spark.eventLog.compress": "false"}
    before = _commits(lake)
    run_pullsim(*command, *(part for key, value in settings.items() for part in ("--conf", f"{key}={value}")))
    logs = [path for path in events.rglob("*") if path.is_file()]
    jobs = sum(line.startswith(_JOB_STARTS) for path in logs for line in path.read_text(errors="replace").splitlines())
    shutil.rmtree(events)
    made = _commits(lake) - before
    return [*held_against(f"whole {name} jobs", [jobs], "jobs"), *held_against(f"whole {name} commits", [made], "commits")]


def _commits(lake: Path) -> int:
    return sum(1 for _ in lake.glob("*/_delta_log/*.json"))


def small_store(folder: Path) -> Path:
    """The store of a real broker that the package brings, 4 MB."""
    with as_file(files("pipeline").joinpath("demo_data", f"{_SMALL}.tar.xz")) as packed, tarfile.open(packed) as members:
        members.extractall(folder / "small", filter="data")
    return folder / "small" / _SMALL


def _write_pulls(path: Path, stand: Stand) -> None:
    """Pulls at random offsets of all queues, one request a line."""
    chance, shape = random.Random(_SEED), stand.shape
    most = shape.messages // (shape.topics * shape.queues)
    with path.open("w") as file:
        for number in range(PULLS // stand.scale):
            request = {
                "group": f"group-{number % 20}",
                "topic": f"{TOPIC_PREFIX}{chance.randrange(shape.topics):02d}",
                "queueId": chance.randrange(shape.queues),
                "offset": chance.randrange(most),
                "maxMsgNums": 32,
                "filter": None,
            }
            file.write(json.dumps({"request": request}) + "\n")


def _load(path: Path) -> None:
    with path.open("rb") as file:
        for line in file:
            json.loads(line)
