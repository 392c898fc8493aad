"""What reaches the terminal: results on stdout, progress on stderr."""

from __future__ import annotations

import csv
import datetime as dt
import json
import math
import os
import re
import shutil
import sys
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any

import click
from rich.cells import cell_len

from store_format.errors import printable, without_credentials

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pipeline.replay.replay_run import Replayed

_TABLE_ROWS = 10_000
# a terminal shows a header in bold
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
# values of TERM for terminals without bold, and without a cursor that goes back
WITHOUT_CURSOR = {"dumb", "unknown"}
_LINE_START = "\r\x1b[K"
_STATUS = threading.Lock()
# texts that spreadsheets take for formulas begin with one of these; names of topics and groups may begin with a hyphen, and run nothing
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_TOPIC_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
_NUMBER = re.compile(r"-?[\d,]*\.?\d+|NULL|")


class ReaderGoneError(Exception):
    """The reader of the results, such as `head`, has closed the pipe."""


class _Results:
    """Standard output, as a file of text."""

    def write(self, text: str) -> None:
        try:
            with _STATUS:
                _remove_status()
                sys.stdout.write(text)
                sys.stdout.flush()
        except BrokenPipeError:
            raise ReaderGoneError from None


def is_terminal() -> bool:
    """Whether people read the results on a terminal; else a pipe or a file takes them."""
    return sys.stdout.isatty()


def say(text: str) -> None:
    """Print a line of results."""
    _Results().write(text + "\n")


def say_json(value: Any) -> None:
    """Print a value as a line of JSON; on a terminal, a line that is not printable is in ASCII, with escapes."""
    text = json.dumps(value, ensure_ascii=False)
    # JSON leaves DEL as it is
    say(json.dumps(value).replace("\x7f", "\\u007f") if is_terminal() and not text.isprintable() else text)


def start_page(text: str) -> None:
    """Print the first line of a new page of results; a terminal is cleared before it, other outputs get an empty line."""
    click.clear()
    say(text if is_terminal() else f"\n{text}")


def progress_to_stderr(text: str) -> None:
    """Print a step of the work to stderr."""
    with _STATUS:
        _remove_status()
        sys.stderr.write(f"pullsim: {safe_text(without_credentials(text))}\n")
        sys.stderr.flush()


class _Status:
    """Whether the last line of the terminal has a status."""

    is_shown = False


def show_status(text: str) -> None:
    """Show a text in the last line of the terminal of stderr, in place of the text before, until something is printed."""
    try:
        width = os.get_terminal_size(sys.stderr.fileno()).columns - 1
    except OSError:
        width = shutil.get_terminal_size().columns - 1
    with _STATUS:
        sys.stderr.write(f"{_LINE_START}{safe_text(text)[:width]}")
        sys.stderr.flush()
        _Status.is_shown = True


def hide_status() -> None:
    """Remove the text of `show_status`."""
    with _STATUS:
        _remove_status()


def _remove_status() -> None:
    if _Status.is_shown:
        sys.stderr.write(_LINE_START)
        sys.stderr.flush()
        _Status.is_shown = False


def show_rows(rows: DataFrame, form: str) -> None:
    """Print rows as a table, as JSON lines or as CSV with a header line; the rows stream, only a table is held."""
    if form != "table":
        show_values(rows.columns, rows.toLocalIterator(), form)
        return
    _show_first(rows.columns, rows.limit(_TABLE_ROWS + 1).collect())


def show_streamed(names: Sequence[str], rows: Iterator[Sequence[Any]], form: str) -> None:
    """Print rows that come one by one as `show_rows` does."""
    if form == "table":
        _show_first(names, list(islice(rows, _TABLE_ROWS + 1)))
    else:
        show_values(names, rows, form)


def _show_first(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    show_table(names, rows[:_TABLE_ROWS])
    if len(rows) > _TABLE_ROWS:
        progress_to_stderr(f"the first {_TABLE_ROWS:,} rows; --format csv or json gives all")


def show_values(names: Sequence[str], rows: Iterable[Sequence[Any]], form: str) -> None:
    """Print rows that are at hand in one of the forms of `show_rows`."""
    if form == "csv":
        shown = _csv_value_on_terminal if is_terminal() else _csv_value
        writer = csv.writer(_Results(), lineterminator="\n")
        writer.writerow(map(safe_text, names) if is_terminal() else names)
        writer.writerows([shown(value) for value in row] for row in rows)
    elif form == "json":
        for row in rows:
            say_json(_as_json(dict(zip(names, row, strict=True))))
    else:
        show_table(names, list(rows))


def _csv_value(value: Any) -> Any:
    """Return a value as CSV shows it; a text that a spreadsheet would run as a formula gets an apostrophe before it."""
    shown = "" if value is None else _plain(value)
    return f"'{shown}" if isinstance(shown, str) and shown.startswith(_FORMULA) and not _TOPIC_NAME.fullmatch(shown) else shown


def _csv_value_on_terminal(value: Any) -> Any:
    """The value of `_csv_value`, with an escape in place of what a terminal would take as a command."""
    shown = _csv_value(value)
    return safe_text(shown) if isinstance(shown, str) else shown


def show_table(names: Sequence[str], rows: Sequence[Sequence[Any]], *, right: Collection[int] | None = None) -> None:
    """Print rows as a table; arguments are those of `table_text`."""
    in_colours = is_terminal() and os.environ.get("TERM", "") not in WITHOUT_CURSOR
    _Results().write(table_text(names, rows, right=right, in_colours=in_colours))


def table_text(
    names: Sequence[str], rows: Sequence[Sequence[Any]], *, right: Collection[int] | None = None, in_colours: bool = False
) -> str:
    """Rows as a table; what a terminal would take as a command is shown as an escape.

    Args:
        names: headers of the columns.
        rows: their values.
        right: places of the columns that are aligned to the right; None for those that have numbers only.
        in_colours: whether the header is bold, as a terminal shows it.
    """
    # not rich's tables, which take 0.6 ms a row
    shown = [[value_text(value) for value in row] for row in rows]
    if right is None:
        right = {column for column in range(len(names)) if shown and all(_NUMBER.fullmatch(row[column]) for row in shown)}
    header, body = _lines_of([[safe_text(name) for name in names]]), _lines_of(shown)
    columns = [_padded(column, to_right=place in right) for place, column in enumerate(zip(*header, *body, strict=True))]
    lines = ["  ".join(cells) for cells in zip(*columns, strict=True)]
    if in_colours:
        lines[: len(header)] = [f"{_BOLD}{line}{_PLAIN}" for line in lines[: len(header)]]
    return "".join(f"{line}\n" for line in lines)


def _lines_of(rows: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Return the cells of each line; a row takes as many lines as its tallest cell."""
    return [line for row in rows for line in zip_longest(*(cell.split("\n") for cell in row), fillvalue="")]


def _padded(cells: Sequence[str], *, to_right: bool) -> list[str]:
    """Cells of one column, all as wide as the widest."""
    widths = [len(cell) if cell.isascii() else cell_len(cell) for cell in cells]
    most = max(widths)
    if to_right:
        return [" " * (most - width) + cell for cell, width in zip(cells, widths, strict=True)]
    return [cell + " " * (most - width) for cell, width in zip(cells, widths, strict=True)]


def safe_text(text: str) -> str:
    """A text of one or more lines, with an escape in place of what a terminal would take as a command."""
    if text.isprintable():
        return text
    return "\n".join(map(printable, text.replace("\t", "    ").split("\n")))


def wrapped(text: str, width: int, *, indent: int) -> list[str]:
    """The lines of a text, each at most `width` columns of a terminal wide; those after the first are indented."""
    from rich.console import Console  # noqa: PLC0415 (it takes 40 ms, and few commands wrap a text)
    from rich.text import Text  # noqa: PLC0415

    console = Console(width=width)
    first = Text(text).wrap(console, width)[0].plain
    rest = text[len(first) :].lstrip()
    others = [" " * indent + line.plain for line in Text(rest).wrap(console, width - indent)] if rest else []
    return [line.rstrip() for line in (first, *others)]


def value_text(value: Any) -> str:
    """A value as a table shows it."""
    return safe_text("NULL" if value is None else str(_plain(value)))


def _plain(value: Any) -> Any:
    if isinstance(value, dict | list | tuple):
        return json.dumps(_as_json(value), ensure_ascii=False)
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dt.datetime):
        return _in_utc(value).isoformat(" ")
    return value


def _in_utc(stamp: dt.datetime) -> dt.datetime:
    """Return a TIMESTAMP in UTC; Spark gives it in the machine's zone, without naming the zone."""
    return stamp.astimezone(dt.UTC).replace(tzinfo=None)


def _as_json(value: Any) -> Any:
    """Return a value of JSON's types: structs as objects, bytes in hex, times in ISO form."""
    if hasattr(value, "asDict"):
        value = value.asDict()
    if isinstance(value, dict):
        return {name if isinstance(name, str) else str(_plain(name)): _as_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(one) for one in value]
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, dt.datetime):
        return _in_utc(value).isoformat()
    if isinstance(value, dt.date):
        return value.isoformat()
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)


def tell_replayed(done: Replayed[Any]) -> None:
    """Print what a replay did, and how its answers compare."""
    for error, count in sorted(done.unanswered.items()):
        progress_to_stderr(f"{count} of {done.requests} requests could not be answered: {error}")
    if done.out:
        progress_to_stderr(f"answers written to {done.out}")
    elif done.comparison is None:
        say(f"{done.requests} answers in pull_response, run {done.run_id}")
    if done.comparison is not None:
        for line in done.comparison.lines():
            say(line)
