"""Runs commands of pullsim one after another, in one session; the argument is a JSON list of their arguments.

The session opens S3 if one of them names it. Prints a JSON list of [exit code, stdout, stderr]. A command in a process of its own would
start Spark again.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pipeline.commands.engine import Engine
from pipeline.files.object_store import is_s3
from pipeline.lake.session import INTERPRETED_PLANS, SHORT_JOBS, build_session
from pipeline.main import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_in_turn(commands: list[list[str]]) -> list[tuple[int, str, str]]:
    """Exit code, stdout and stderr of each command."""
    s3 = any(is_s3(word) for command in commands for word in command)
    session = build_session(master="local[2]", conf=SHORT_JOBS | INTERPRETED_PLANS | {"spark.sql.shuffle.partitions": "2"}, s3=s3)

    @contextmanager
    def same_session(_engine: Engine, *_: object, **__: object) -> Iterator[SparkSession]:
        yield session

    Engine.session = same_session  # type: ignore[assignment, method-assign]
    done = []
    for command in commands:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(command)
        done.append((code, out.getvalue(), err.getvalue()))
        print(f"{code} {' '.join(command)}", file=sys.stderr, flush=True)
        session.catalog.clearCache()
    session.stop()
    return done


if __name__ == "__main__":
    print(json.dumps(run_in_turn(json.loads(sys.argv[1]))))
