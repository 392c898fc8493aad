"""What reaches the terminal: results on stdout, progress on stderr."""

from __future__ import annotations

import csv
import datetime as dt
import json
import math
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pipeline.answers import Comparison

# wider than any row: a value that is cut is no result, and a terminal wraps by itself
_WIDTH = 1 << 24
_NUMBER = re.compile(r"-?[\d,]*\.?\d+|NULL|")


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
            say(json.dumps(_as_json(row), ensure_ascii=False))
    else:
        show_table(names, rows.collect())


def show_table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows as a table, columns of numbers to the right."""
    shown = [[_shown(value) for value in row] for row in rows]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, name in enumerate(names):
        numeric = shown and all(_NUMBER.fullmatch(row[column]) for row in shown)
        table.add_column(name, justify="right" if numeric else "left", no_wrap=True)
    for row in shown:
        table.add_row(*row)
    Console(file=sys.stdout, width=_WIDTH, highlight=False, markup=False, soft_wrap=False).print(table)


def _shown(value: Any) -> str:
    return "NULL" if value is None else str(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, dict | list | tuple):
        return json.dumps(_as_json(value), ensure_ascii=False)
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, bool):
        return str(value).lower()
    return value


def _as_json(value: Any) -> Any:
    """A value as JSON can say it: structs with the names of their fields, bytes in hex, times in ISO form."""
    if hasattr(value, "asDict"):
        value = value.asDict()
    if isinstance(value, dict):
        return {name if isinstance(name, str) else str(_plain(name)): _as_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(one) for one in value]
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, dt.datetime | dt.date):
        return value.isoformat()
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
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
