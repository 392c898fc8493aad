"""The measures of whole stores: import, export and verify."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

from benchmarks.figures import Figure, Peer, held_against, median_seconds, rates, timed, timed_runs
from benchmarks.peers.table_columns import read_columns, seconds_to_write
from benchmarks.stand import BROKER, Stand
from benchmarks.worker_memory import memory_figure, peak_worker_memory
from pipeline.export.export_store import export_store
from pipeline.lake.lake import Lake
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.lake.session import INTERPRETED_PLANS, tasks_at_once, temporary_settings
from pipeline.rows.log_records import RECORD_COLUMNS
from pipeline.schema import tables as t
from pipeline.settings.settings import BrokerSettings
from pipeline.tasks.work import SparkTasks
from pipeline.verify.verify_store import verify_store

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
        tasks = SparkTasks(spark)
        verified = verify_store(tasks, str(store), BrokerSettings.from_sources(), lambda _: None, cores=tasks_at_once(spark))
        assert verified.files.rows()
        assert not verified.findings.rows()

    peer = Peer("CRC-32", "CRC-32, one core", megabytes / median_seconds(lambda: _checksum(store / "commitlog"), stand.repeats))
    seconds = timed_runs(run, 2 * stand.repeats)[stand.repeats :]  # the JVM compiles code in the first ones
    return held_against("verify", rates(megabytes, seconds), _UNIT, peer, target="500 MB/s")


def _checksum(folder: Path) -> None:
    for path in folder.iterdir():
        with path.open("rb", buffering=0) as file:
            crc = 0
            while block := file.read(1 << 22):
                crc = zlib.crc32(block, crc)


def measure_export(stand: Stand) -> list[Figure]:
    """`pullsim export` of the whole store without the start of Spark, against `cp -r`, and pyarrow reading the columns that it needs.

    Within the page cache first, and then from the disk to the disk, as who copies a store does it. The JVM compiles code in the first runs,
    which count nowhere.
    """
    lake, megabytes = stand.lake, stand.shape.log_bytes / 1e6
    runs = [_exported_and_copied(stand) for _ in range(2 * stand.repeats)]
    seconds, copied = zip(*runs[stand.repeats :], strict=True)
    on_disk, copied_on_disk = zip(*(_exported_and_copied(stand, on_disk=True) for _ in range(stand.repeats)), strict=True)
    read = median_seconds(lambda: _read_what_is_exported(lake), stand.repeats)
    reading = Peer("pyarrow", "pyarrow reading the same columns, all cores", megabytes / read)
    copying = Peer("cp -r", "cp -r", megabytes / statistics.median(copied))
    copying_on_disk = Peer("cp -r", "cp -r and sync, nothing cached", megabytes / statistics.median(copied_on_disk))
    return [
        *held_against("export", rates(megabytes, seconds), _UNIT, copying, reading, target="half of cp -r"),
        *held_against("export from disk to disk", rates(megabytes, on_disk), _UNIT, copying_on_disk, target="half of cp -r"),
    ]


def _exported_and_copied(stand: Stand, *, on_disk: bool = False) -> tuple[float, float]:
    """Seconds of an export of the lake and of a copy of the store; `on_disk`, with nothing cached before, and all written after."""
    out, copy = stand.folder / "exported", stand.folder / "copied"

    def export() -> None:
        with temporary_settings(stand.spark, INTERPRETED_PLANS):  # as the command has them
            export_store(OpenedBroker(Lake(stand.spark, str(stand.lake)), BROKER), str(out), run_id="bench", progress=lambda _: None)

    def taken(source: Path, made: Path, work: Callable[[], object]) -> float:
        if on_disk:
            _forget(source)
        seconds = timed(work)
        if on_disk:
            seconds += timed(os.sync)
        shutil.rmtree(made)
        return seconds

    return taken(stand.lake, out, export), taken(stand.store, copy, lambda: subprocess.run(["cp", "-r", stand.store, copy], check=True))


def _forget(folder: Path) -> None:
    """Have the system drop what it keeps of files in memory."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read_what_is_exported(lake: Path) -> None:
    assert read_columns(lake, t.COMMIT_LOG.name, RECORD_COLUMNS) > 0
    assert read_columns(lake, t.CONSUME_QUEUE_SEGMENT.name, ["firstQueueOffset", "fileFirstOffset", "entryCount", "entries"]) > 0
