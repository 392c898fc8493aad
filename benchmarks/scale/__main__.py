"""Run the scale measures, which may take hours, and keep their figures as JSON.

Example: python -m benchmarks.scale --only curve && python -m benchmarks.scale.page
On a local S3 server: python -m tests.runs.s3_server python -m benchmarks.scale --only "executors on S3"
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from benchmarks.scale.cases import CASES, Row, measured
from benchmarks.scale.kept_figures import FIGURES, read_figures, write_figures


@click.command(epilog="\b\nExample:\n  python -m benchmarks.scale --only curve --only skew")
@click.option("--only", type=click.Choice(list(CASES)), multiple=True, help="Only these cases; figures of others stay.  [default: all]")
@click.option("--at", multiple=True, metavar="X", help="Only these points of the cases, such as 10 of curve.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), default=FIGURES, show_default=True, help="File of the figures.")
@click.option(
    "--s3", default="s3://lakes/scale", show_default=True, metavar="URI", help="Folder on S3 for the case that needs one; emptied."
)
@click.option("--point", nargs=2, hidden=True, help="Measure one point in this process, and write its rows to --out.")
@click.option("--seconds", type=int, default=1800, show_default=True, help="How long one point may take.")
def main(only: tuple[str, ...], at: tuple[str, ...], out: Path, s3: str, point: tuple[str, str] | None, seconds: int) -> None:
    """Measure what grows: entries, queues, skew, filters, sizes of messages, executors."""
    if point:
        with tempfile.TemporaryDirectory(prefix="pullsim-scale-") as folder:
            write_figures(out, measured(*point, Path(folder), s3))
        return
    for case in only or tuple(CASES):
        for x in CASES[case][1]:
            if not at or x in at:
                click.echo(f"{case} {x}", err=True)
                found = _rows_of(case, x, s3, seconds)
                write_figures(out, [*(row for row in read_figures(out) if (row.case, row.x) != (case, x)), *found])


def _rows_of(case: str, x: str, s3: str, seconds: int) -> list[Row]:
    """What a process of its own finds of one point, or that it took too long, or failed."""
    with tempfile.TemporaryDirectory(prefix="pullsim-scale-") as folder:
        rows = Path(folder) / "rows.json"
        words = [sys.executable, "-m", "benchmarks.scale", "--point", case, x, "--s3", s3, "--out", str(rows)]
        with subprocess.Popen(words, start_new_session=True, env=os.environ | {"TMPDIR": folder}) as process:
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return [Row(case, x, "cut", seconds, "s")]
        return read_figures(rows) if process.returncode == 0 else [Row(case, x, "failed", process.returncode, "exit code")]


if __name__ == "__main__":
    main()
