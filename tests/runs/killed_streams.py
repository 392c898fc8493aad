"""Kills streams together, as threads of one process, and finds the place in a batch at which each died, and what it left."""

from __future__ import annotations

import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.makers.lakes import commits, file_rows, live_files
from tests.runs.commands_at_once import BEGUN, ENDED
from tests.runs.dying_runs import commits_made, doomed

_STARVED = "terminated with exception: Python worker failed to connect back"
_AT_ONCE = Path(__file__).with_name("commands_at_once.py")
# after this time the process is killed, even if the streams took fewer steps
_SECONDS_MAX = 240
# the places in the life of a batch that differ in what a kill leaves behind
WAITS, PLANNED, ANSWERING, WRITTEN, COMMITTED = "waits", "planned", "answering", "written", "committed"


@dataclass(frozen=True, slots=True)
class Dying:
    """A stream: its lake, its checkpoint and its command."""

    lake: Path
    checkpoint: Path
    command: list[str]


def kill_together(
    streams: list[Dying], told: Path, chance: random.Random, *, meanwhile: Callable[[], object] = lambda: None, steps: int = 1
) -> list[Dying]:
    """Run the streams in one process, and kill the process some milliseconds after each stream began and took one or two steps.

    Args:
        streams: the streams to run.
        told: gets their stderr.
        chance: decides when to kill.
        meanwhile: called again and again until the kill.
        steps: multiplies the number of steps, for batches that commit to more tables.

    Returns:
        The streams that were killed. On a busy machine, Spark itself may have ended others before.
    """
    order = chance.sample(streams, len(streams))
    until = steps_taken(streams) + chance.randint(steps * len(streams) // 2, steps * 2 * len(streams))
    last = time.monotonic() + _SECONDS_MAX
    with doomed([json.dumps([stream.command for stream in order])], told, (str(_AT_ONCE),)) as process:
        while (steps_taken(streams) < until or told.read_text().count(BEGUN) < len(order)) and time.monotonic() < last:
            assert process.poll() is None, told.read_text()
            meanwhile()
            time.sleep(0.05)
        time.sleep(chance.uniform(0, 1.5))
        said = told.read_text()
    begun, ended = ([order[int(number)] for number in re.findall(rf"^command (\d+) {what}", said, re.MULTILINE)] for what in (BEGUN, ENDED))
    assert len(ended) == said.count(_STARVED), said
    return [stream for stream in begun if stream not in ended]


def steps_taken(streams: list[Dying]) -> int:
    """The number of steps that all streams together took: commits to tables, and batches that ended."""
    ended = (len([path for path in (stream.checkpoint / "spark" / "commits").glob("*") if path.name.isdigit()]) for stream in streams)
    return commits_made(*(stream.lake for stream in streams)) + sum(ended)


def places(streams: list[Dying]) -> Counter[str]:
    """The places at which streams were killed."""
    return Counter(place_of_kill(stream) for stream in streams)


def place_of_kill(stream: Dying) -> str:
    """The place at which a stream was killed, found from what it left."""
    begun, done = _newest(stream.checkpoint / "spark" / "offsets"), _newest(stream.checkpoint / "spark" / "commits")
    if begun == done:
        planned = _newest(stream.checkpoint / "requests")
        return PLANNED if planned > _entry(stream.checkpoint / "spark" / "offsets" / str(begun)) else WAITS
    own = json.loads((stream.checkpoint / "pullsim.json").read_text())["checkpoint"]
    versions = lake_versions(stream.lake)
    if any((row["checkpoint"], row["batchId"]) == (own, begun) for row in versions):
        return COMMITTED
    tables = {path.parent.name: len(commits(path.parent)) - 1 for path in stream.lake.glob("*/_delta_log")}
    tables.pop("lake_version")
    return ANSWERING if tables == dict(versions[-1]["tables"]) else WRITTEN


def lake_versions(lake: Path) -> list[dict[str, Any]]:
    """The rows of lake_version in their order."""
    table = lake / "lake_version"
    rows = [row for add in live_files(table, len(commits(table)) - 1).values() for row in file_rows(table, add)]
    return sorted(rows, key=lambda row: int(row["version"]))


def visible_answers(lake: Path) -> list[tuple[str, str]]:
    """The run and request of each answer that readers of the lake see."""
    version = dict(lake_versions(lake)[-1]["tables"]).get("pull_response")
    if version is None:
        return []
    table = lake / "pull_response"
    return [(row["runId"], row["requestId"]) for add in live_files(table, version).values() for row in file_rows(table, add)]


def assert_nothing_twice(stream: Dying) -> None:
    """Assert that no visible answer is there twice."""
    found = Counter(visible_answers(stream.lake))
    assert {key: count for key, count in found.items() if count > 1} == {}, stream.lake


def cut_newest(checkpoint: Path, kind: str, chance: random.Random) -> None:
    """Cut the newest file of a kind, as a loss of power does."""
    numbered = [path for path in (checkpoint / kind).glob("*") if path.name.removesuffix(".json").isdigit()]
    if numbered:
        newest = max(numbered, key=lambda path: int(path.name.removesuffix(".json")))
        newest.write_bytes(newest.read_bytes()[: chance.randrange(max(newest.stat().st_size, 1))])  # an earlier cut may have emptied it


def _newest(folder: Path) -> int:
    return max((int(path.name.removesuffix(".json")) for path in folder.glob("*") if path.name.removesuffix(".json").isdigit()), default=-1)


def _entry(offsets: Path) -> int:
    """The entry of the request log at which a batch ends; the greatest possible number if the file was cut and not yet repaired."""
    lines = offsets.read_text().splitlines() if offsets.exists() else ["v1", "", '{"entry": 0}']
    try:
        return int(json.loads(lines[2])["entry"])
    except (IndexError, ValueError):
        return sys.maxsize
