"""The measure of `pullsim capture`: packets to rows on Spark, with reading the same packets by dpkt on one core for a peer."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from dpkt.ethernet import Ethernet
from dpkt.pcap import Reader
from pyspark.sql import DataFrame, SparkSession

from benchmarks.captured_traffic import write_capture
from benchmarks.measures import Figure, peak_worker_memory, timed
from pipeline.capture.capture_job import captured_rows, digest_of
from pipeline.lake import Lake

CONNECTIONS = 16
# a worker that reads a file of any size takes no more, MiB
MEMORY_TARGET = 700


def measure_capture(spark: SparkSession, folder: Path, megabytes: int) -> list[Figure]:
    """Capture of so many megabytes, and of a tenth of it: the memory of a worker is the same for both."""
    figures = []
    for part, name in ((10, "capture, a tenth"), (1, "capture")):
        path = folder / "traffic.pcap"
        pulls = write_capture(path, megabytes // part, CONNECTIONS)
        size = path.stat().st_size
        lake = Lake(spark, str(folder / "capture-lake"))
        digest = digest_of(str(path))
        rows = captured_rows(lake, str(path), digest).where("kind = 'pull' AND pull.recordedBodySha256 IS NOT NULL")
        with peak_worker_memory() as peak:
            seconds = timed(partial(_must_be, pulls, rows))
        peer = size / timed(partial(_read_with_dpkt, path)) / 1e6
        rate = size / seconds / 1e6
        target = "50 MB/s" if part == 1 else ""
        figures.append(
            Figure(name=name, value=rate, unit="MB/s", peer=f"dpkt, packets only, one core: {peer:.0f}", ratio=rate / peer, target=target)
        )
        told = f"{MEMORY_TARGET} MiB, whatever the size"
        figures.append(Figure(name=f"{name}, memory", value=peak(), unit="MiB in a worker", peer="", ratio=None, target=told))
        path.unlink()
    return figures


def _must_be(pulls: int, rows: DataFrame) -> None:
    found = rows.count()
    assert found == pulls, f"expected {pulls} answered pulls, found {found}"


def _read_with_dpkt(path: Path) -> int:
    with path.open("rb") as file:
        return sum(len(Ethernet(packet)) for _, packet in Reader(file))
