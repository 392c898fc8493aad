"""Runs that each commit a row of replay_run to a lake, without Spark; arguments: lake, name of the runs, their number."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from pipeline.lake.lake import Lake
from pipeline.lake.lake_writer import LakeWriter
from pipeline.schema.arrow_types import arrow_schema
from pipeline.schema.tables import REPLAY_RUN
from tests.runs.replaying import NOON

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def commit_runs(root: str, name: str, count: int) -> None:
    for number in range(count):
        lake = Lake(cast("SparkSession", None), root)
        run_id = f"{name}{number}"
        writer = LakeWriter(lake, run_id=run_id, what="replay", broker="b")
        writer.prepare(REPLAY_RUN)
        row = {"brokerName": "b", "runId": run_id, "source": "", "settings": [], "at": "snapshot", "lakeVersion": 0, "startedAt": NOON}
        writer.append(REPLAY_RUN, pa.Table.from_pylist([row], arrow_schema(REPLAY_RUN)))
        writer.commit(NOON)


if __name__ == "__main__":
    commit_runs(sys.argv[1], sys.argv[2], int(sys.argv[3]))
