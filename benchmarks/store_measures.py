"""The measures of whole stores: into tables, back again, and checked."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import zlib
from functools import partial
from pathlib import Path

from benchmarks.figures import Figure, Peer, held_against, median_seconds, rates, timed, timed_runs
from benchmarks.stand import BROKER, Stand
from benchmarks.table_columns import read_columns, seconds_to_write
from benchmarks.worker_memory import memory_figure, peak_worker_memory
from pipeline import tables as t
from pipeline.export_store import export_store
from pipeline.lake import Lake
from pipeline.log_records import RECORD_COLUMNS
from pipeline.settings import BrokerSettings
from pipeline.verify_store import verify_store

_UNIT = "MB/s of log"


def measure_import(stand: Stand) -> list[Figure]:
    """Import of the whole store into an empty lake, against pyarrow writing the files of that lake."""
    store, megabytes = stand.store, stand.shape.log_bytes / 1e6
    lakes = [f"imported-{number}" for number in range(stand.repeats)]
    waiting = iter(lakes)
    with peak_worker_memory() as peak:
        seconds = timed_runs(lambda: stand.imported(next(waiting), store), stand.repeats)
    written = statistics.median(seconds_to_write(stand.folder / lake, stand.folder / "written") for lake in lakes)
    stand.lake = stand.folder / lakes.pop()  # what is here need not be imported again
    for lake in lakes:
        shutil.rmtree(stand.folder / lake)
    peer = Peer("pyarrow", "pyarrow writing the same tables, all cores", megabytes / written, "ratio 0.5")
    return held_against("import", rates(megabytes, seconds), _UNIT, peer, target="50 MB/s") + memory_figure("import", peak())


def measure_verify(stand: Stand) -> list[Figure]:
    """`pullsim verify` without the start of Spark, against the CRC-32 of all bytes of the log."""
    spark, store, megabytes = stand.spark, stand.store, stand.shape.log_bytes / 1e6

    def run() -> None:
        verified = verify_store(spark, str(store), BrokerSettings.from_sources(), lambda _: None)
        assert verified.files.count() > 0
        assert verified.findings.count() == 0

    peer = Peer("CRC-32", "CRC-32, one core", megabytes / median_seconds(lambda: _checksum(store / "commitlog"), stand.repeats))
    return held_against("verify", rates(megabytes, timed_runs(run, stand.repeats)), _UNIT, peer, target="500 MB/s")


def _checksum(folder: Path) -> None:
    for path in folder.iterdir():
        with path.open("rb", buffering=0) as file:
            crc = 0
            while block := file.read(1 << 22):
                crc = zlib.crc32(block, crc)


def measure_export(stand: Stand) -> list[Figure]:
    """`pullsim export` of the whole store without the start of Spark, against `cp -r`, and pyarrow reading the columns that it needs."""
    lake, out, copy = stand.lake, stand.folder / "exported", stand.folder / "copied"
    megabytes = stand.shape.log_bytes / 1e6
    seconds, copied = [], []
    for _ in range(stand.repeats):
        opened = Lake(stand.spark, str(lake))
        seconds.append(timed(partial(export_store, opened, BROKER, str(out), run_id="bench", progress=lambda _: None)))
        shutil.rmtree(out)
        copied.append(timed(partial(_copy, stand.store, copy)))
        shutil.rmtree(copy)
    copying = Peer("cp -r", "cp -r", megabytes / statistics.median(copied))
    read = median_seconds(lambda: _read_what_is_exported(lake), stand.repeats)
    reading = Peer("pyarrow", "pyarrow reading the same columns, all cores", megabytes / read)
    return held_against("export", rates(megabytes, seconds), _UNIT, copying, reading, target="half of cp -r")


def _copy(store: Path, to: Path) -> None:
    subprocess.run(["cp", "-r", store, to], check=True)


def _read_what_is_exported(lake: Path) -> None:
    assert read_columns(lake, t.COMMIT_LOG.name, RECORD_COLUMNS) > 0
    assert read_columns(lake, t.CONSUME_QUEUE_SEGMENT.name, ["firstQueueOffset", "fileFirstOffset", "entryCount", "entries"]) > 0
