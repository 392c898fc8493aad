"""Run the benchmarks: a table on stdout, and the figures as JSON.

Example: python -m benchmarks --quick --json figures.json
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console

from benchmarks.figures import Figure, markdown_of, table_of
from benchmarks.made.pulls import PULLS
from benchmarks.measures.capture import measure_capture
from benchmarks.measures.engines import measure_engines
from benchmarks.measures.frames import measure_frames
from benchmarks.measures.generate import measure_generate
from benchmarks.measures.lag import measure_lag
from benchmarks.measures.replay import measure_replays
from benchmarks.measures.simulation import measure_simulation
from benchmarks.measures.store import measure_export, measure_import, measure_verify
from benchmarks.measures.stream import measure_stream
from benchmarks.measures.whole_way import measure_whole_way
from benchmarks.stand import QUICK, QUICK_REPEATS, Stand

# by what the names of their figures begin with; the replays of benchmarks.made.pulls come after them
MEASURES: dict[str, Callable[[Stand], list[Figure]]] = {
    "whole": measure_whole_way,
    "generate": measure_generate,
    "frames": measure_frames,
    "import": measure_import,
    "export": measure_export,
    "verify": measure_verify,
    "stream": measure_stream,
    "lag": measure_lag,
    "engines": measure_engines,
    "capture": measure_capture,
    "simulate": measure_simulation,
}
NAMES = (*MEASURES, *(pulls.name for pulls in PULLS))


def chosen(only: str | None) -> list[str]:
    """The measures whose name begins so, or else the one that gives a figure whose name begins so.

    Raises:
        click.UsageError: there is none.
    """
    found = [name for name in NAMES if only is None or name.startswith(only)]
    if not found and only:
        found = sorted((name for name in NAMES if only.startswith(name)), key=len)[-1:]
    if not found:
        raise click.UsageError(f"--only {only!r}: expected the beginning of one of {', '.join(NAMES)}")
    return found


def measured(stand: Stand, names: list[str]) -> list[Figure]:
    """The figures of measures, one after the other; how long each took goes to stderr."""
    figures = []
    for name in names:
        if name in MEASURES:
            figures += _told(name, lambda name=name: MEASURES[name](stand))  # type: ignore[misc]
    if pulls := [one for one in PULLS if one.name in names]:
        figures += _told("replay", lambda: measure_replays(stand, pulls))
    return figures


def _told(name: str, measure: Callable[[], list[Figure]]) -> list[Figure]:
    started = time.perf_counter()
    figures = measure()
    click.echo(f"{name}: done in {time.perf_counter() - started:.0f} s", err=True)
    return figures


@click.command(epilog="\b\nExample:\n  python -m benchmarks --quick --only replay --json figures.json")
@click.option("--quick", is_flag=True, help="A tenth of the size, each thing timed twice.")
@click.option("--only", metavar="NAME", help="Only measures whose name begins so, and what they need.")
@click.option("--json", "out", type=click.Path(dir_okay=False, writable=True, path_type=Path), help="File for the figures.")
@click.option("--markdown", is_flag=True, help="Print the table as Markdown, for a page.")
def main(quick: bool, only: str | None, out: Path | None, markdown: bool) -> None:
    """Measure what is to be fast, each figure against peers in the same run: two or three runs, whose median counts."""
    names = chosen(only)
    if out is not None and not os.access(out.parent, os.W_OK):
        raise click.UsageError(f"--json {out}: expected a file in a folder that can be written to, found none")
    with tempfile.TemporaryDirectory(prefix="pullsim-bench-", ignore_cleanup_errors=True) as folder:
        stand = Stand(Path(folder), QUICK, repeats=QUICK_REPEATS) if quick else Stand(Path(folder), 1)
        try:
            figures = measured(stand, names)
        finally:
            stand.close()
    if markdown:
        click.echo(markdown_of(figures), nl=False)
    else:
        Console(width=200).print(table_of(figures))
    if out is not None:
        out.write_text(json.dumps([figure.as_dict() for figure in figures], indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
