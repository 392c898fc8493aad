"""The measures of whole stores: checking one, and writing one back."""

from __future__ import annotations

import shutil
import subprocess
import zlib
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.measures import BROKER, Figure, timed
from benchmarks.synthetic_store import Shape
from pipeline.export_store import export_store
from pipeline.lake import Lake
from pipeline.settings import BrokerSettings
from pipeline.verify_store import verify_store


def measure_verify(spark: SparkSession, store: Path, shape: Shape) -> list[Figure]:
    """`pullsim verify` without the start of Spark, against the CRC-32 of all bytes of the log on one core."""

    def run() -> None:
        verified = verify_store(spark, str(store), BrokerSettings.from_sources(), lambda _: None)
        assert verified.files.count() > 0
        assert verified.findings.count() == 0

    rate = shape.log_bytes / min(timed(run) for _ in range(2)) / 1e6
    peer = shape.log_bytes / timed(lambda: _checksum(store / "commitlog")) / 1e6
    told = f"CRC-32, one core: {peer:,.0f}"
    return [Figure(name="verify", value=rate, unit="MB/s of log", peer=told, ratio=rate / peer, target="500 MB/s")]


def _checksum(folder: Path) -> None:
    for path in folder.iterdir():
        with path.open("rb", buffering=0) as file:
            crc = 0
            while block := file.read(1 << 22):
                crc = zlib.crc32(block, crc)


def measure_export(spark: SparkSession, store: Path, lake: Path, shape: Shape) -> list[Figure]:
    """`pullsim export` of the whole store without the start of Spark, against `cp -r`."""
    out, copy = lake.with_name("exported"), lake.with_name("copied")
    seconds = timed(lambda: export_store(Lake(spark, str(lake)), BROKER, str(out), run_id="bench", progress=lambda _: None))
    shutil.rmtree(out)
    peer_seconds = timed(lambda: subprocess.run(["cp", "-r", store, copy], check=True))
    shutil.rmtree(copy)
    rate, peer = (shape.log_bytes / taken / 1e6 for taken in (seconds, peer_seconds))
    return [Figure(name="export", value=rate, unit="MB/s of log", peer=f"cp -r: {peer:,.0f}", ratio=rate / peer, target="half of cp -r")]
