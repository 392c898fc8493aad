"""Streams that are killed anywhere and started again, are stopped, run two at once, or have cut checkpoints: one answer a request."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.lake.lake import Lake
from pipeline.schema import tables as t
from pipeline.schema.capture_tables import BAD_REQUEST
from pipeline.settings.settings import BrokerSettings
from pipeline.stream.batches import Batches
from pipeline.stream.report import report_of
from pipeline.stream.request_log import RequestLog
from pipeline.stream.stream_job import run_stream
from pipeline.stream.stream_run import REQUESTS, run_of_checkpoint
from tests.makers.lakes import contents, import_as, tiny_store
from tests.runs.checked_kills import FILES, LINES, check_killed_streams
from tests.runs.in_session import Pullsim, pullsim_in
from tests.runs.replaying import BROKER, DEMO_TRACE, NOON, all_lines, demo_data, demo_lake, write_lines
from tests.runs.sampling import ALL, slow_proof
from tests.runs.streamed_answers import answered, answers
from tests.truth.places import PROJECT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_IMPORT_SECONDS = 300


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return all_lines(demo_data(tmp_path_factory) / DEMO_TRACE)[1:]


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return demo_lake(spark, tmp_path_factory, tmp_path)


def test_streams_that_were_killed_go_on_where_they_were(
    spark: SparkSession, lake: Path, lines: list[dict[str, Any]], pullsim: Pullsim, tmp_path: Path
) -> None:
    check_killed_streams(spark, pullsim, lake, lines, tmp_path, streams=5 if ALL else 1, kills=5 if ALL else 1, seed=1)


@slow_proof
def test_a_file_written_over_after_its_answers_were_committed_and_before_spark_noted_it_loses_and_repeats_nothing(
    spark: SparkSession, lake: Path, lines: list[dict[str, Any]], pullsim: Pullsim, tmp_path: Path
) -> None:
    folder, checkpoint = tmp_path / "incoming", tmp_path / "checkpoint"
    folder.mkdir()
    command = ("stream", "--lake", lake, "--requests", folder, "--checkpoint", checkpoint, "--once", "--run-id", "r")
    first = write_lines(folder / "a.jsonl", lines[:5])
    (folder / "b.jsonl").write_text("no json\n", "utf-8")
    assert "answered 5 requests in 1 batch, 1 bad one" in pullsim(*command)[1]

    # as a kill leaves it between the lake's commit of batch 0 and Spark's
    (checkpoint / "spark" / "commits" / "0").unlink()
    (checkpoint / "spark" / "commits" / ".0.crc").unlink()
    first.rename(folder / "copy.jsonl")
    write_lines(first, lines[5:12])
    (folder / "b.jsonl").write_text("[]\nno json either\n", "utf-8")
    write_lines(folder / "later.jsonl", lines[12:15])
    code, out, err = pullsim(*command)
    assert code == 0, err
    assert "10 requests" in out
    assert "2 bad ones" in out
    assert "answered 0 requests" in pullsim(*command)[1]

    digests = {hashlib.sha256((folder / name).read_bytes()).hexdigest()[:16]: name for name in ("copy.jsonl", "a.jsonl", "later.jsonl")}
    ids = [row["requestId"] for row in answered(spark, lake, "r")]
    asked = Counter(digests[one.partition("-")[0]] for one in ids)
    assert asked == {"copy.jsonl": 5, "a.jsonl": 7, "later.jsonl": 3}
    assert len(set(ids)) == len(ids)
    bad = Lake(spark, str(lake)).table(BAD_REQUEST).collect()
    assert sorted(bytes(row["raw"]) for row in bad) == [b"[]", b"no json", b"no json either"]


def beside_imports(imports_end: threading.Event) -> type[Batches]:
    """A kind of Batches that runs beside imports: each of FILES batches waits a moment, the last one until `imports_end` is set."""

    class BesideImports(Batches):
        def __call__(self, batch: DataFrame, number: int) -> None:
            imports_end.wait(_IMPORT_SECONDS if number == FILES - 1 else 2)
            super().__call__(batch, number)

    return BesideImports


def started(lake: Path, folder: Path, checkpoint: Path, run_id: str, kind: type[Batches] = Batches) -> Batches:
    """The Batches that answer a new stream with its own checkpoint."""
    stored: dict[str, str] = {}
    run, _ = run_of_checkpoint(
        str(checkpoint), run_id=run_id, lake=str(lake), broker=BROKER, source=str(folder), at="snapshot", settings=stored
    )
    return kind(
        root=str(lake),
        run=run,
        settings_of=lambda header, where: BrokerSettings.from_sources(header=header, header_where=where),
        requests=f"{checkpoint}/{REQUESTS}",
        now=lambda: NOON,
        stop=threading.Event(),
    )


def run_batches(spark: SparkSession, batches: Batches, checkpoint: Path, *, files_max: int) -> None:
    """Answer the requests that are in the folder, and end."""
    log = RequestLog(f"{checkpoint}/{REQUESTS}")
    report = report_of(spark, batches.run, log, batches.counts, progress=lambda _: None, now=lambda: NOON, publish=None)
    lake = Lake(spark, batches.root)
    run_stream(lake, batches.run, str(checkpoint), batches, report, files_max=files_max, once=True, trigger_seconds=0)


@slow_proof
def test_two_streams_write_to_one_lake(spark: SparkSession, lake: Path, lines: list[dict[str, Any]], tmp_path: Path) -> None:
    folder = tmp_path / "incoming"
    folder.mkdir()
    for number in range(FILES):
        write_lines(folder / f"{number}.jsonl", lines[number * LINES : (number + 1) * LINES])
    streams = [started(lake, folder, tmp_path / name, name) for name in ("one", "other")]

    threads = [
        threading.Thread(target=run_batches, args=(spark, batches, tmp_path / batches.run.run_id), kwargs={"files_max": 2})
        for batches in streams
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [batches.failed for batches in streams] == [None, None]
    one, other = (answers(spark, lake, batches.run.run_id) for batches in streams)
    assert len(one) == FILES * LINES
    assert one == other
    runs = Lake(spark, str(lake)).table(t.REPLAY_RUN).orderBy("runId").collect()
    assert [(row["runId"], row["finishedAt"] is None) for row in runs] == [("one", False), ("other", False)]


@slow_proof
def test_imports_beside_a_stream_change_nothing_of_it_and_it_nothing_of_them(
    spark: SparkSession, lake: Path, lines: list[dict[str, Any]], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path / "incoming"
    folder.mkdir()
    for number in range(FILES):
        write_lines(folder / f"{number}.jsonl", lines[number * LINES : (number + 1) * LINES])
    alone = started(tmp_path / "alone", folder, tmp_path / "checkpoint of alone", "run")
    imports_end = threading.Event()
    beside = started(lake, folder, tmp_path / "checkpoint of lake", "run", beside_imports(imports_end))
    shutil.copytree(lake, tmp_path / "alone")
    run_batches(spark, alone, tmp_path / "checkpoint of alone", files_max=FILES)
    running = threading.Thread(target=run_batches, args=(spark, beside, tmp_path / "checkpoint of lake"), kwargs={"files_max": 1})
    running.start()
    # another broker, and that of the stream once more
    import_as(spark, lake, tiny_store(tmp_path / "store", [("TopicA", 0)]), "other", run_id="other")
    import_as(spark, lake, demo_data(tmp_path_factory) / "cleaned", BROKER, run_id="again")
    imports_end.set()
    running.join()
    assert (alone.failed, beside.failed) == (None, None)
    found = answers(spark, lake, "run")
    assert len(found) == FILES * LINES
    assert found == answers(spark, tmp_path / "alone", "run")
    import_as(spark, tmp_path / "imported", tmp_path / "store", "other")
    imported = Lake(spark, str(tmp_path / "imported")).at.tables
    of_other = contents(lake, Lake(spark, str(lake)).at.tables, "other")
    assert {name: of_other[name] for name in imported} == contents(tmp_path / "imported", imported)


@slow_proof
def test_a_stream_that_is_told_to_end_ends_behind_its_batch(
    spark: SparkSession, lake: Path, lines: list[dict[str, Any]], tmp_path: Path
) -> None:
    folder = tmp_path / "incoming"
    folder.mkdir()
    write_lines(folder / "first.jsonl", lines[:LINES])
    command = ("stream", "--lake", lake, "--requests", folder, "--checkpoint", tmp_path / "checkpoint", "--run-id", "told")
    stream = subprocess.Popen(
        [sys.executable, "-m", "pipeline.main", *map(str, command)],
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert stream.stderr is not None
    for line in stream.stderr:
        if line.startswith("pullsim: batch 0"):
            break
    write_lines(folder / "second.jsonl", lines[LINES : 2 * LINES])
    time.sleep(2)  # it may be at its second batch, or not
    stream.send_signal(signal.SIGTERM)
    out, err = stream.communicate(timeout=120)
    assert (stream.returncode, out.startswith("run told: answered ")) == (0, True), err
    assert len(answers(spark, lake, "told")) in {LINES, 2 * LINES}
    [run] = Lake(spark, str(lake)).table(t.REPLAY_RUN).collect()
    assert run["finishedAt"] is not None
