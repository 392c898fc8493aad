"""`pullsim simulate`: run each variant with each seed in a task; write the tables, and return the figures of each run."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from pipeline.lake.lake import Lake
from pipeline.lake.lake_writer import LakeWriter
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.schema.simulation_tables import SIMULATED, SIMULATED_LAG, SIMULATED_TRANSACTIONS, SIMULATION_RUN
from pipeline.schema.table import Table
from pipeline.simulation.plans import RecordedTopic, plan_of
from pipeline.simulation.recorded_messages import recorded_topic
from pipeline.simulation.scenario import GroupScenario, Variant, located, read_scenario, read_variant
from pipeline.simulation.simulation_rows import SCHEMA_DDL, TABLE_COLUMN, SimulationRun, rows_of
from pipeline.tasks.computed_once import kept

_OF_ALL = {"given", "scenario", "runId"}  # columns that tasks do not fill
_MOST_POINTS = 600  # points of a line in the picture
_TOLD = (SIMULATION_RUN, SIMULATED_TRANSACTIONS)  # tables with a row for each run, which the summary shows


@dataclass(frozen=True, slots=True)
class Simulated:
    """The figures of all runs.

    `runs` are rows of simulation_run, by variant and seed; `lag` has (variant, ms, lag) of the first seed of each variant; `transactions`
    are rows of simulated_transactions, in no order, none if the scenario has no transactions.
    """

    run_id: str
    runs: list[Row]
    lag: list[tuple[int, int, int]]
    transactions: list[Row]


def run_simulate(
    lake: Lake,
    text: str,
    where: str,
    varied: Sequence[str],
    *,
    seeds: int,
    broker: str | None,
    run_id: str,
    now: Callable[[], dt.datetime],
    progress: Callable[[str], None],
) -> Simulated:
    """Simulate each variant with `seeds` seeds, from the variant's own seed on; write the tables and return the figures.

    `text` and `where` are the scenario file's text and path. The lake has the recorded messages of `broker`, which is None if the lake has
    only one broker.

    Raises:
        ScenarioError: the scenario is invalid, or contradicts the lake.
        LakeError: the scenario needs recorded messages and the lake has no broker, or another run is writing.
    """
    variants = read_scenario(text, where, varied)
    with located(where, text):
        topics = _recorded_topics(lake, variants, broker, where)
        plans = [plan_of(one.scenario, one.scenario.seed, where, _of(topics, one.scenario)) for one in variants]
    progress(f"simulating: {len(variants):,} variant(s), {seeds:,} seed(s) each")
    spark = lake.spark
    simulations, count = _Simulations(text, where, tuple(varied), seeds, topics), len(variants) * seeds
    with kept(spark.range(0, count, 1, count).mapInArrow(simulations.rows, SCHEMA_DDL)) as rows:
        writer = LakeWriter(lake, run_id=run_id, what="simulate", broker=plans[0].brokers[0] or "")
        tables = [one for one in SIMULATED if one is not SIMULATED_TRANSACTIONS or any(two.scenario.transactions for two in variants)]
        own = {one.name: [name for name in one.names if name not in _OF_ALL] for one in tables}
        told = {one.name: _rows(rows, one).select(*own[one.name]).collect() for one in tables if one in _TOLD}
        progress("writing")
        given = {variant.number: dict(variant.given) for variant in variants}
        known = spark.createDataFrame(list(given.items()), "variant INT, given MAP<STRING, STRING>")
        for table in tables:
            writer.prepare(table)
            mine = _rows(rows, table).withColumn("runId", F.lit(run_id))
            if table is SIMULATION_RUN:
                mine = mine.drop("given", "scenario").join(F.broadcast(known), "variant").withColumn("scenario", F.lit(text))
            writer.append(table, mine)
        writer.commit(now())
        lag = _lag_lines(rows)
    runs = sorted(told[SIMULATION_RUN.name], key=lambda row: (row["variant"], row["seed"]))
    return Simulated(run_id, runs, lag, told.get(SIMULATED_TRANSACTIONS.name, []))


def _rows(rows: DataFrame, table: Table) -> DataFrame:
    return rows.where(F.col(TABLE_COLUMN) == table.name)


# fields of a scenario that its recorded messages depend on: group, topic, subscription, start of the simulation
_Asked = tuple[str, str, str, int | None]


def _asked(scenario: GroupScenario) -> _Asked:
    return scenario.group, scenario.topic, scenario.subscription, scenario.messages.begins


def _of(topics: Mapping[_Asked, RecordedTopic], scenario: GroupScenario) -> RecordedTopic | None:
    return topics[_asked(scenario)] if scenario.messages.recorded else None


def _recorded_topics(lake: Lake, variants: Sequence[Variant], broker: str | None, where: str) -> dict[_Asked, RecordedTopic]:
    """Return the recorded messages of each topic, read once for all variants with the same fields."""
    topics: dict[_Asked, RecordedTopic] = {}
    for scenario in (variant.scenario for variant in variants):
        if scenario.messages.recorded and _asked(scenario) not in topics:
            topics[_asked(scenario)] = recorded_topic(OpenedBroker(lake, lake.require().broker(broker)), scenario, where)
    return topics


@dataclass(frozen=True, slots=True)
class _Simulations:
    """The input of all runs. A task makes the plan of its own run, because the plans of all runs together may be large."""

    text: str
    where: str
    varied: tuple[str, ...]
    seeds: int
    topics: Mapping[_Asked, RecordedTopic]

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the runs with the numbers in batches."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from rows_of(self.run(number))

    def run(self, number: int) -> SimulationRun:
        """Return the run with a number; runs are numbered by variant, then by seed."""
        variant, seed = divmod(number, self.seeds)
        scenario = read_variant(self.text, self.where, self.varied, variant).scenario
        recorded = _of(self.topics, scenario)
        plan = plan_of(scenario, scenario.seed + seed, self.where, recorded)
        return SimulationRun(variant, plan.seed, plan, recorded.begins if recorded else None)


def _lag_lines(rows: DataFrame) -> list[tuple[int, int, int]]:
    """Return (variant, ms, lag) of the topic over time, reduced to _MOST_POINTS points a variant."""
    looks = _rows(rows, SIMULATED_LAG).where(~F.col("topic").startswith("%RETRY%"))
    first = looks.groupBy("variant").agg(F.min("seed").alias("seed"), F.max("atMillis").alias("ended"))
    binned = looks.join(F.broadcast(first), ["variant", "seed"]).groupBy("variant", "atMillis", "ended").agg(F.sum("lag").alias("lag"))
    bin_of = F.floor(F.col("atMillis") * _MOST_POINTS / (F.col("ended") + 1))
    thin = binned.groupBy("variant", bin_of.alias("bin")).agg(F.min("atMillis").alias("at"), F.max("lag").alias("lag"))
    return sorted((row["variant"], row["at"], row["lag"]) for row in thin.collect())
