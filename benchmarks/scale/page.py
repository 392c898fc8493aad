"""Generates docs/scale.md and its picture from the figures of `python -m benchmarks.scale`."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from benchmarks.figures import markdown_table
from benchmarks.scale.cases import CASES, ON_S3, Row
from benchmarks.scale.cluster_plan import cluster_plan
from benchmarks.scale.kept_figures import FIGURES, read_figures

PAGE, PICTURE = Path("docs/scale.md"), Path("docs/scale.svg")
_DRAWN = ("import", "replay", "lag query")
_TITLES = {
    "curve": ("Entries", "Millions of entries in 64 queues; a replay has a request for every five entries, at random offsets."),
    "queues": ("Queues and layouts", "Two million messages in the given number of queues."),
    "skew": (
        "One queue with nine tenths of all messages",
        "Ten million messages in 64 queues, and two million requests with the same distribution over the queues.",
    ),
    "filters": ("Different filters", "Five million entries, a million requests with the given number of different TAG filters."),
    "large": ("Large messages", "256 messages of 4 MiB."),
    "executors": ("Executors", "Five million messages, imported and replayed by the given number of executors of one core each."),
    ON_S3: (
        "Executors, with store and lake on S3",
        (
            "The same with store and lake on S3, and an import of a million messages of 1 KiB (1.2 GB). The server (versitygw), the driver "
            "and the executors share two cores: four executors show that the work is done and what it holds, not how fast."
        ),
    ),
    "batches": (
        "Batches of a stream",
        "The given number of batches of ten requests, on a million entries: the time of the last 20, and the files and memory at the end.",
    ),
}
_HEAD = """\
# What grows, and how

`python -m benchmarks.scale` measures this in an hour, and writes the figures to `benchmarks/scale/figures.json`.
`python -m benchmarks.scale.page` makes this page from them. Each point is measured in its own process, on two cores and 24 GiB, with
pullsim's default settings: 4 GiB for the driver's JVM, and `local[*]` except for the executors.

Messages have bodies of 16 bytes (164 bytes in the commit log) unless the text says otherwise. Times are in seconds: of an import in a new
session, of the second run of a replay. The start of the session does not count. A worker is one of Spark's Python processes; there is one
for each core.

![Time against entries, both on logarithmic scales: import, replay and lag query](scale.svg)

The dashed lines are times in proportion to the entries.
"""


def scale_page(rows: list[Row]) -> str:
    """The text of the page; what of a cluster needs figures of all cases."""
    measured = [case for case in CASES if any(row.case == case for row in rows)]
    sections = [_section(case, [row for row in rows if row.case == case]) for case in measured]
    return "\n".join([_HEAD, *sections, *([cluster_plan(rows)] if len(measured) == len(CASES) else [])])


def _section(case: str, rows: list[Row]) -> str:
    """A table: a line a point, a column a series."""
    title, told = _TITLES[case]
    series = list(dict.fromkeys(row.series for row in rows if row.series not in {"cut", "failed"}))
    units = {row.series: row.unit for row in rows}
    known = {(row.x, row.series): row for row in rows}
    heads = [f"{name}, {units[name]}" for name in series]
    lines = []
    for x in CASES[case][1]:
        if (x, "cut") in known:
            lines.append([x, f"cut after {known[x, 'cut'].value:,.0f} s", *[""] * (len(heads) - 1)])
        elif any(row.x == x for row in rows):
            lines.append([x, *(_number(known.get((x, name))) for name in series)])
    return f"## {title}\n\n{told}\n\n" + markdown_table(["", *heads], lines)


def _number(row: Row | None) -> str:
    if row is None:
        return ""
    return f"{row.value:,.1f}" if row.unit == "s" else f"{row.value:,.0f}"


def draw(rows: list[Row], path: Path) -> None:
    """The curve as SVG."""
    with mpl.rc_context({"svg.hashsalt": "pullsim", "svg.fonttype": "none", "font.size": 11}):
        figure = Figure(figsize=(8, 4.2), layout="constrained")
        axes = figure.add_subplot()
        for number, name in enumerate(_DRAWN):
            points = sorted((int(row.x), row.value) for row in rows if row.case == "curve" and row.series == name)
            if points:
                xs, ys = zip(*points, strict=True)
                axes.plot(xs, ys, marker="o", color=f"C{number}", label=name)
                axes.plot(xs, [ys[-1] * x / xs[-1] for x in xs], linestyle="--", linewidth=0.8, color=f"C{number}")
        axes.set(xscale="log", yscale="log", xlabel="millions of entries", ylabel="seconds")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.grid(visible=True, linewidth=0.4)
        axes.legend(frameon=False)
        figure.savefig(path, format="svg", metadata={"Date": None})


if __name__ == "__main__":
    found = read_figures(FIGURES)
    PAGE.write_text(scale_page(found), "utf-8")
    draw(found, PICTURE)
