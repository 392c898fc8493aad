"""A store of more than 1 GB of log and millions of pulls of it, and the digests by which two lakes of it are compared."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb

from pipeline.main import run as run_here
from tests.makers.lakes import live_files
from tests.runs.killed_streams import lake_versions

MESSAGES, BODY, TOPICS, QUEUES = 1_000_000, 1024, 2, 8
PULLS = 2_000_000
# tables with the times of runs, which differ
_OF_RUNS = ("replay_run",)


def write_large_store(folder: Path) -> Path:
    """Write the store, with the sizes of files that a broker has by default."""
    topic = '[[topics]]\nname = "topic-{}"\nqueues = {}\nrate = 10000\nbody = {}\ntags = ["paid", "sent", "lost"]\n'
    workload = folder / "workload.toml"
    workload.write_text("".join(topic.format(number, QUEUES, BODY) for number in range(TOPICS)), "utf-8")
    store = folder / "store"
    assert run_here(["generate", str(store), "--messages", str(MESSAGES), "--workload", str(workload)]) == 0
    return store


def write_pulls(path: Path) -> None:
    """Pulls of random offsets, some of them outside of their queue, with and without a filter."""
    chance = random.Random(11)
    offsets = MESSAGES // (TOPICS * QUEUES)
    tag = '{"type":"TAG","expression":"paid || sent"}'
    with path.open("w", encoding="utf-8") as file:
        for _ in range(PULLS):
            place = f'"topic":"topic-{chance.randrange(TOPICS)}","queueId":{chance.randrange(QUEUES)}'
            asked = f'"offset":{chance.randint(-100, offsets + 1000)},"maxMsgNums":{chance.choice((1, 8, 32))}'
            file.write(f'{{"request":{{"group":"g",{place},{asked},"filter":{chance.choice(("null", tag))}}}}}\n')


def log_bytes(lake: Path) -> int:
    """The bytes of all records of a lake."""
    return sum(int(_row("sum(storeSize)", files)[0]) for files in _files(lake, "commit_log").values())


def digests(lake: Path) -> dict[str, list[tuple[object, ...]]]:
    """table -> values, number of rows and sum of their hashes of each partition, without ids of runs."""
    names = [name for name in dict(lake_versions(lake)[-1]["tables"]) if name not in _OF_RUNS]
    return {
        name: sorted((values, *_row("count(*), sum(hash(row))", files)) for values, files in _files(lake, name).items())
        for name in sorted(names)
    }


def rows(lake: Path, name: str) -> int:
    """The number of rows of a table."""
    return sum(int(_row("count(*)", files)[0]) for files in _files(lake, name).values())


def _files(lake: Path, name: str) -> dict[str, list[str]]:
    """Values of a partition -> paths of its files that readers see."""
    found: dict[str, list[str]] = {}
    for add in live_files(lake / name, dict(lake_versions(lake)[-1]["tables"])[name]).values():
        found.setdefault(json.dumps(add["partitionValues"], sort_keys=True), []).append(str(lake / name / unquote(add["path"])))
    return found


def _row(what: str, files: list[str]) -> tuple[Any, ...]:
    with duckdb.connect() as database:
        found = database.read_parquet(files, hive_partitioning=False, union_by_name=True).project("COLUMNS(lambda c: c <> 'runId')")
        [row] = found.set_alias("row").aggregate(what).fetchall()
    return tuple(row)
