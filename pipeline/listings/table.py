"""The table of a list: values as people read them, and the verdict below it, both at most 100 columns wide on a terminal.

In a pipe or a file, names and ids are never shortened, so that they can be copied: a table may then be wider.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from shlex import quote
from textwrap import fill
from typing import Any, Final

from rich.cells import cell_len, set_cell_size

from pipeline.listings.listing import TEXTS, AskedListing, Kind, Shown, Totals, Verdict
from pipeline.settings.quantities import counted, duration_text, moment_text, rate_text, size_text
from pipeline.terminal import is_terminal, safe_text, say, show_table
from pipeline.terminal import value_text as told_text

WIDTH: Final = 100
UNKNOWN: Final = "-"
# least width of a column of shortened texts
_LEAST: Final = 6
# least width of shortened prose in a pipe, where names are not shortened
_LEAST_IN_PIPE: Final = 24
_GAP: Final = 2


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={one}" for name, one in sorted(value.items()))
    return str(value)


_TEXTS: Final[dict[Kind, Callable[[Any], str]]] = {
    Kind.TEXT: _text,
    Kind.PROSE: _text,
    Kind.ID: _text,
    Kind.COUNT: lambda value: f"{value:,}",
    Kind.SIZE: lambda value: size_text(float(value)),
    Kind.RATE: lambda value: rate_text(float(value)),
    Kind.MILLIS: moment_text,
    Kind.MICROS: lambda value: moment_text(value // 1000),
    Kind.DURATION: duration_text,
}


def value_text(kind: Kind, value: Any) -> str:
    """Return a value as the table shows it; UNKNOWN for None."""
    return UNKNOWN if value is None else _TEXTS[kind](value)


def show_listing(asked: AskedListing, names: Sequence[str], rows: Sequence[Sequence[Any]], totals: Totals) -> None:
    """Print a table of rows and the verdict below it.

    Args:
        asked: the list.
        names: columns of the rows.
        rows: the rows that --limit leaves.
        totals: the row of `asked.totals`.
    """
    places = {name: place for place, name in enumerate(names)}
    columns = asked.listing.columns_of(totals)
    if len(rows) == 1 and asked.listing.details:
        _show_whole(asked.listing.details, places, rows[0])
        if totals["rows"] > 1:
            say(f"\n1 of {counted(totals['rows'], 'row')}; --limit 0 shows all")
        if about := asked.listing.about:
            say("\n" + safe_text(about.format_map({name: quote(str(rows[0][place])) for name, place in places.items()})))
        return
    values = [[row[places[column.name]] for column in columns] for row in rows]
    show_cut(columns, values, totals["rows"], asked.listing.verdict(totals))


def show_cut(columns: Sequence[Shown], rows: Sequence[Sequence[Any]], count: int, verdict: Verdict) -> None:
    """Print a table of rows, how many of `count` rows they are if --limit cut them, and the verdict.

    Args:
        columns: the columns of the table.
        rows: the values of each row in the order of the columns.
        count: number of the rows before the cut.
        verdict: the verdict on all rows.
    """
    texts = [[_on_a_line(value_text(column.kind, value)) for column, value in zip(columns, row, strict=True)] for row in rows]
    if rows:
        numbers = [place for place, column in enumerate(columns) if column.kind not in {*TEXTS, Kind.MILLIS, Kind.MICROS}]
        show_table([column.header for column in columns], fitted(columns, texts, is_read=is_terminal()), right=numbers)
        say("")
    else:
        say("(0 rows)")
    if len(rows) < count:
        say(f"{len(rows):,} of {counted(count, 'row')}; --limit 0 shows all")
    say(verdict_text(verdict))


def verdict_text(verdict: Verdict) -> str:
    """Return a verdict as printable text: on one line if it fits, else with a line for each note."""
    line = safe_text(str(verdict))
    if cell_len(line) <= WIDTH or not verdict.notes:
        return filled(line)
    head = [filled(f"{safe_text(verdict.head)}:")] if verdict.head else []
    return "\n".join([*head, *(filled(f"- {safe_text(note)}", indent="  ") for note in verdict.notes)])


def filled(text: str, *, indent: str = "") -> str:
    """Return a text in lines that are at most WIDTH wide, all but the first of them indented."""
    return fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _show_whole(columns: Sequence[Shown], places: Mapping[str, int], row: Sequence[Any]) -> None:
    """Print the known values of a row, each on a line of its own."""
    known = [(column, value) for column in columns if (value := row[places[column.name]]) is not None]
    width = max(len(column.header) for column, _ in known)
    for column, value in known:
        say(f"{column.header:{width}}  {safe_text(value_text(column.kind, value))}")


def fitted(columns: Sequence[Shown], texts: Sequence[Sequence[str]], *, is_read: bool = True) -> list[list[str]]:
    """Return the texts of a table, the longest of its columns of text shortened until the table is WIDTH wide.

    Args:
        columns: the columns of the table.
        texts: the texts of each row.
        is_read: whether the table is shown on a terminal; else only prose is shortened.
    """
    kinds, least = (TEXTS - {Kind.ID}, _LEAST) if is_read else ({Kind.PROSE}, _LEAST_IN_PIPE)
    widths = _widths(columns, texts)
    of_text = [place for place, column in enumerate(columns) if column.kind in kinds]
    over = sum(widths) + _GAP * (len(widths) - 1) - WIDTH
    while over > 0 and of_text and widths[longest := max(of_text, key=widths.__getitem__)] > least:
        widths[longest] -= 1
        over -= 1
    return [[_cut(*cell) for cell in zip(row, widths, columns, strict=True)] for row in texts]


def show_narrow(names: Sequence[str], rows: Sequence[Sequence[Any]], *, optional: Sequence[str]) -> None:
    """Print a table that is at most WIDTH wide: headers of two lines, without columns that can be spared, with shortened texts.

    Args:
        names: headers of the columns.
        rows: their values.
        optional: the columns that can be spared, in this order; those with one value only are spared first.
    """
    columns = [Shown(name, "\n".join(name.split(" ", 1))) for name in names]
    texts = [[told_text(value) for value in row] for row in rows]
    same = [name for place, name in enumerate(names) if name in optional and len({row[place] for row in texts}) == 1]
    spared: list[str] = []
    for name in dict.fromkeys((*same, *optional)):
        if _width([column for column in columns if column.name not in spared], _without(texts, names, spared)) <= WIDTH:
            break
        spared.append(name)
    left = [
        replace(column, kind=Kind.TEXT if any(letter.isalpha() for row in texts for letter in row[place]) else Kind.ID)
        for place, column in enumerate(columns)
        if column.name not in spared
    ]
    show_table([column.header for column in left], fitted(left, _without(texts, names, spared)))
    if spared:
        told = f"left out, so that the table is at most {WIDTH} wide: {', '.join(spared)}; --format csv and a pipe have them"
        say("\n" + filled(told))


def _without(texts: Sequence[Sequence[str]], names: Sequence[str], spared: Sequence[str]) -> list[list[str]]:
    return [[text for name, text in zip(names, row, strict=True) if name not in spared] for row in texts]


def _widths(columns: Sequence[Shown], texts: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(cell_len, (*column.header.split("\n"), *(row[place] for row in texts)))) for place, column in enumerate(columns)]


def _width(columns: Sequence[Shown], texts: Sequence[Sequence[str]]) -> int:
    return sum(_widths(columns, texts)) + _GAP * (len(columns) - 1)


def _on_a_line(text: str) -> str:
    return safe_text(" ".join(text.split()) if "\n" in text else text)


def _cut(text: str, width: int, column: Shown) -> str:
    """Return a text shortened to `width`; names and ids lose their middle, because they often differ only at their end."""
    if cell_len(text) <= width:
        return text
    tail = 0 if column.kind is Kind.PROSE else width // 3
    return f"{set_cell_size(text, width - 1 - tail).rstrip()}…{_end(text, tail)}"


def _end(text: str, width: int) -> str:
    while cell_len(text) > width:
        text = text[1:]
    return text
