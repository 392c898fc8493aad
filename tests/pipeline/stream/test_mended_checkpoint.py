"""A checkpoint after a machine lost its power: the newest files may be half written, and others may build on them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.lake.lake import LakeError
from pipeline.stream.stream_run import SPARK, StreamRun, run_of_checkpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OFFSETS, COMMITS, REQUESTS = "spark/offsets", "spark/commits", "requests"


def open_checkpoint(folder: Path) -> tuple[StreamRun, list[str]]:
    return run_of_checkpoint(str(folder), run_id="run", lake="lake", broker="b", source="in", at="snapshot", settings={})


class Checkpoint:
    """A stream's checkpoint with so many entries, offsets and commits. Each offset is of the next entry; the last `idle` ones of none."""

    def __init__(self, folder: Path, *, entries: int, offsets: int, commits: int, idle: int = 0) -> None:
        self.folder = folder
        self.run, _ = open_checkpoint(folder)
        for kind in (OFFSETS, COMMITS, REQUESTS):
            (folder / kind).mkdir(parents=True)
        for number in range(1, entries + 1):
            self.write(f"{REQUESTS}/{number:020d}.json", "[]")
        for number in range(offsets):
            last = json.dumps({"entry": min(number + 1, offsets - idle)})
            self.write(f"{OFFSETS}/{number}", f'v1\n{{"conf":{{}}}}\n{last}')
        for number in range(commits):
            self.write(f"{COMMITS}/{number}", 'v1\n{"nextBatchWatermarkMs":0}')

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(text, "utf-8")
        path.with_name(f".{path.name}.crc").write_bytes(b"crc")

    def cut(self, names: Iterable[str]) -> None:
        for name in names:
            raw = (self.folder / name).read_bytes()
            (self.folder / name).write_bytes(raw[: len(raw) // 2])


ENTRY_3 = f"{REQUESTS}/{3:020d}.json"


@pytest.mark.parametrize(
    ("offsets", "commits", "idle", "cut", "removed"),
    [
        (3, 2, 0, [], []),
        (3, 3, 0, [], []),
        (3, 2, 0, [f"{OFFSETS}/2"], [f"{OFFSETS}/2"]),
        (3, 2, 0, [f"{COMMITS}/1"], [f"{COMMITS}/1"]),
        # planned, not begun
        (2, 2, 0, [ENTRY_3], [ENTRY_3]),
        # begun, and even ended
        (3, 2, 0, [ENTRY_3], [ENTRY_3, f"{OFFSETS}/2"]),
        (3, 3, 0, [ENTRY_3], [ENTRY_3, f"{OFFSETS}/2", f"{COMMITS}/2"]),
        (3, 3, 0, [f"{OFFSETS}/2"], [f"{OFFSETS}/2", f"{COMMITS}/2"]),
        # batches without requests came behind the entry
        (5, 5, 2, [ENTRY_3], [ENTRY_3, *(f"{OFFSETS}/{number}" for number in (4, 3, 2)), *(f"{COMMITS}/{number}" for number in (2, 3, 4))]),
    ],
)
def test_what_is_not_whole_goes_and_what_builds_on_it(
    tmp_path: Path, offsets: int, commits: int, idle: int, cut: list[str], removed: list[str]
) -> None:
    checkpoint = Checkpoint(tmp_path, entries=3, offsets=offsets, commits=commits, idle=idle)
    checkpoint.cut(cut)
    run, found = open_checkpoint(tmp_path)
    assert sorted(found) == sorted(removed)
    assert not any((tmp_path / name).exists() for name in removed)
    assert not any((tmp_path / name).with_name(f".{Path(name).name}.crc").exists() for name in removed)
    assert (run.checkpoint == checkpoint.run.checkpoint) == (not removed)
    assert open_checkpoint(tmp_path) == (run, [])


@pytest.mark.parametrize("cut", [[], [f"{OFFSETS}/0"]])
@pytest.mark.parametrize("left", [f"{OFFSETS}/.0.a.tmp", f"{COMMITS}/.0.a.tmp", "spark/state/0/0/1.delta"])
def test_spark_begins_anew_where_it_died_before_its_first_offsets_were_whole(
    spark: SparkSession, tmp_path: Path, left: str, cut: list[str]
) -> None:
    folder = tmp_path / "checkpoint"
    checkpoint = Checkpoint(folder, entries=1, offsets=len(cut), commits=0)
    checkpoint.cut(cut)
    (folder / left).parent.mkdir(parents=True, exist_ok=True)
    (folder / left).write_text("half a fi")
    assert open_checkpoint(folder)[1] == cut

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("one\n")
    lines: list[str] = []
    stream = spark.readStream.text(str(tmp_path / "in")).writeStream
    stream = stream.foreachBatch(lambda batch, _: lines.extend(row["value"] for row in batch.collect()))
    stream.option("checkpointLocation", f"{folder}/{SPARK}").trigger(availableNow=True).start().awaitTermination()
    assert lines == ["one"]


def test_a_stream_that_has_begun_keeps_its_state(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, entries=2, offsets=2, commits=1)
    state = tmp_path / "spark" / "state" / "0" / "0" / "1.delta"
    state.parent.mkdir(parents=True)
    state.write_text("held")
    checkpoint.cut([f"{OFFSETS}/1"])
    assert open_checkpoint(tmp_path)[1] == [f"{OFFSETS}/1"]
    assert state.exists()


def test_pulls_that_were_kept_in_an_earlier_form_are_not_lost_without_a_word(tmp_path: Path) -> None:
    def opened(run_id: str | None = None) -> StreamRun:
        folder = str(tmp_path)
        return run_of_checkpoint(folder, run_id=run_id, lake="lake", broker="b", source="in", at="request-time", settings={}, hold=True)[0]

    assert opened("run") == opened()
    of_stream = tmp_path / "pullsim.json"
    told = json.loads(of_stream.read_text("utf-8"))
    del told["state"]
    of_stream.write_text(json.dumps(told), "utf-8")
    with pytest.raises(LakeError, match="expected the checkpoint of a stream with state 1, found one with 0; give another --checkpoint"):
        opened()
