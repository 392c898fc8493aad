"""`pullsim simulate`: every variant with every seed is a task; what they yield becomes tables, and a row of figures for each variant."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from pipeline.lake import Lake
from pipeline.lake_writer import LakeWriter
from pipeline.simulation.plans import RecordedTopic, plan_of
from pipeline.simulation.recorded_messages import recorded_topic
from pipeline.simulation.scenario import Variant
from pipeline.simulation.simulation_rows import SCHEMA_DDL, TABLE_COLUMN, Run, rows_of
from pipeline.simulation.simulation_tables import SIMULATED, SIMULATED_LAG, SIMULATION_RUN

_MOST_POINTS = 600  # of a line in a picture


@dataclass(frozen=True, slots=True)
class Simulated:
    """What was simulated: rows of simulation_run by variant and seed, and (variant, ms, lag) of the first seed of each variant."""

    run_id: str
    runs: list[Row]
    lag: list[tuple[int, int, int]]


def run_simulate(
    lake: Lake,
    variants: Sequence[Variant],
    *,
    seeds: int,
    broker: str | None,
    where: str,
    text: str,
    run_id: str,
    now: Callable[[], dt.datetime],
    progress: Callable[[str], None],
) -> Simulated:
    """Simulate each variant with `seeds` seeds, from its own one on.

    Args:
        lake: that has recorded messages, and gets the tables.
        variants: of a scenario.
        seeds: how many of each.
        broker: whose messages are recorded; None where the lake holds one only.
        where: the scenario's file, for errors.
        text: of the scenario's file.
        run_id: of this run.
        now: the wall clock.
        progress: is told of the work.

    Raises:
        ScenarioError: a scenario that does not go with the lake.
        LakeError: recorded messages of a lake without brokers, or another run is writing.
    """
    runs = list(_runs(lake, variants, seeds, broker, where))
    progress(f"simulating: {len(variants):,} variant(s), {seeds:,} seed(s) each")
    spark = lake.spark
    rows = spark.range(0, len(runs), 1, len(runs)).mapInArrow(partial(_simulated, runs), SCHEMA_DDL).persist()
    try:
        writer = LakeWriter(lake, run_id=run_id, what="simulate", broker=runs[0].plan.brokers[0] or "")
        told = rows.where(F.col(TABLE_COLUMN) == SIMULATION_RUN.name).select(*_own(SIMULATION_RUN.names)).collect()
        progress("writing")
        given = {variant.number: dict(variant.given) for variant in variants}
        known = spark.createDataFrame(list(given.items()), "variant INT, given MAP<STRING, STRING>")
        for table in SIMULATED:
            writer.prepare(table)
            mine = rows.where(F.col(TABLE_COLUMN) == table.name).withColumn("runId", F.lit(run_id))
            if table is SIMULATION_RUN:
                mine = mine.drop("given", "scenario").join(F.broadcast(known), "variant").withColumn("scenario", F.lit(text))
            writer.append(table, mine)
        writer.commit(now())
        lag = _lag_lines(rows)
    finally:
        rows.unpersist()
    return Simulated(run_id, sorted(told, key=lambda row: (row["variant"], row["seed"])), lag)


def _own(names: Sequence[str]) -> list[str]:
    return [name for name in names if name not in {"given", "scenario", "runId"}]


def _runs(lake: Lake, variants: Sequence[Variant], seeds: int, broker: str | None, where: str) -> Iterator[Run]:
    """Every run; recorded messages are read once for all variants that ask the same of them."""
    topics: dict[tuple[str, str, str, int | None], RecordedTopic] = {}
    for variant in variants:
        scenario, recorded = variant.scenario, None
        if scenario.messages.recorded:
            asked = (scenario.group, scenario.topic, scenario.subscription, scenario.messages.begins)
            if asked not in topics:
                topics[asked] = recorded_topic(lake, lake.require().broker(broker), scenario, where)
            recorded = topics[asked]
        for number in range(seeds):
            seed = scenario.seed + number
            yield Run(variant.number, seed, plan_of(scenario, seed, where, recorded), recorded.begins if recorded else None)


def _simulated(runs: Sequence[Run], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from rows_of(runs[number])


def _lag_lines(rows: DataFrame) -> list[tuple[int, int, int]]:
    """Lag of the topic over time, thinned to what a picture can show."""
    looks = rows.where((F.col(TABLE_COLUMN) == SIMULATED_LAG.name) & ~F.col("topic").startswith("%RETRY%"))
    first = looks.groupBy("variant").agg(F.min("seed").alias("seed"), F.max("atMillis").alias("ended"))
    binned = looks.join(F.broadcast(first), ["variant", "seed"]).groupBy("variant", "atMillis", "ended").agg(F.sum("lag").alias("lag"))
    bin_of = F.floor(F.col("atMillis") * _MOST_POINTS / (F.col("ended") + 1))
    thin = binned.groupBy("variant", bin_of.alias("bin")).agg(F.min("atMillis").alias("at"), F.max("lag").alias("lag"))
    return sorted((row["variant"], row["at"], row["lag"]) for row in thin.collect())
