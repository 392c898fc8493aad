"""`pullsim stream --requests pull_request`: captured pulls get a replay's answers, each capture once, and no capture that died."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.lake.lake import Lake
from pipeline.lake.lake_writer import LakeWriter
from store_format.remoting.command import SerializeType
from tests.makers.captured_runs import ok, store_with_topics
from tests.makers.recorded_pulls import capture_of, conversation, recorded
from tests.runs.dying_runs import Killed
from tests.runs.in_session import Pullsim, pullsim_in
from tests.runs.killed_streams import Dying, cut_newest, kill_together
from tests.runs.sampling import slow_proof
from tests.runs.streamed_answers import answered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

A_CAPTURE = 20


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


class Traffic:
    """Captures of pulls of one store, and a lake that holds the store."""

    def __init__(self, spark: SparkSession, pullsim: Pullsim, folder: Path, store: Path, trace: Path, count: int) -> None:
        lines = [line for line in recorded(trace) if (line["request"]["filter"] or {"type": "TAG"})["type"] == "TAG"]
        self.lake, self.files, self._spark, self._pullsim = folder / "lake", list[Path](), spark, pullsim
        for number in range(count):
            part = lines[number * A_CAPTURE : (number + 1) * A_CAPTURE]
            self.files.append(folder / f"{number}.pcap")
            self.files[-1].write_bytes(capture_of(conversation(part, store, SerializeType.ROCKETMQ)))
        ok(pullsim("import", store, "--lake", self.lake, "--broker-name", "b"))

    def capture(self, number: int) -> None:
        ok(self._pullsim("capture", self.files[number], "--lake", self.lake))

    def stream(self, checkpoint: Path, *options: object) -> str:
        """The last line that the stream prints."""
        command = ("stream", "--lake", self.lake, "--requests", "pull_request", "--checkpoint", checkpoint, "--once", *options)
        return ok(self._pullsim(*command)).splitlines()[-1]

    def answers(self, run: str) -> list[dict[str, Any]]:
        return sorted(answered(self._spark, self.lake, run), key=lambda row: str(row["requestId"]))

    def replayed(self) -> list[dict[str, Any]]:
        """The answers of a replay of all that was captured."""
        ok(self._pullsim("replay", "--lake", self.lake))
        last = Lake(self._spark, str(self.lake)).versions().orderBy("version").collect()[-1]
        return self.answers(last["runId"])


@slow_proof
def test_captured_pulls_are_answered_as_by_a_replay_once_their_capture_counts(
    spark: SparkSession, pullsim: Pullsim, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic = Traffic(spark, pullsim, tmp_path, *store_with_topics(tmp_path_factory), 2)
    traffic.capture(0)

    def dies(*_: object) -> int:
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(LakeWriter, "commit", dies)
        with pytest.raises(Killed):
            traffic.capture(1)
    assert traffic.stream(tmp_path / "checkpoint", "--run-id", "r") == f"run r: answered {A_CAPTURE} requests in 1 batch, 0 bad ones"
    assert traffic.answers("r") == traffic.replayed() != []


@slow_proof
def test_a_capture_that_is_read_again_gives_nothing_and_a_new_checkpoint_goes_on(
    spark: SparkSession, pullsim: Pullsim, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    traffic = Traffic(spark, pullsim, tmp_path, *store_with_topics(tmp_path_factory), 3)
    checkpoint = tmp_path / "checkpoint"
    assert traffic.stream(checkpoint, "--run-id", "r") == "run r: answered 0 requests in 0 batches, 0 bad ones"
    traffic.capture(0)
    traffic.capture(1)
    assert traffic.stream(checkpoint, "--max-files", "1") == f"run r: answered {2 * A_CAPTURE} requests in 2 batches, 0 bad ones"
    traffic.capture(0)
    assert traffic.stream(checkpoint) == "run r: answered 0 requests in 0 batches, 0 bad ones"
    traffic.capture(2)
    other = traffic.stream(tmp_path / "other", "--run-id", "r", "--at", "recorded-max")
    assert other == f"run r: answered {A_CAPTURE} requests in 1 batch, 0 bad ones"
    assert traffic.stream(checkpoint) == "run r: answered 0 requests in 0 batches, 0 bad ones"
    assert len({row["requestId"] for row in traffic.answers("r")}) == len(traffic.answers("r")) == 3 * A_CAPTURE


@slow_proof
@pytest.mark.parametrize("seed", range(4))
def test_a_killed_stream_of_captured_pulls_goes_on_where_it_was(
    spark: SparkSession, pullsim: Pullsim, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    traffic = Traffic(spark, pullsim, tmp_path, *store_with_topics(tmp_path_factory), 3)
    for number in range(3):
        traffic.capture(number)
    chance, checkpoint = random.Random(seed), tmp_path / "checkpoint"
    stream = ("stream", "--lake", traffic.lake, "--requests", "pull_request", "--checkpoint", checkpoint, "--run-id", "killed")
    dying = Dying(traffic.lake, checkpoint, [*map(str, stream), "--max-files", "1", "--trigger", "0"])
    for life in range(2):
        kill_together([dying], tmp_path / f"killed{life}.err", chance)
    if chance.random() < 0.5:
        cut_newest(checkpoint, chance.choice(["spark/offsets", "spark/commits"]), chance)
    traffic.stream(checkpoint, "--run-id", "killed")
    assert traffic.answers("killed") == traffic.replayed() != []


def test_captured_pulls_do_not_wait(pullsim: Pullsim, tmp_path: Path) -> None:
    command = ("stream", "--lake", tmp_path, "--requests", "pull_request", "--checkpoint", tmp_path / "c", "--at", "request-time", "--hold")
    code, _, err = pullsim(*command)
    assert (code, "--hold: expected files in --requests, found the table of captured pulls" in err) == (2, True), err
