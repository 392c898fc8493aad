"""The measures of a stream: how long small and large batches take, and whether the time grows."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import statistics
import threading
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import QueryProgressEvent

from benchmarks.figures import Figure, Peer, held_against
from benchmarks.made.synthetic_store import SMALL_BODY_BYTES, TOPIC_PREFIX, Shape, write_store
from benchmarks.stand import BROKER, Stand
from pipeline.lake.lake import Lake
from pipeline.settings.settings import BrokerSettings
from pipeline.stream.batches import Batches
from pipeline.stream.query_listener import QueryListener
from pipeline.stream.report import report_of
from pipeline.stream.request_log import RequestLog
from pipeline.stream.stream_job import run_stream
from pipeline.stream.stream_run import REQUESTS, run_of_checkpoint

CHECKPOINT = "checkpoint"
SMALL, LARGE = 10, 100_000
SMALL_BATCHES, LARGE_BATCHES = 45, 40
ENTRIES = 10_000_000  # of the lake
_LEAST_BATCHES = 6  # from fewer nobody can tell whether they grow
_LEAST_LARGE = 3


class _Seconds(QueryListener):
    """The stream's own listener, which also notes how long each batch took, from planning to Spark's own commit.

    A second listener would have Spark tell everything twice, which takes a tenth of the time of a small batch.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.of_batches: list[float] = []

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 (Spark's name)
        """A batch ended."""
        super().onQueryProgress(event)
        if event.progress.numInputRows:
            self.of_batches.append(event.progress.durationMs["triggerExecution"] / 1000)


def measure_stream(stand: Stand) -> list[Figure]:
    """Batches of few requests, one after the other, compared with the first of them, and then of many.

    Of the large ones the first half does not count: a stream runs for longer than its code takes to compile.
    """
    shape, store = stand.sized(ENTRIES, SMALL_BODY_BYTES), stand.folder / "stream-store"
    write_store(store, shape)
    lake = stand.imported("stream-lake", store)
    shutil.rmtree(store)
    batches = max(SMALL_BATCHES // stand.scale, _LEAST_BATCHES)
    small = seconds_of_batches(stand.spark, lake, stand.folder / "small", shape, SMALL, batches)
    of_large = max(LARGE_BATCHES // stand.scale, _LEAST_LARGE)
    large = seconds_of_batches(stand.spark, lake, stand.folder / "large", shape, LARGE, of_large)
    shutil.rmtree(lake)
    part = batches // 3
    first, last = small[part : 2 * part], small[-part:]
    peer = Peer("the first", f"batches {part} to {2 * part} of {batches}", statistics.median(first), "ratio about 1")
    return [
        *held_against(f"stream, batch of {SMALL}", last, "s", peer, target="0.7 s"),
        *held_against(f"stream, batch of {LARGE:,}", large[of_large // 2 :], "s", target="2 s"),
    ]


def seconds_of_batches(spark: SparkSession, lake: Path, folder: Path, shape: Shape, requests: int, batches: int) -> list[float]:
    """How long each of so many batches takes, of a stream of so many requests each.

    Args:
        spark: the session.
        lake: with the tables of a store.
        folder: gets the files of requests, and the checkpoint.
        shape: of the store.
        requests: of a batch.
        batches: how many.
    """
    incoming, checkpoint = folder / "incoming", str(folder / CHECKPOINT)
    _write_requests(incoming, shape, requests, batches)
    opened, settings = Lake(spark, str(lake)), BrokerSettings.from_sources()
    run, _ = run_of_checkpoint(
        checkpoint, run_id=None, lake=opened.root, broker=BROKER, source=str(incoming), at="snapshot", settings=settings.as_texts()
    )

    def now() -> dt.datetime:
        return dt.datetime.now(dt.UTC)

    log = RequestLog(f"{checkpoint}/{REQUESTS}")
    answering = Batches(
        root=opened.root, run=run, settings_of=lambda *_: settings, requests=f"{checkpoint}/{REQUESTS}", now=now, stop=threading.Event()
    )
    report = report_of(spark, run, log, answering.counts, progress=lambda _: None, now=now, publish=None)
    report.listener = told = _Seconds(run.checkpoint)
    done = run_stream(opened, run, checkpoint, answering, report, files_max=1, once=True, trigger_seconds=0)
    assert done.answered == requests * batches
    return told.of_batches


def _write_requests(folder: Path, shape: Shape, requests: int, files: int) -> None:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(requests)
    for number in range(files):
        asked = (rng.integers(0, most, requests).tolist() for most in (shape.all_queues, shape.messages // shape.all_queues))
        lines = [
            json.dumps(
                {
                    "request": {
                        "group": f"group-{number % 16}",
                        "topic": f"{TOPIC_PREFIX}{queue // shape.queues:02d}",
                        "queueId": queue % shape.queues,
                        "offset": offset,
                        "maxMsgNums": 32,
                        "filter": None,
                    }
                }
            )
            for queue, offset in zip(*asked, strict=True)
        ]
        (folder / f"{number:05d}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
