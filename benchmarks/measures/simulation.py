"""The measures of simulations: pulls a second over a sweep of variants, compared with a pull loop on SimPy; and a day of one group."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import simpy
from pyspark.sql import SparkSession

from benchmarks.figures import Figure, Peer, held_against, timed, timed_runs
from benchmarks.stand import Stand
from pipeline.lake.lake import Lake
from pipeline.simulation.plans import plan_of
from pipeline.simulation.scenario import read_scenario
from pipeline.simulation.simulate_job import run_simulate
from udfs.simulation.outcome import simulate

SWEPT_HOURS = 0.5
_VARIANTS = "clients.count=1,2,3,4,5,6,7,8"
# a day is measured in so small a part
_DAY_PARTS = 8
_SIMPY_MESSAGES = 100_000
_QUEUES = 8
_SCENARIO = """\
group = "g"
topic = "orders"
until = "{hours}h"
[messages]
rate = 1000
queues = 8
[listener]
takes = {{ mean = "5ms" }}
fails = 0.01
[[clients]]
count = 4
"""


def measure_simulation(stand: Stand) -> list[Figure]:
    """A sweep of eight variants on all cores, and a part of a day of 1,000 messages a second on one."""
    hours, part = SWEPT_HOURS / stand.scale, _DAY_PARTS * stand.scale
    pulls_a_second = []
    for number in range(stand.repeats + 1):  # the first run compiles
        pulls, seconds = simulated_pulls(stand.spark, stand.folder / f"simulated-{number}", hours if number else 0.01)
        pulls_a_second.append(pulls / seconds)
    day = read_scenario(_SCENARIO.format(hours=24 / part), "the benchmark")[0].scenario
    days = [taken * part for taken in timed_runs(lambda: simulate(plan_of(day, 1, "the benchmark")), stand.repeats)]
    peer = Peer("SimPy", "SimPy, one core, a minimal pull loop", simpy_pulls(_SIMPY_MESSAGES))
    return [
        *held_against("simulate sweep", pulls_a_second[1:], "pulls/s", peer, target="200,000 pulls/s"),
        *held_against("simulate day", days, "s a day of 86.4 M messages", target="below 120 s"),
    ]


def simulated_pulls(spark: SparkSession, folder: Path, hours: float) -> tuple[int, float]:
    """Pulls of a sweep, and the seconds that it takes with all that the command does."""
    started = time.perf_counter()
    done = run_simulate(
        Lake(spark, str(folder / "lake")),
        _SCENARIO.format(hours=hours),
        "the benchmark",
        [_VARIANTS],
        seeds=1,
        broker=None,
        run_id=f"bench-{hours}",
        now=lambda: dt.datetime.now(dt.UTC),
        progress=lambda _: None,
    )
    return sum(run["pulls"] for run in done.runs), time.perf_counter() - started


def simpy_pulls(messages: int) -> float:
    """Pulls a second of the least that a pull loop can be on SimPy: a store a queue, a client that pulls, threads that consume."""
    environment = simpy.Environment()
    queues = [simpy.Store(environment) for _ in range(_QUEUES)]
    threads = [simpy.Resource(environment, capacity=20) for _ in range(_QUEUES // 2)]
    pulled = 0

    def produce() -> Generator[simpy.Event, Any, None]:
        for number in range(messages):
            yield environment.timeout(0.001)
            yield queues[number % _QUEUES].put(number)

    def consume(of: simpy.Resource) -> Generator[simpy.Event, Any, None]:
        with of.request() as thread:
            yield thread
            yield environment.timeout(0.005)

    def pull(queue: simpy.Store, of: simpy.Resource) -> Generator[simpy.Event, Any, None]:
        nonlocal pulled
        while True:
            yield queue.get()
            pulled += 1
            environment.process(consume(of))
            yield environment.timeout(0.0004)

    environment.process(produce())
    for number, queue in enumerate(queues):
        environment.process(pull(queue, threads[number // 2]))
    seconds = timed(lambda: environment.run(until=messages * 0.001 + 1))
    return pulled / seconds


if __name__ == "__main__":
    print(f"SimPy: {simpy_pulls(_SIMPY_MESSAGES):,.0f} pulls a second")
