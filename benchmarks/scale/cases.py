"""The cases of the scale measures: each case runs in a process of its own, so that its memory is measured alone.

A point of a case gives rows of (case, x, series, value, unit): x is what grows or is chosen.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.fs as pafs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.figures import timed
from benchmarks.made.pulls import requests
from benchmarks.made.synthetic_store import SMALL_BODY_BYTES as SMALL_BODY
from benchmarks.made.synthetic_store import TOPIC_PREFIX, Shape, write_store
from benchmarks.measures.stream import CHECKPOINT, SMALL, seconds_of_batches
from benchmarks.stand import BROKER, import_quietly
from benchmarks.worker_memory import peak_worker_memory
from pipeline.export.export_store import export_store
from pipeline.files.store_files import filesystem_of
from pipeline.lake.lake import Lake
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.lake.session import build_session
from pipeline.lake.views import create_views
from pipeline.replay.replay import RequestProfile, broker_store, replay
from pipeline.replay.touched_segments import only_touched, touched_segments
from pipeline.schema import tables as t
from pipeline.settings.settings import BrokerSettings

MILLION = 1_000_000
# the case whose store and lake are on S3
ON_S3 = "executors on S3"
# requests for the entries of a store: 4 million for 20 million
ENTRIES_A_REQUEST = 5
_GROUPS = 64
_LAG = "SELECT consumerGroup, sum(lag) AS lag, max(lagMillis) AS lagMillis FROM consume_lag GROUP BY consumerGroup"
_LAST_BATCHES = 20
_TAIL_MILLIONS, _TAIL_ENTRIES = "20", 20_000
SMALL_MESSAGES, KIB_MESSAGES = Shape(messages=5 * MILLION, body_bytes=SMALL_BODY), Shape(messages=MILLION)
LARGE = Shape(messages=256, topics=1, queues=4, log_file_bytes=1 << 30, queue_file_entries=1000, body_bytes=(4 << 20) - 200)


@dataclass(frozen=True, slots=True)
class Row:
    """One figure."""

    case: str
    x: str
    series: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class Bench:
    """A session and a folder for one case, and where its rows go; `s3` is the folder on S3 of a case whose store and lake lie there."""

    spark: SparkSession
    folder: Path
    case: str
    x: str
    rows: list[Row]
    s3: str | None = None

    def told(self, series: str, value: float, unit: str) -> None:
        """Add a row."""
        self.rows.append(Row(self.case, self.x, series, round(value, 3), unit))

    @property
    def lake(self) -> str:
        """Where the tables are."""
        return f"{self.s3 or self.folder}/lake"

    def imported(self, shape: Shape, layout: t.Layout | None = None, series: str = "import") -> None:
        """Write a store, on S3 with its copy there, and import it."""
        store = self.folder / "store"
        write_store(store, shape)
        _write_offsets(store / "config", shape)
        source = str(store)
        if self.s3:
            source = f"{self.s3}/store"
            filesystem, path = filesystem_of(source)
            pafs.copy_files(str(store), path, pafs.LocalFileSystem(), filesystem)
            shutil.rmtree(store)
        with peak_worker_memory() as peak:
            self.told(series, timed(lambda: import_quietly(self.spark, source, self.lake, layout)), "s")
        self.told(f"{series}, largest worker", peak(), "MiB")

    def requests(self, shape: Shape, count: int, expression: str | None = None) -> DataFrame:
        """So many requests at random offsets."""
        return requests(self.spark, shape, count, expression=expression, sequential=False)

    def replayed(self, asked: DataFrame, count: int, series: str, times: int = 2) -> None:
        """Replay so many requests; the last time counts."""
        settings = BrokerSettings.from_sources().pull_settings()
        opened = Lake(self.spark, self.lake)

        def run() -> None:
            profile = RequestProfile(into_messages=False, about=count)
            answers = replay(OpenedBroker(opened, BROKER), asked, at="snapshot", settings=settings, with_entries=False, profile=profile)
            answers.write.format("noop").mode("overwrite").save()

        with peak_worker_memory() as peak:
            seconds = [timed(run) for _ in range(times)][-1]
        self.told(series, seconds, "s")
        self.told(f"{series}, largest worker", peak(), "MiB")


def _write_offsets(config: Path, shape: Shape) -> None:
    """Each of some groups has offsets on some of the queues."""
    config.mkdir()
    table: dict[str, dict[str, int]] = {}
    for group in range(_GROUPS):
        offset = shape.messages // shape.all_queues * group // _GROUPS
        for queue in range(min(shape.all_queues, _GROUPS)):
            of_topic = table.setdefault(f"{TOPIC_PREFIX}{queue // shape.queues:02d}@group-{group:02d}", {})
            of_topic[str(queue % shape.queues)] = offset
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}), "utf-8")


def _as_messages(asked: DataFrame, shape: Shape) -> DataFrame:
    """Requests spread as the messages of a skewed store are."""
    hot, others = (len(shape.of_queue(queue)) for queue in (0, 1))
    to_hot = "seq % 10 < 9"
    return asked.withColumns(
        {
            "topic": F.expr(f"IF({to_hot}, '{TOPIC_PREFIX}00', topic)"),
            "queueId": F.expr(f"IF({to_hot}, 0, queueId)"),
            "queueOffset": F.expr(f"pmod(xxhash64(seq), IF({to_hot}, {hot}, {others}))"),
        }
    )


def curve(bench: Bench) -> None:
    """Import, replay and lag of so many million entries in 64 queues."""
    shape = Shape(messages=int(bench.x) * MILLION, body_bytes=SMALL_BODY)
    bench.imported(shape)
    count = shape.messages // ENTRIES_A_REQUEST
    bench.replayed(bench.requests(shape, count), count, "replay")
    create_views(Lake(bench.spark, bench.lake))
    bench.told("lag query", min(timed(lambda: bench.spark.sql(_LAG).toArrow()) for _ in range(3)), "s")
    if bench.x == _TAIL_MILLIONS:
        _tail(bench, shape)


def _tail(bench: Bench, shape: Shape) -> None:
    """What is read for pulls at the end of each queue."""
    a_queue = shape.messages // shape.all_queues
    asked = bench.requests(shape, 100_000)
    asked = asked.withColumn("queueOffset", F.expr(f"{a_queue - _TAIL_ENTRIES} + pmod(xxhash64(seq), {_TAIL_ENTRIES})"))
    lake = Lake(bench.spark, bench.lake)
    segments = lake.table(t.CONSUME_QUEUE_SEGMENT).where(F.col("brokerName") == BROKER)
    needed = touched_segments(asked, entries_a_file=broker_store(OpenedBroker(lake, BROKER)).entries_a_file, whole_files=False)
    touched = only_touched(segments, needed)
    for name, frame in (("there", segments), ("touched", touched)):
        bench.told(f"tail, files {name}", len(frame.inputFiles()), "files")
        bench.told(f"tail, segments {name}", frame.count(), "segments")
    bench.replayed(asked, 100_000, "tail, 100,000 requests")


def queues(bench: Bench) -> None:
    """A store of two million messages in so many queues, in a layout: `1000 clustered`."""
    count, layout = int(bench.x.split()[0]), bench.x.split()[1]
    topics = min(count, 100)
    entries = max(20 * MILLION // count, 1000)
    shape = Shape(messages=2 * MILLION, topics=topics, queues=count // topics, queue_file_entries=entries, body_bytes=SMALL_BODY)
    bench.imported(shape, "partitioned" if layout == "partitioned" else "clustered")
    lake = Lake(bench.spark, bench.lake)
    for table in (t.COMMIT_LOG, t.CONSUME_QUEUE):
        bench.told(f"files of {table.name}", len(lake.table(table).inputFiles()), "files")
    bench.replayed(bench.requests(shape, 400_000), 400_000, "replay of 400,000")
    one = lake.table(t.COMMIT_LOG).where(f"topic = '{TOPIC_PREFIX}01' AND queueId = 0").agg(F.sum(F.length("body")))
    bench.told("bodies of one queue", min(timed(one.toArrow) for _ in range(3)), "s")


def skew(bench: Bench) -> None:
    """Ten million entries in 64 queues: `even`, or nine tenths of them in one of these, `one queue`."""
    shape = Shape(messages=10 * MILLION, body_bytes=SMALL_BODY, skewed=bench.x != "even")
    bench.imported(shape)
    asked = bench.requests(shape, 2 * MILLION)
    bench.replayed(_as_messages(asked, shape) if shape.skewed else asked, 2 * MILLION, "replay of 2 million")


def filters(bench: Bench) -> None:
    """A million requests with so many different TAG filters against five million entries."""
    shape = Shape(messages=5 * MILLION, body_bytes=SMALL_BODY)
    bench.imported(shape)
    asked = bench.requests(shape, MILLION, "TagC")
    different = F.expr(f"concat('TagC || Other', seq DIV 64 % {int(bench.x)})")
    bench.replayed(asked.withColumn("expression", different), MILLION, "replay of 1 million")


def large(bench: Bench) -> None:
    """256 messages of 4 MiB each."""
    bench.imported(LARGE)
    bench.replayed(bench.requests(LARGE, 1000), 1000, "replay of 1,000")
    out = bench.folder / "out"
    with peak_worker_memory() as peak:
        seconds = timed(
            lambda: export_store(OpenedBroker(Lake(bench.spark, bench.lake), BROKER), str(out), run_id="bench", progress=lambda _: None)
        )
    bench.told("export", seconds, "s")
    bench.told("export, largest worker", peak(), "MiB")


def executors(bench: Bench) -> None:
    """Import of five million messages and replay of two million requests by so many executors of one core each."""
    bench.imported(SMALL_MESSAGES)
    bench.replayed(bench.requests(SMALL_MESSAGES, 2 * MILLION), 2 * MILLION, "replay of 2 million", times=3)


def executors_on_s3(bench: Bench) -> None:
    """The same with the store and the lake on S3; and the import of a million messages of 1 KiB."""
    executors(bench)
    replace(bench, s3=f"{bench.s3}/of-1-KiB").imported(KIB_MESSAGES, series="import of 1 KiB messages")


def batches(bench: Bench) -> None:
    """So many small batches of a stream on a lake of a million entries, one after the other."""
    shape = Shape(messages=MILLION, body_bytes=SMALL_BODY)
    bench.imported(shape)
    stream = bench.folder / "stream"
    seconds = seconds_of_batches(bench.spark, Path(bench.lake), stream, shape, SMALL, int(bench.x))
    bench.told(f"the last {_LAST_BATCHES}", statistics.median(seconds[-_LAST_BATCHES:]), "s")
    lake = Lake(bench.spark, bench.lake)
    for table in (t.PULL_RESPONSE, t.LAKE_VERSION):
        files = bench.spark.read.format("delta").load(lake.path(table.name)).inputFiles()
        bench.told(f"files of {table.name}", len(files), "files")
    bench.told("files of the checkpoint", sum(path.is_file() for path in (stream / CHECKPOINT).rglob("*")), "files")
    bench.told("heap in use after a collection", _heap_in_use(), "MiB")


CASES: dict[str, tuple[Callable[[Bench], None], tuple[str, ...]]] = {
    "curve": (curve, ("1", "3", "10", "20", "100")),
    "queues": (
        queues,
        tuple(f"{count} {layout}" for count in (10, 1000, 4000, 100_000) for layout in ("partitioned", "clustered")),
    ),
    "skew": (skew, ("even", "one queue")),
    "filters": (filters, ("1", "1000")),
    "large": (large, ("4 MiB",)),
    "executors": (executors, ("1", "2")),
    ON_S3: (executors_on_s3, ("1", "2", "4")),
    "batches": (batches, ("50", "200")),
}


@contextmanager
def _emptied(s3: str) -> Iterator[str]:
    """A folder on S3 whose objects are removed before and after."""
    _remove_objects(s3)
    try:
        yield s3
    finally:
        _remove_objects(s3)


def _remove_objects(s3: str) -> None:
    filesystem, path = filesystem_of(s3)
    for found in filesystem.get_file_info(pafs.FileSelector(path, allow_not_found=True, recursive=True)):
        if found.type == pafs.FileType.File:
            filesystem.delete_file(found.path)


@contextmanager
def _session(case: str, x: str) -> Iterator[SparkSession]:
    if case in {"executors", ON_S3}:
        memory = {"spark.executor.memory": "2g"}
        spark = build_session(master=f"local-cluster[{x},1,2048]", conf=memory, s3=case == ON_S3)
    else:
        spark = build_session()
    spark.range(1).count()
    try:
        yield spark
    finally:
        spark.stop()


def _jvm() -> tuple[str, str]:
    """Number and status of the process of the JVM below this one."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            status = Path(f"/proc/{pid}/status").read_text("ascii")
            if f"PPid:\t{os.getpid()}\n" in status and "Name:\tjava" in status:
                return pid, status
    raise LookupError("no JVM runs below this process")


def _jvm_peak() -> float:
    """Greatest memory, in MiB, that the JVM ever had."""
    return int(_jvm()[1].split("VmHWM:")[1].split()[0]) / 1024


def _heap_in_use() -> float:
    """What of the JVM's heap, in MiB, is in use after all garbage was collected; the JDK's jcmd tells."""
    pid = _jvm()[0]
    for _ in range(2):  # what the first one finds unused Spark lets go
        subprocess.run(["jcmd", pid, "GC.run"], check=True, capture_output=True)
        time.sleep(2)
    told = subprocess.run(["jcmd", pid, "GC.heap_info"], check=True, capture_output=True, text=True).stdout
    return sum(map(int, re.findall(r" total \d+K, used (\d+)K", told))) / 1024  # the heap as one, or each of its generations


def measured(case: str, x: str, folder: Path, s3: str) -> list[Row]:
    """The rows of one case.

    Args:
        case: a name of CASES.
        x: the point of the case.
        folder: where files are written.
        s3: folder on S3 for the store and the lake of the case that has them there; it is removed at the end.
    """
    rows: list[Row] = []
    with _session(case, x) as spark, _emptied(s3) if case == ON_S3 else nullcontext() as at:
        bench = Bench(spark, folder, case, x, rows, at)
        CASES[case][0](bench)
        bench.told("driver's JVM", _jvm_peak(), "MiB")
    return rows
