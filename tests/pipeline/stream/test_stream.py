"""`pullsim stream`: requests that arrive in a folder get the answers that a replay of the file gives, each once."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.lake.lake import Lake
from pipeline.pace.feed import feed_folder, feed_of
from pipeline.pace.request_pace import Faults, Pace
from pipeline.schema import tables as t
from pipeline.stream import batch_rows
from pipeline.stream import batches as stream_batches
from tests.makers.lakes import commits, live_files
from tests.models.store_lag import StoreLag
from tests.runs.in_session import Pullsim, pullsim_in
from tests.runs.prometheus import Metric, parse, series
from tests.runs.replaying import BROKER, DEMO_TRACE, all_lines, demo_data, demo_lake, write_lines
from tests.runs.sampling import slow_proof
from tests.runs.streamed_answers import answered, answers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OF_RUN = ("runId", "requestId")


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return all_lines(demo_data(tmp_path_factory) / DEMO_TRACE)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return demo_lake(spark, tmp_path_factory, tmp_path_factory.mktemp("streams"))


@pytest.fixture(params=["driver", "Spark"])
def answering(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the driver, or Spark, answer all batches whose requests have no answer yet."""
    if request.param == "Spark":
        monkeypatch.setattr(stream_batches, "_SMALL_BYTES", -1)
    else:
        monkeypatch.setattr(batch_rows.SparkRows, "answers", lambda *_: pytest.fail("Spark answers"))


def run_of(out: str) -> str:
    return out.splitlines()[-1].split(":")[0].removeprefix("run ")


@slow_proof
def test_files_are_answered_as_by_a_replay(
    spark: SparkSession, lake: Path, trace: list[dict[str, Any]], pullsim: Pullsim, tmp_path: Path
) -> None:
    folder, checkpoint = tmp_path / "incoming", tmp_path / "checkpoint"
    folder.mkdir()
    parts = [trace[:40], [trace[0], *trace[40:90]]]
    files = [write_lines(folder / f"{number}.jsonl", part) for number, part in enumerate(parts)]
    command = ("stream", "--lake", lake, "--requests", folder, "--checkpoint", checkpoint, "--once")

    code, out, err = pullsim(*command)
    assert (code, out.split(": ")[1]) == (0, "answered 89 requests in 1 batch, 0 bad ones\n"), err
    run, expected = run_of(out), []
    for file in files:
        pullsim("replay", "--lake", lake, "--requests", file)
        batch = Lake(spark, str(lake)).table(t.REPLAY_RUN).orderBy("finishedAt").collect()[-1]["runId"]
        expected += answers(spark, lake, batch)
    assert answers(spark, lake, run) == sorted(expected, key=repr)

    code, out, _ = pullsim(*command)
    assert (code, out) == (0, f"run {run}: answered 0 requests in 0 batches, 0 bad ones\n")

    # the same content once more, and one that is new
    os.link(files[0], folder / "again.jsonl")
    more = write_lines(folder / "more.jsonl", [trace[0], *trace[90:95]])
    code, out, _ = pullsim(*command)
    assert (code, out.split(": ")[1]) == (0, "answered 5 requests in 1 batch, 0 bad ones\n")
    assert len(answers(spark, lake, run)) == 94

    # rewritten: another content, so another source
    write_lines(more, [trace[0], *trace[90:97]])
    code, out, _ = pullsim(*command)
    assert (code, out.split(": ")[1]) == (0, "answered 7 requests in 1 batch, 0 bad ones\n")

    # a new checkpoint under the same run: what has answers is left out
    again = ("--checkpoint", tmp_path / "other", "--run-id", run)
    write_lines(folder / "last.jsonl", trace[98:100])
    code, out, err = pullsim(*command[:5], *again, "--once")
    assert (code, out.split(": ")[1]) == (0, "answered 2 requests in 1 batch, 0 bad ones\n"), err
    assert len(answers(spark, lake, run)) == 94 + 7 + 2
    ids = [row["requestId"] for row in Lake(spark, str(lake)).table(t.PULL_RESPONSE).where(f"runId = '{run}'").collect()]
    assert len(set(ids)) == len(ids)


@slow_proof
def test_files_of_batches_are_joined(
    spark: SparkSession, lake: Path, trace: list[dict[str, Any]], pullsim: Pullsim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.lake.lake_writer.COMPACTED_EVERY", 3)
    monkeypatch.setattr("pipeline.stream.batches.COMPACTED_EVERY", 3)
    folder = tmp_path / "incoming"
    folder.mkdir()
    for number in range(4):
        write_lines(folder / f"{number}.jsonl", [trace[0], *trace[1 + number : 90 : 4]])
    code, out, err = pullsim("stream", "--lake", lake, "--requests", folder, "--checkpoint", tmp_path / "c", "--once", "--max-files", "1")
    assert (code, out.split(": ")[1]) == (0, "answered 89 requests in 4 batches, 0 bad ones\n"), err
    run = run_of(out)
    assert len({row["requestId"] for row in answered(spark, lake, run)}) == 89
    opened = Lake(spark, str(lake))
    # of three batches, and of the fourth
    assert len(live_files(lake / "pull_response", opened.at.tables["pull_response"])) <= 2
    versions = lake / "lake_version"
    assert len(live_files(versions, len(commits(versions)) - 1)) <= 3
    assert opened.versions().count() == opened.at.version


@pytest.mark.usefixtures("answering")
@slow_proof
def test_what_is_no_request_becomes_a_row(
    spark: SparkSession,
    lake: Path,
    trace: list[dict[str, Any]],
    pullsim: Pullsim,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder, metrics = tmp_path / "incoming", tmp_path / "pullsim.prom"
    folder.mkdir()
    good = json.dumps(trace[1])
    (folder / "bad.jsonl").write_text(f"{good}\nno json\n\n{good}\n[]\n" + '{"request": {"group": 1}}\n')
    (folder / "settings.jsonl").write_text('{"kind": "trace", "config": {"brokerRool": "SLAVE"}}\n' + good + "\n")
    (folder / "empty.jsonl").touch()
    (folder / "_unfinished.jsonl").write_text("no json\n")
    command = ("stream", "--lake", lake, "--requests", folder, "--checkpoint", tmp_path / "checkpoint", "--once", "--metrics", metrics)
    code, out, err = pullsim(*command)
    assert (code, out.split(": ")[1]) == (0, "answered 2 requests in 1 batch, 4 bad ones\n"), err
    assert "batch 0: 2 requests answered, 4 bad ones in bad_request, 6 rows read; no file waits; triggerExecution " in err
    bad = Lake(spark, str(lake)).table(t.TABLES["bad_request"]).where(f"source LIKE '{folder}%'").orderBy("source", "position").collect()
    lines = [(row["position"], row["raw"]) for row in bad[:3]]
    assert lines == [(len(good) + 1, b"no json"), (2 * len(good) + 11, b"[]"), (2 * len(good) + 14, b'{"request": {"group": 1}}')]
    assert "line 2: expected a JSON object" in bad[0]["error"]
    assert "brokerRool" in bad[3]["error"]
    assert_told(parse(metrics.read_text()), demo_data(tmp_path_factory) / "cleaned")


def assert_told(metrics: dict[str, Metric], store: Path) -> None:
    """The batch above has its numbers, the stream has ended, and topics are as long as in the files of the store."""
    names = ("running", "failed", "batches_total", "rows_read_total", "requests_answered_total", "requests_bad_total", "behind_files")
    assert [[*metrics[f"pullsim_stream_{name}"].series.values()] for name in names] == [[0], [0], [1], [6], [2], [4], [0]]
    phases = series(metrics["pullsim_stream_last_batch_duration_seconds"], "phase")
    assert phases["triggerExecution",] >= phases["addBatch",] > 0
    told = metrics["rocketmq_producer_offset"].series | metrics["rocketmq_topic_retry_offset"].series
    lengths: Counter[tuple[str, ...]] = Counter()
    for (topic, _), queue in StoreLag(store).queues.items():
        lengths[BROKER, topic] += queue.maximum
    assert series(Metric("", "gauge", told), "broker", "topic") == lengths


@pytest.mark.usefixtures("answering")
@slow_proof
def test_a_request_without_a_time_cannot_be_answered_as_of_its_time(
    spark: SparkSession, lake: Path, trace: list[dict[str, Any]], pullsim: Pullsim, tmp_path: Path
) -> None:
    folder = tmp_path / "incoming"
    folder.mkdir()
    request = {name: value for name, value in trace[1]["request"].items() if name != "timestamp"}
    file = write_lines(folder / "times.jsonl", [{"request": request}, {"request": request | {"timestamp": 1}}])
    command = ("stream", "--lake", lake, "--requests", folder, "--checkpoint", tmp_path / "checkpoint", "--once")
    code, out, err = pullsim(*command, "--at", "request-time")
    assert (code, out.split(": ")[1]) == (0, "answered 1 request in 1 batch, 1 bad one\n"), err
    [bad] = Lake(spark, str(lake)).table(t.TABLES["bad_request"]).where(f"source = '{file}'").collect()
    assert bad["error"].startswith(f'{file}, line 1: expected a "timestamp" in ms')


@pytest.mark.usefixtures("answering")
@slow_proof
def test_what_is_fed_at_a_pace_is_answered_as_by_a_replay(
    spark: SparkSession, lake: Path, trace: list[dict[str, Any]], pullsim: Pullsim, tmp_path: Path
) -> None:
    file, folder = write_lines(tmp_path / "in.jsonl", trace[:41]), tmp_path / "incoming"
    faults = Faults(lost=0.1, late=0.3, duplicated=0.3, reordered=0.5)
    feed, _ = feed_of(str(file), pace=Pace(rate=40.0), faults=faults, seed=3, loop=2)
    fed = feed_folder(feed, str(folder), clock=lambda: 0.0, wait=lambda _: False)
    command = ("stream", "--lake", lake, "--requests", folder, "--checkpoint", tmp_path / "checkpoint", "--once")
    code, out, err = pullsim(*command)
    assert (code, out.split(": ")[1]) == (0, f"answered {fed.requests} requests in 1 batch, 0 bad ones\n"), err

    pullsim("replay", "--lake", lake, "--requests", file)
    replayed = Lake(spark, str(lake)).versions().orderBy("version").collect()[-1]["runId"]
    by_line = {int(row["requestId"].split("-")[1]): row for row in answered(spark, lake, replayed)}
    of_text = {line: by_line[number] for number, line in enumerate(file.read_text().splitlines(), 1) if number > 1}
    expected = {}
    for path in folder.iterdir():
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for number, line in enumerate(path.read_text().splitlines()[1:], 2):
            expected[f"{digest}-{number}"] = of_text[line] | {"requestId": f"{digest}-{number}"}
    assert len(expected) == fed.requests > 2 * 40 * 0.9
    assert {row["requestId"]: row for row in answered(spark, lake, run_of(out))} == expected


@slow_proof
def test_a_checkpoint_of_another_stream_is_refused(lake: Path, trace: list[dict[str, Any]], pullsim: Pullsim, tmp_path: Path) -> None:
    folder = tmp_path / "incoming"
    folder.mkdir()
    command = ("stream", "--lake", lake, "--requests", folder, "--checkpoint", tmp_path / "checkpoint", "--once")
    assert pullsim(*command)[0] == 0
    code, _, err = pullsim(*command, "--at", "request-time")
    assert (code, "expected the checkpoint of a stream with at 'request-time', found one with 'snapshot'" in err) == (2, True)
    code, _, err = pullsim(*command, "--run-id", "mine")
    assert (code, "with run_id 'mine'" in err) == (2, True)
    code, _, err = pullsim("stream", "--lake", lake, "--requests", tmp_path / "none", "--checkpoint", tmp_path / "x", "--once")
    assert (code, "expected a folder of request files" in err) == (2, True)
