"""The measure of `pullsim capture`: packets to rows on Spark, with dpkt as peer, which reads the same packets on one core."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from dpkt.ethernet import Ethernet
from dpkt.pcap import Reader
from pyspark.sql import DataFrame

from benchmarks.figures import Figure, Peer, held_against, rates, timed, timed_runs
from benchmarks.made.captured_traffic import write_capture
from benchmarks.stand import Stand
from benchmarks.worker_memory import peak_worker_memory
from pipeline.capture.capture_job import captured_rows, digest_of
from pipeline.tasks.work import SparkTasks

MEGABYTES = 400
CONNECTIONS = 16
# a worker that reads a file of any size takes no more, MiB
MEMORY_TARGET = 700


def measure_capture(stand: Stand) -> list[Figure]:
    """Capture of a file, and of one of a tenth of its size: the memory of a worker is the same for both."""
    whole = MEGABYTES // stand.scale
    return _figures(stand, "capture, a tenth", whole // 10, "") + _figures(stand, "capture", whole, "50 MB/s")


def _figures(stand: Stand, name: str, megabytes: int, target: str) -> list[Figure]:
    path = stand.folder / "traffic.pcap"
    pulls = write_capture(path, megabytes, CONNECTIONS)
    size = path.stat().st_size / 1e6
    rows = captured_rows(SparkTasks(stand.spark), str(path), digest_of(str(path))).frame
    answered = rows.where("kind = 'pull' AND pull.recordedBodySha256 IS NOT NULL")
    with peak_worker_memory() as peak:
        seconds = timed_runs(partial(_must_be, pulls, answered), stand.repeats)
    peer = Peer("dpkt", "dpkt, packets only, one core", size / timed(partial(_read_with_dpkt, path)))
    path.unlink()
    memory = held_against(f"{name}, memory", [peak()], "MiB, largest worker", target=f"{MEMORY_TARGET} MiB, whatever the size")
    return held_against(name, rates(size, seconds), "MB/s", peer, target=target) + memory


def _must_be(pulls: int, rows: DataFrame) -> None:
    found = rows.count()
    assert found == pulls, f"expected {pulls} answered pulls, found {found}"


def _read_with_dpkt(path: Path) -> int:
    with path.open("rb") as file:
        return sum(len(Ethernet(packet)) for _, packet in Reader(file))
