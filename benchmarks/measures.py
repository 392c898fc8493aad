"""The measures: what is timed, and the peer it is held against."""

from __future__ import annotations

import datetime as dt
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from benchmarks.synthetic_store import TOPIC_PREFIX, Shape
from pipeline import tables as t
from pipeline.answering import Answering
from pipeline.import_store import import_store
from pipeline.lake import Lake
from pipeline.loaded_store import FileSizes, load_log
from pipeline.log_batches import commit_log_batches
from pipeline.replay import Kinds, broker_store, replay
from pipeline.settings import BrokerSettings
from pipeline.store_files import StoreFiles
from store_format.consume_queue import units_of
from udfs import get_message as gm
from udfs.tags import tags_code

BROKER = "bench"
REPEATS = 2  # of a replay; the best one counts


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure; `ratio` is ours over the peer's, `target` what it should reach, in words."""

    name: str
    value: float
    unit: str
    peer: str
    ratio: float | None
    target: str

    def as_dict(self) -> dict[str, Any]:
        """For the JSON file."""
        return asdict(self)


def _own_workers() -> Iterator[Path]:
    """The processes below this one that are Python workers of Spark."""
    parents: dict[str, str] = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError, IndexError):
            parents[pid] = Path(f"/proc/{pid}/stat").read_text("utf-8").rsplit(")", 1)[1].split()[1]
    for pid in parents:
        above = pid
        while above in parents and above != str(os.getpid()):
            above = parents[above]
        if above == str(os.getpid()) and pid != above:
            yield Path(f"/proc/{pid}")


@contextmanager
def peak_worker_memory() -> Iterator[Callable[[], float]]:
    """Greatest memory of its own (mapped files aside), in MiB, of any Python worker that was seen while the block ran."""
    stop, peak = threading.Event(), [0.0]

    def watch() -> None:
        while not stop.wait(0.2):
            for process in _own_workers():
                with suppress(OSError, IndexError):
                    if b"pyspark" in (process / "cmdline").read_bytes().split(b"java")[0]:
                        status = (process / "status").read_text("ascii")
                        peak[0] = max(peak[0], int(status.split("RssAnon:")[1].split()[0]) / 1024)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield lambda: peak[0]
    finally:
        stop.set()
        watcher.join()


def timed(work: Callable[[], Any]) -> float:
    """Seconds that `work` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def import_quietly(spark: SparkSession, store: Path, lake: Path, layout: t.Layout | None = None) -> None:
    """Import a store as the command does, without a word."""
    import_store(
        Lake(spark, str(lake)),
        str(store),
        broker=BROKER,
        layout=layout,
        settings=BrokerSettings.from_sources(),
        run_id="bench",
        now=lambda: dt.datetime.now(dt.UTC),
        progress=lambda _: None,
    )


def measure_import(spark: SparkSession, store: Path, lake: Path, shape: Shape) -> list[Figure]:
    """Import of the whole store, against pyarrow writing the columns of commit_log with the same codec, on one core."""

    with peak_worker_memory() as peak:
        seconds = timed(lambda: import_quietly(spark, store, lake))
    rate = shape.log_bytes / seconds / 1e6
    peer = shape.log_bytes / _pyarrow_seconds(store, lake.with_name("peer.parquet")) / 1e6
    return [
        Figure(name="import", value=rate, unit="MB/s of log", peer=f"pyarrow, one core: {peer:.0f}", ratio=rate / peer, target="50 MB/s"),
        _memory("import", peak()),
    ]


def _pyarrow_seconds(store: Path, out: Path) -> float:
    files = StoreFiles(str(store))
    sizes = FileSizes(commit_log=files.folder("commitlog")[0].length, consume_queue=0)

    def write() -> None:
        writer: pq.ParquetWriter | None = None
        for file in load_log(files, sizes):
            for batch in commit_log_batches(BROKER, file, files.content("commitlog", file.name)):
                writer = writer or pq.ParquetWriter(out, batch.schema, compression="snappy")
                writer.write_table(pa.Table.from_batches([batch]))
        if writer:
            writer.close()

    seconds = timed(write)
    out.unlink()
    return seconds


def requests(
    spark: SparkSession, shape: Shape, count: int, *, expression: str | None, sequential: bool, filter_type: str = "TAG"
) -> DataFrame:
    """Requests over all queues: random offsets, or each queue read from its start."""
    total = shape.topics * shape.queues
    a_queue = shape.messages // total
    offset = f"pmod(id div {total} * 32, {a_queue})" if sequential else f"pmod(xxhash64(id), {a_queue})"
    return spark.range(count).selectExpr(
        "id AS seq",
        "concat('group-', id % 16) AS consumerGroup",
        f"concat('{TOPIC_PREFIX}', lpad(CAST(id % {total} div {shape.queues} AS STRING), 2, '0')) AS topic",
        f"CAST(id % {shape.queues} AS INT) AS queueId",
        f"{offset} AS queueOffset",
        "32 AS maxMsgNums",
        "CAST(NULL AS STRING) AS expression" if expression is None else f'"{expression}" AS expression',
        "CAST(NULL AS STRING) AS filterType" if expression is None else f"'{filter_type}' AS filterType",
        "FALSE AS registered",
        "CAST(NULL AS BIGINT) AS timestamp",
        "CAST(NULL AS BIGINT) AS recordedMaxOffset",
    )


def measure_replay(
    spark: SparkSession, lake: Path, shape: Shape, count: int, *, name: str, expression: str | None, sequential: bool = False
) -> list[Figure]:
    """Answers a second through Spark, written to a table, against the kernel alone over numpy arrays on one core."""
    opened = Lake(spark, str(lake))
    asked = requests(spark, shape, count, expression=expression, sequential=sequential)
    settings = BrokerSettings.from_sources().pull_settings()

    def run() -> None:
        answers = replay(
            opened, BROKER, asked, at="snapshot", settings=settings, with_entries=False, kinds=Kinds(into_messages=False, about=count)
        )
        answers.write.format("noop").mode("overwrite").save()

    with peak_worker_memory() as peak:
        seconds = min(timed(run) for _ in range(REPEATS))
    rate = count / seconds
    peer = _kernel_rate(opened, shape, expression)
    return [
        Figure(name=name, value=rate, unit="pulls/s", peer=f"kernel, one core: {peer:,.0f}", ratio=rate / peer, target="100,000/s"),
        _memory(name, peak()),
    ]


def measure_expressions(spark: SparkSession, lake: Path, shape: Shape, count: int, *, expression: str, by_tag: Figure) -> list[Figure]:
    """Answers a second to pulls with a SQL92 filter, against those to pulls that get the same messages by their tag."""
    opened = Lake(spark, str(lake))
    asked = requests(spark, shape, count, expression=expression, sequential=False, filter_type="SQL92")
    settings = BrokerSettings.from_sources().pull_settings()

    def run() -> None:
        answers = replay(opened, BROKER, asked, at="snapshot", settings=settings, with_entries=False, kinds=Kinds(about=count))
        answers.write.format("noop").mode("overwrite").save()

    with peak_worker_memory() as peak:
        rate = count / min(timed(run) for _ in range(REPEATS))
    name, peer = "replay SQL92 1 in 10", f"{by_tag.name}: {by_tag.value:,.0f}"
    return [
        Figure(name=name, value=rate, unit="pulls/s", peer=peer, ratio=rate / by_tag.value, target="> 0.2"),
        _memory(name, peak()),
    ]


def _kernel_rate(lake: Lake, shape: Shape, expression: str | None) -> float:
    """Requests a second of the kernel over the entries of one queue."""
    store = broker_store(lake, BROKER)
    settings = BrokerSettings.from_sources().pull_settings()
    answering = Answering.of(settings, store.entries_a_file, store.log, with_entries=False)
    rows = lake.table(t.CONSUME_QUEUE_SEGMENT).where(f"topic = '{TOPIC_PREFIX}00' AND queueId = 0").orderBy("segment").collect()
    units = np.concatenate([units_of(np.frombuffer(row["entries"], np.uint8))[: row["entryCount"]] for row in rows])
    block = gm.Block(0, units["physicOffset"].astype(np.int64), units["size"].astype(np.int32), units["tagsCode"].astype(np.int64))
    codes = np.array([] if expression is None else [tags_code(expression)], np.int32)
    filters = gm.TagCodes(np.array([0, len(codes)]), codes)
    count = 200_000
    asked = np.zeros((count, gm.REQUEST_COLUMNS), np.int64)
    asked[:, gm.OFFSET] = np.random.default_rng(1).integers(0, len(units), count)
    asked[:, gm.MAX_MSG_NUMS], asked[:, gm.MAX_OFFSET], asked[:, gm.LOG_END] = 32, len(units), store.log_end
    asked[:, gm.FILTER] = gm.NO_FILTER if expression is None else 0
    gm.get_message(asked[:10], answering.caps, block, filters, answering.log)
    return count / timed(lambda: gm.get_message(asked, answering.caps, block, filters, answering.log))


def _memory(name: str, peak: float) -> Figure:
    limit = 2048
    return Figure(name=f"{name} memory", value=peak, unit="MiB, largest worker", peer=f"limit {limit}", ratio=peak / limit, target="< 1")
