"""Kills and resumes streams again and again, and compares their answers with a replay."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pipeline.lake.lake import Lake
from tests.runs.in_session import Pullsim
from tests.runs.killed_streams import Dying, assert_nothing_twice, cut_newest, kill_together, places
from tests.runs.replaying import write_lines
from tests.runs.sampling import ALL
from tests.runs.streamed_answers import answers

FILES, LINES = 6, 10


# request files that are answered between two kills
PARTS = 24 if ALL else 6


def dying_streams(base: Path, folder: Path, count: int) -> list[Dying]:
    """Streams that read one folder, each with a lake of its own that is a copy of `base`."""
    streams = []
    for number in range(count):
        lake, checkpoint = folder / f"lake{number}", folder / f"checkpoint{number}"
        shutil.copytree(base, lake)
        of_stream = ("--lake", lake, "--requests", folder / "incoming", "--checkpoint", checkpoint, "--run-id", f"killed{number}")
        streams.append(Dying(lake, checkpoint, ["stream", *map(str, of_stream), "--trigger", "0", "--max-files", "1"]))
    return streams


def kill_and_cut(streams: list[Dying], told: Path, chance: random.Random) -> Counter[str]:
    """Kill the streams together, and cut a file of the checkpoint of some. Returns where each was killed."""
    found = places(kill_together(streams, told, chance))
    for stream in streams:
        assert_nothing_twice(stream)
        if (cut := chance.choice([None, None, None, "spark/offsets", "spark/commits", "requests"])) is not None:
            cut_newest(stream.checkpoint, cut, chance)
    return found


def check_killed_streams(
    spark: SparkSession, pullsim: Pullsim, base: Path, lines: list[dict[str, Any]], folder: Path, *, streams: int, kills: int, seed: int
) -> Counter[str]:
    """Kill the streams together `kills` times, run them to their end, and check that each request has the answer of a replay.

    Returns where each stream was killed.
    """
    chance = random.Random(seed)
    (folder / "incoming").mkdir()
    parts = [lines[start : start + LINES] for start in range(0, PARTS * LINES, LINES)]
    for number, part in enumerate(parts):
        write_lines(folder / "incoming" / f"{number:02d}.jsonl", part)
    whole = write_lines(folder / "whole.jsonl", [line for part in parts for line in part])
    assert pullsim("replay", "--lake", base, "--requests", whole)[0] == 0
    replayed = Lake(spark, str(base)).versions().orderBy("version").collect()[-1]["runId"]
    expected = sorted((row[:3] + row[4:] for row in answers(spark, base, replayed)), key=repr)
    dying, found = dying_streams(base, folder, streams), Counter[str]()
    while found.total() < kills:
        found += kill_and_cut(dying, folder / "killed.err", chance)
    for number, stream in enumerate(dying):
        code, _, err = pullsim(*stream.command, "--max-files", "1000", "--once")
        assert code == 0, err
        rows = answers(spark, stream.lake, f"killed{number}")
        assert len({row[3] for row in rows}) == len(rows) == len(expected)
        assert sorted((row[:3] + row[4:] for row in rows), key=repr) == expected
    return found
