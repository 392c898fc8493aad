"""Figures of measures: each has a ratio to the peers of the same run; and how figures are shown."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from rich.table import Table

REPEATS = 3  # of whatever is timed; the median counts
_HEADINGS = ("name", "value", "lowest to highest", "unit", "peer", "ratio", "target")


class Peer(NamedTuple):
    """What else does the same work, or the least that it can take.

    Attributes:
        name: short; the row of a figure is called after it.
        told: what it is.
        value: in the figure's unit, or why there is none.
        target: what the figure should reach beside it, in words.
    """

    name: str
    told: str
    value: float | str
    target: str = ""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure: the median of `runs`; `ratio` is ours over the peer's, `target` what it should reach, in words."""

    name: str
    value: float
    unit: str
    peer: str
    ratio: float | None
    target: str
    runs: tuple[float, ...]

    def as_dict(self) -> dict[str, Any]:
        """For the JSON file."""
        return asdict(self)


def held_against(name: str, runs: Iterable[float], unit: str, *peers: Peer, target: str = "") -> list[Figure]:
    """A figure a peer, or one without; the first one has the plain name, and `target` for its own."""
    found = tuple(runs)
    value = statistics.median(found)
    if not peers:
        return [Figure(name=name, value=value, unit=unit, peer="", ratio=None, target=target, runs=found)]
    figures = []
    for number, peer in enumerate(peers):
        targets = [part for part in ("" if number else target, peer.target) if part]
        figures.append(
            Figure(
                name=f"{name} against {peer.name}" if number else name,
                value=value,
                unit=unit,
                peer=f"{peer.told}: {f'not measured: {peer.value}' if isinstance(peer.value, str) else number_text(peer.value)}",
                ratio=None if isinstance(peer.value, str) else value / peer.value,
                target=", ".join(targets),
                runs=found,
            )
        )
    return figures


def timed(work: Callable[[], Any]) -> float:
    """Seconds that `work` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def timed_runs(work: Callable[[], Any], repeats: int = REPEATS) -> list[float]:
    """Seconds that `work` takes, each time."""
    return [timed(work) for _ in range(repeats)]


def median_seconds(work: Callable[[], Any], repeats: int = REPEATS) -> float:
    """Seconds that `work` takes, as a rule."""
    return statistics.median(timed_runs(work, repeats))


def rates(amount: float, seconds: Iterable[float]) -> list[float]:
    """So much of something a second."""
    return [amount / taken for taken in seconds]


def table_of(figures: Sequence[Figure]) -> Table:
    """For people to read."""
    table = Table(*_HEADINGS)
    for figure in figures:
        table.add_row(*_cells(figure))
    return table


def markdown_of(figures: Sequence[Figure]) -> str:
    """The same for a page."""
    return markdown_table(_HEADINGS, (_cells(figure) for figure in figures))


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: int = 0) -> str:
    """A table of a page; so many of its last columns are numbers, at the right."""
    lines = [headings, ("---",) * (len(headings) - numbers) + ("---:",) * numbers, *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def _cells(figure: Figure) -> tuple[str, ...]:
    spread = f"{number_text(min(figure.runs))} to {number_text(max(figure.runs))}" if len(figure.runs) > 1 else ""
    ratio = "" if figure.ratio is None else f"{figure.ratio:.3g}"
    return figure.name, number_text(figure.value), spread, figure.unit, figure.peer, ratio, figure.target


def number_text(value: float) -> str:
    """A number with three digits at least, and no more after a point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
