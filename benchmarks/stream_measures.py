"""The measures of a stream: how long a batch takes, small and large, and whether that grows."""

from __future__ import annotations

import datetime as dt
import json
import statistics
import threading
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from benchmarks.measures import BROKER, Figure
from benchmarks.synthetic_store import TOPIC_PREFIX, Shape
from pipeline.lake import Lake
from pipeline.settings import BrokerSettings
from pipeline.stream.batches import Batches
from pipeline.stream.report import report_of
from pipeline.stream.request_log import RequestLog
from pipeline.stream.stream_job import run_stream
from pipeline.stream.stream_run import REQUESTS, run_of_checkpoint

SMALL, LARGE = 10, 100_000
LARGE_BATCHES = 4
_PART = 20  # batches whose median is taken


class _Seconds(StreamingQueryListener):
    """How long each batch took, from planning to Spark's own commit."""

    def __init__(self) -> None:
        self.of_batches: list[float] = []

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's name)
        """Nothing to tell yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 (Spark's name)
        """A batch ended."""
        if event.progress.numInputRows:
            self.of_batches.append(event.progress.durationMs["triggerExecution"] / 1000)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 (Spark's name)
        """All were told."""


def measure_stream(spark: SparkSession, folder: Path, lake: Path, shape: Shape, batches: int) -> list[Figure]:
    """Batches of few requests, one after the other, and then of many."""
    small = _seconds(spark, folder / "small", lake, shape, SMALL, batches)
    large = _seconds(spark, folder / "large", lake, shape, LARGE, LARGE_BATCHES)
    part = min(_PART, batches // 3)
    first, last = (statistics.median(some) for some in (small[part : 2 * part], small[-part:]))
    name = f"stream, batch of {SMALL}"
    told = f"batches {part} to {2 * part} of {batches}: {first:.2f}"
    return [
        Figure(name=name, value=last, unit="s", peer=told, ratio=last / first, target="1.5 s, ratio about 1"),
        Figure(name=f"stream, batch of {LARGE:,}", value=min(large), unit="s", peer="", ratio=None, target="3 s"),
    ]


def _seconds(spark: SparkSession, folder: Path, lake: Path, shape: Shape, requests: int, batches: int) -> list[float]:
    incoming, checkpoint = folder / "incoming", str(folder / "checkpoint")
    _write_requests(incoming, shape, requests, batches)
    opened, settings = Lake(spark, str(lake)), BrokerSettings.from_sources()
    run, _ = run_of_checkpoint(
        checkpoint, run_id=None, lake=opened.root, broker=BROKER, source=str(incoming), at="snapshot", settings=settings.as_texts()
    )

    def now() -> dt.datetime:
        return dt.datetime.now(dt.UTC)

    answering = Batches(root=opened.root, run=run, settings_of=lambda *_: settings, now=now, stop=threading.Event())
    log = RequestLog(f"{checkpoint}/{REQUESTS}")
    report = report_of(spark, run, log, answering.counts, progress=lambda _: None, now=now, publish=None)
    told = _Seconds()
    spark.streams.addListener(told)
    try:
        done = run_stream(opened, run, checkpoint, answering, report, files_max=1, once=True, trigger_seconds=0)
    finally:
        spark.streams.removeListener(told)
    assert done.answered == requests * batches
    return told.of_batches


def _write_requests(folder: Path, shape: Shape, requests: int, files: int) -> None:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(requests)
    queues, a_queue = shape.topics * shape.queues, shape.messages // (shape.topics * shape.queues)
    for number in range(files):
        asked = zip(rng.integers(0, queues, requests).tolist(), rng.integers(0, a_queue, requests).tolist(), strict=True)
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
            for queue, offset in asked
        ]
        (folder / f"{number:05d}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
