"""Run the benchmarks: a table on stdout, and the figures as JSON.

Example: python -m benchmarks --quick --json figures.json
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks import measures as m
from benchmarks.capture_measures import measure_capture
from benchmarks.frame_measures import measure_frames
from benchmarks.generating import MESSAGES as GENERATED
from benchmarks.generating import measure_generate
from benchmarks.lag_measures import measure_lag
from benchmarks.simulation_measures import measure_simulation
from benchmarks.store_measures import measure_export, measure_verify
from benchmarks.stream_measures import measure_stream
from benchmarks.synthetic_store import Shape, write_store
from pipeline.session import build_session

MESSAGES, REQUESTS = 5_000_000, 1_000_000
CAPTURED_MEGABYTES = 1000
STREAMED = 200
LAGGING = 1_000_000
QUICK = 10
# name, TAG filter, read each queue from its start
REPLAYS = (
    ("replay random", None, False),
    ("replay sequential", None, True),
    ("replay TAG 1 in 10", "TagC", False),
    ("replay TAG none", "TagNone", False),
)
# the same messages by an expression
SQL92, SAME_BY_TAG = "TAGS = 'TagC'", "replay TAG 1 in 10"


@click.command(epilog="\b\nExample:\n  python -m benchmarks --quick --only replay --json figures.json")
@click.option("--quick", is_flag=True, help="A tenth of the size.")
@click.option("--only", metavar="NAME", help="Only measures whose name begins so (the import runs anyway).")
@click.option("--json", "out", type=click.Path(dir_okay=False), help="File for the figures.")
def main(quick: bool, only: str | None, out: str | None) -> None:
    """Measure import and replay, each against a peer in the same run."""
    scale = QUICK if quick else 1
    shape = Shape(messages=MESSAGES // scale, log_file_bytes=(256 << 20) // scale)
    count = REQUESTS // scale
    folder = Path(tempfile.mkdtemp(prefix="pullsim-bench-"))
    store, lake = folder / "store", folder / "lake"
    try:
        figures = measure_generate(folder, GENERATED // scale)
        write_store(store, shape)
        spark = build_session()
        spark.range(1).count()
        figures += m.measure_import(spark, store, lake, shape)
        for name, expression, sequential in REPLAYS:
            if only is None or name.startswith(only):
                figures += m.measure_replay(spark, lake, shape, count, name=name, expression=expression, sequential=sequential)
        by_tag = next((figure for figure in figures if figure.name == SAME_BY_TAG), None)
        if by_tag is not None:
            figures += m.measure_expressions(spark, lake, shape, count, expression=SQL92, by_tag=by_tag)
        if only is None or only == "stream":
            figures += measure_stream(spark, folder, lake, shape, STREAMED // scale)
        if only is None or only == "lag":
            figures += measure_lag(spark, folder, LAGGING // scale)
        if only is None or only == "verify":
            figures += measure_verify(spark, store, shape)
        if only is None or only == "export":
            figures += measure_export(spark, store, lake, shape)
        if only is None or only.startswith("capture"):
            figures += measure_capture(spark, folder, CAPTURED_MEGABYTES // scale)
        if only is None or "simulate".startswith(only):
            figures += measure_simulation(spark, scale)
        spark.stop()
        if only is None or "frames".startswith(only):
            figures += measure_frames(400 // scale)
    finally:
        shutil.rmtree(folder)
    _show(figures)
    if out:
        Path(out).write_text(json.dumps([figure.as_dict() for figure in figures], indent=2) + "\n", "utf-8")


def _show(figures: list[m.Figure]) -> None:
    table = Table("name", "value", "unit", "peer", "ratio", "target")
    for figure in figures:
        ratio = "" if figure.ratio is None else f"{figure.ratio:.3f}"
        table.add_row(figure.name, f"{figure.value:,.1f}", figure.unit, figure.peer, ratio, figure.target)
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
