"""Reads the answers of a stream that holds pulls, and the times of the answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession

from pipeline.lake.lake import Lake
from pipeline.schema import tables as t
from tests.makers.held_store import START


def answered(spark: SparkSession, lake: Path, run: str) -> list[Row]:
    return Lake(spark, str(lake)).table(t.PULL_RESPONSE).where(f"runId = '{run}'").collect()


def told(row: Row) -> tuple[Any, ...]:
    woken = None if row["wokenMillis"] is None else row["wokenMillis"] - START
    return woken, row["status"], row["nextBeginOffset"], row["messageCount"]
