"""Runs several commands of pullsim at the same time, in one session of one process. The argument is a JSON list of their arguments.

A kill of the process kills all commands. A process takes long to start, so many streams in one process are killed as cheaply as one.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pipeline.commands import import_commands, stream_commands
from pipeline.commands.engine import Engine
from pipeline.lake.session import INTERPRETED_PLANS, SHORT_JOBS, build_session
from pipeline.main import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEGUN, ENDED = "has begun", "ended with exit code"
# Spark gives a Python process ten seconds to begin; many at once take longer
_BEGINS_SECONDS_MAX = 15


def run_at_once(commands: list[list[str]]) -> None:
    """Run the commands until all have ended; stderr names each that ended."""
    spark = build_session(master="local[2]", conf=SHORT_JOBS | INTERPRETED_PLANS | {"spark.sql.shuffle.partitions": "2"})

    @contextmanager
    def same_session(_engine: Engine, *_: object, **__: object) -> Iterator[SparkSession]:
        yield spark

    @contextmanager
    def never_told() -> Iterator[threading.Event]:  # signals reach the first thread only
        yield threading.Event()

    Engine.session = same_session  # type: ignore[assignment, method-assign]
    stream_commands.told_to_stop = import_commands.told_to_stop = never_told  # type: ignore[attr-defined]

    def told(number: int, command: list[str]) -> None:
        print(f"command {number} {ENDED} {run(command)}", file=sys.stderr, flush=True)

    threads = [threading.Thread(target=told, args=numbered) for numbered in enumerate(commands)]
    for number, thread in enumerate(threads):
        thread.start()
        await_queries(spark, number + 1)
        print(f"command {number} {BEGUN}", file=sys.stderr, flush=True)
    for thread in threads:
        thread.join()


def await_queries(spark: SparkSession, count: int) -> None:
    """Wait until `count` queries have opened their sources, or some seconds have passed."""
    until = time.monotonic() + _BEGINS_SECONDS_MAX
    while time.monotonic() < until:
        begun = [query for query in spark.streams.active if "nitializing" not in query.status["message"]]
        if len(begun) >= count:
            return
        time.sleep(0.2)


if __name__ == "__main__":
    run_at_once(json.loads(sys.argv[1]))
