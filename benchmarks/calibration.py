"""Generates docs/calibration.md and its picture: the distributions of times of captured groups and of the same groups simulated.

What is drawn is compared by eye and asserted by nothing: a simulated machine has no scheduler, no garbage collector and no other load.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from benchmarks.captured_groups import BROADCAST, GOLDEN, LISTENER_MICROS, MAIN, ORDER, CapturedGroups, Group, unpack_told
from benchmarks.figures import markdown_table, number_text
from udfs.simulation import world as at
from udfs.simulation.arrivals import ALL_MATCH
from udfs.simulation.group_engine import WrittenRows
from udfs.simulation.group_plan import GroupPlan, Recorded
from udfs.simulation.outcome import simulate

PAGE, PICTURE = Path("docs/calibration.md"), Path("docs/calibration.svg")
CAPTURE: Final = "json"
GROUPS: Final = {"concurrent": MAIN, "orderly": ORDER, "broadcast": BROADCAST}
MEASURES: Final = {
    "between two pulls that found messages, ms": "between_pulls",
    "messages in a pull that found any": "batch_sizes",
    "from storing a message to its listener, ms": "to_listener",
}
_SHARES: Final = (50, 90, 99)
_HEAD = """\
# How near simulated times come

`python -m benchmarks.calibration` makes this page and its picture from a captured run of 75 seconds, with real clients of three groups and
a real broker on one machine. The page compares the captured groups with simulations of them, in which messages arrive, and clients start
and stop, at the captured times. No parameter is fitted: network and dispatch have the defaults of `pullsim simulate` (0.2 ms and 1 ms), and
each listener takes {listener:g} ms. The third measure leaves out messages that were stored before the clients started.

![Cumulative distributions of the three measures: captured groups as lines, simulated ones dashed](calibration.svg)

The concurrent and the orderly clients of the captured run began at offset 0, before the first message that was left. The broker then
corrects the offset. The client drops the queue for ten seconds, and gets it again at its next rebalance; simulated clients do the same.
Messages of the first quarter of a minute waited, and were pulled in full batches. Real threads add a millisecond.

The orderly clients differ. In the captured run the first client had unlocked its queues when the second one started, by a margin of
microseconds. In two other captures it had not, and the second client got the queues twenty seconds later, as in the simulation.

No test asserts that captured and simulated times are equal. *Which* messages each client gets, and the last offsets, do not depend on
times; tests compare them ([What is simulated](simulated.md)).
"""


@dataclass(frozen=True)
class Pulls:
    """Pulls that found messages: client, queue, when they were answered (microseconds), and how many messages of the group they brought."""

    answered: Sequence[tuple[str, int, int, int]]

    def between_pulls(self) -> NDArray[np.float64]:
        """ms from one to the next of the same queue by the same client."""
        times = defaultdict(list)
        for client, queue, answered, _ in self.answered:
            times[client, queue].append(answered)
        gaps = (later - before for mine in times.values() for before, later in pairwise(sorted(mine)))
        return np.array(list(gaps), np.float64) / 1000

    def batch_sizes(self) -> NDArray[np.float64]:
        """Messages of each."""
        return np.array([count for *_, count in self.answered], np.float64)


@dataclass(frozen=True)
class Run:
    """A group's run.

    Attributes:
        pulls: those that found messages.
        given: when a listener was given each message first, microseconds: (client, queue, offset) -> time.
        stored: when each message that came while it ran was stored: (queue, offset) -> time.
    """

    pulls: Pulls
    given: dict[tuple[str, int, int], int]
    stored: dict[tuple[int, int], int]

    def measure(self, name: str) -> NDArray[np.float64]:
        """One of MEASURES."""
        if name == "to_listener":
            waits = (time - self.stored[queue, offset] for (_, queue, offset), time in self.given.items() if (queue, offset) in self.stored)
            return np.array(list(waits), np.float64) / 1000
        measured: Callable[[], NDArray[np.float64]] = getattr(self.pulls, name)
        return measured()


def _first(rows: Iterable[tuple[str, int, int, int]]) -> dict[tuple[str, int, int], int]:
    found: dict[tuple[str, int, int], int] = {}
    for client, queue, offset, time in rows:
        found[client, queue, offset] = min(time, found.get((client, queue, offset), time))
    return found


def _messages(recorded: Recorded) -> Iterator[tuple[int, int, int, bool]]:
    """Queue, offset, time and whether it is the group's, of each."""
    for queue, first in enumerate(recorded.first_offset.tolist()):
        begin, end = recorded.first[queue : queue + 2].tolist()
        for row in range(begin, end):
            yield queue, first + row - begin, int(recorded.times[row]), bool(recorded.flags[row] == ALL_MATCH)


def captured_run(capture: CapturedGroups, group: Group) -> Run:
    """A group as it was captured."""
    messages = list(_messages(capture.messages(group)))
    wanted = {(queue, offset) for queue, offset, _, matches in messages if matches}
    pulls = []
    for one in capture.pulled(group):
        count = sum((one.queue, offset) in wanted for offset in one.offsets)
        if one.answered is not None and count:
            pulls.append((one.peer, one.queue, one.answered, count))
    stored = {(queue, offset): time for queue, offset, time, _ in messages if time >= 0}
    return Run(Pulls(pulls), _first(capture.given(group)), stored)


def simulated_run(plan: GroupPlan) -> Run:
    """A group simulated; an answer is where its client has it, which is as long behind its writing each time."""
    rows: list[list[int]] = []

    def tell(told: WrittenRows) -> None:
        rows.extend(row for row in told.consumed.tolist() if row[at.C_QUEUE] < len(plan.queues))

    simulate(plan, tell)
    brought = defaultdict(set)
    for row in rows:
        brought[str(row[at.C_CLIENT]), row[at.C_QUEUE], row[at.C_PULLED]].add(row[at.C_OFFSET])
    given = _first((str(row[at.C_CLIENT]), row[at.C_QUEUE], row[at.C_OFFSET], row[at.C_STARTED]) for row in rows)
    if not isinstance(plan.messages, Recorded):
        message = f"{plan.group}: expected recorded messages, found rates"
        raise TypeError(message)
    stored = {(queue, offset): time for queue, offset, time, _ in _messages(plan.messages) if time >= 0}
    return Run(Pulls([(*key, len(offsets)) for key, offsets in brought.items()]), given, stored)


Both = dict[str, tuple[Run, Run]]


def both_runs(capture: CapturedGroups) -> Both:
    """Each group, captured and simulated."""
    return {name: (captured_run(capture, group), simulated_run(capture.plan(group))) for name, group in GROUPS.items()}


def calibration_page(runs: Both) -> str:
    """The text of the page."""
    heads = ["group", "", "number", *(f"{share} %" for share in _SHARES)]
    parts = [_HEAD.format(listener=LISTENER_MICROS / 1000)]
    for title, measure in MEASURES.items():
        lines = []
        for name, pair in runs.items():
            for side, run in zip(("captured", "simulated"), pair, strict=True):
                values = run.measure(measure)
                lines.append([name, side, f"{len(values):,}", *map(number_text, np.percentile(values, _SHARES))])
        parts.append(f"## {title[0].upper()}{title[1:]}\n\n" + markdown_table(heads, lines, numbers=len(heads) - 2))
    return "\n".join(parts)


def draw(runs: Both, path: Path) -> None:
    """The distributions as SVG."""
    shares = np.linspace(0, 1, 201)
    with mpl.rc_context({"svg.hashsalt": "pullsim", "svg.fonttype": "none", "font.size": 11}):
        figure = Figure(figsize=(8, 9), layout="constrained")
        for axes, (title, measure) in zip(figure.subplots(len(MEASURES), 1), MEASURES.items(), strict=True):
            for number, (name, pair) in enumerate(runs.items()):
                for side, style, run in zip(("captured", "simulated"), ("-", "--"), pair, strict=True):
                    values = np.maximum(run.measure(measure), 0.1)  # for the axis
                    axes.plot(np.quantile(values, shares), shares, color=f"C{number}", linestyle=style, label=f"{name}, {side}")
            axes.set(xlabel=title, ylabel="share", ylim=(0, 1))
            if measure != "batch_sizes":
                axes.set_xscale("log")
                axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.grid(visible=True, linewidth=0.4)
        figure.axes[0].legend(frameon=False, fontsize=9)
        figure.savefig(path, format="svg", metadata={"Date": None})


def main() -> None:
    """Make the page and the picture.

    Raises:
        SystemExit: there is no captured run beside the project.
    """
    if not (GOLDEN / f"{CAPTURE}.tar.xz").exists():
        raise SystemExit(f"expected a captured run in {GOLDEN}, found none")
    with tempfile.TemporaryDirectory() as folder:
        runs = both_runs(CapturedGroups(unpack_told(CAPTURE, Path(folder))))
    PAGE.write_text(calibration_page(runs), "utf-8")
    draw(runs, PICTURE)


if __name__ == "__main__":
    main()
