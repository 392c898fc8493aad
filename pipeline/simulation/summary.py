"""Print the summary of simulations, a row for each variant, and write the picture of lag over time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from statistics import median
from typing import Any

from pyspark.sql import Row

from pipeline.files.output_file import OutputError, write_text
from pipeline.simulation.lag_picture import lag_picture
from pipeline.simulation.scenario import Variant
from pipeline.simulation.simulate_job import Simulated
from pipeline.terminal import progress_to_stderr, show_values

_FIGURES = ("maxLag", "lastLag", "duplicates", "sentBack", "deadLetters", "idleClients", "succeeded")
_OF_TRANSACTIONS = ("sent", "committed", "committedAgain", "rolledBack", "checked", "givenUp", "undecided")
_COMMIT_TIMES = {"commitSeconds50": "commitMillis50", "commitSeconds99": "commitMillis99", "commitSecondsMax": "commitMillisMax"}
_WHOLE = "the scenario"


def name_of(variant: Variant) -> str:
    """Return the name of a variant: the values that `--vary` sets in it."""
    return ", ".join(f"{name}={value}" for name, value in variant.given.items()) or _WHOLE


def summary_rows(variants: Sequence[Variant], done: Simulated) -> list[dict[str, Any]]:
    """Return a row for each variant: medians over its seeds, and the time by which all seeds had caught up, None if one had not."""
    rows = []
    for variant in variants:
        mine = [run for run in done.runs if run["variant"] == variant.number]
        caught_up = [run["caughtUpMillis"] for run in mine]
        times = [millis for millis in caught_up if millis is not None]
        row: dict[str, Any] = {"variant": variant.number, "given": name_of(variant), "seeds": len(mine)}
        row["caughtUpSeconds"] = max(times) / 1000 if len(times) == len(mine) else None
        row |= {name: int(median(run[name] for run in mine)) for name in _FIGURES}
        row["clients"] = mine[0]["clients"]
        row["endedSeconds"] = max(run["endedMillis"] for run in mine) / 1000
        row["consumedAll"] = all(run["consumedAll"] for run in mine)
        if done.transactions:
            row |= _of_transactions([run for run in done.transactions if run["variant"] == variant.number])
        rows.append(row)
    return rows


def _of_transactions(runs: Sequence[Row]) -> dict[str, Any]:
    """Return the median of each figure of transactions; the median of a time counts only runs with a commit."""
    row: dict[str, Any] = {name: int(median(run[name] for run in runs)) for name in _OF_TRANSACTIONS}
    for name, column in _COMMIT_TIMES.items():
        known = [run[column] for run in runs if run[column] is not None]
        row[name] = median(known) / 1000 if known else None
    return row


def show_summary(variants: Sequence[Variant], done: Simulated, form: str) -> None:
    """Print the rows of the summary, and report the runs that were stopped before their end."""
    rows = summary_rows(variants, done)
    show_values(list(rows[0]), [list(row.values()) for row in rows], form)
    cut = [row for row in rows if not row["consumedAll"]]
    if cut:
        progress_to_stderr(f"{len(cut)} of {len(rows)} variants were cut at `until`, with messages still to come or to be consumed")
    also = ", simulated_transactions" if done.transactions else ""
    progress_to_stderr(f"run {done.run_id}: tables simulation_run, simulated_lag, rebalance_event, consumption, dead_letter{also}")


def check_picture(path: str) -> None:
    """Raise OutputError if no picture can be written to a path."""
    folder = os.path.dirname(os.path.abspath(path))
    if not path.endswith(".svg") or not os.path.isdir(folder) or os.path.isdir(path):
        raise OutputError(f"{path}: expected a file name that ends in .svg, in an existing folder")


def write_picture(path: str, variants: Sequence[Variant], done: Simulated) -> None:
    """Write the picture of lag over time.

    Raises:
        OutputError: the file cannot be written.
    """
    lines = {name_of(one): [(at, lag) for number, at, lag in done.lag if number == one.number] for one in variants}
    question = variants[0].scenario.question or f"{variants[0].scenario.group} on {variants[0].scenario.topic}"
    write_text(path, lambda: lag_picture(question, lines))
