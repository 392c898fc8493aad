"""The answers that a stream left in pull_response."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pipeline.lake.lake import Lake
from pipeline.schema import tables as t


def answers(spark: SparkSession, lake: Path, run: str) -> list[tuple[Any, ...]]:
    rows = Lake(spark, str(lake)).table(t.PULL_RESPONSE).where(f"runId = '{run}'").drop("runId").collect()
    return sorted((tuple(row) for row in rows), key=repr)


def answered(spark: SparkSession, lake: Path, run: str) -> list[dict[str, Any]]:
    rows = Lake(spark, str(lake)).table(t.PULL_RESPONSE).where(f"runId = '{run}'").drop("runId").collect()
    return [row.asDict(recursive=True) for row in rows]
