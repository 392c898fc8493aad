"""What reaches the terminal: results on stdout, progress on stderr."""

from __future__ import annotations

import csv
import datetime as dt
import json
import sys
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pipeline.answers import Comparison

_MIN_WIDTH = 200


def say(text: str) -> None:
    """A line of result."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def progress_to_stderr(text: str) -> None:
    """A step of the work."""
    sys.stderr.write(f"pullsim: {text}\n")
    sys.stderr.flush()


def show_rows(rows: DataFrame, form: str) -> None:
    """Print rows as a table, as JSON lines or as CSV with a header line; the rows stream, only a table is held."""
    names = rows.columns
    if form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        for row in rows.toLocalIterator():
            writer.writerow(["" if value is None else _plain(value) for value in row])
    elif form == "json":
        for row in rows.toLocalIterator():
            say(json.dumps(row.asDict(recursive=True), ensure_ascii=False, default=_json_value))
    else:
        _print_table(names, [[_shown(value) for value in row] for row in rows.collect()])


def _print_table(names: list[str], rows: list[list[str]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, name in enumerate(names):
        numeric = all(row[column].lstrip("-").replace(",", "").isdigit() or row[column] in {"", "NULL"} for row in rows)
        table.add_column(name, justify="right" if numeric and rows else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    width = None if sys.stdout.isatty() else _MIN_WIDTH + sum(map(len, names))
    Console(file=sys.stdout, width=width, highlight=False, markup=False, soft_wrap=False).print(table)


def _shown(value: Any) -> str:
    return "NULL" if value is None else str(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, ensure_ascii=False, default=_json_value)
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, bool):
        return str(value).lower()
    return value


def _json_value(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, dt.datetime | dt.date):
        return value.isoformat()
    return str(value)


def show_comparison(comparison: Comparison) -> None:
    """The first differences in full, and the line with the counts."""
    for number, recorded, ours, fields in comparison.first:
        say(f"line {number} differs in {', '.join(fields)}")
        say(f"  recorded: {recorded}")
        say(f"  ours:     {ours}")
    if comparison.unrecorded:
        say(f"{comparison.unrecorded} without a recorded answer")
    for error, count in sorted(comparison.unanswered.items()):
        say(f"{count} not answered: {error}")
    say(f"{comparison.compared} compared, {comparison.differ} differ")
