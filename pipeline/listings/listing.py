"""One list of an operator's command: the view that it shows, the columns of its table, and the queries for both engines. No Spark here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from pipeline.delta.delta_sql import literal
from pipeline.settings.settings import nearest
from pipeline.sql.definitions import documented
from pipeline.sql.statements import view_sql
from store_format.errors import UnusableInputError

# rows of a table without --limit: one or two screens
TABLE_ROWS: Final = 50
Totals = Mapping[str, Any]


class ListingError(UnusableInputError, ValueError):
    """A list cannot be sorted by the value of --sort; the message names the option."""


class Kind(Enum):
    """How the values of a column are shown, and whether the greatest come first when a list is sorted by the column."""

    TEXT = "text"
    PROSE = "text whose begin says most"
    ID = "text that is typed again, so it is never shortened"
    COUNT = "count"
    SIZE = "bytes"
    RATE = "messages a second"
    MILLIS = "ms since 1970"
    MICROS = "microseconds since 1970"
    DURATION = "ms"


TEXTS: Final = frozenset({Kind.TEXT, Kind.PROSE, Kind.ID})


@dataclass(frozen=True, slots=True)
class Shown:
    """A column of the table: the view's column, its header, and how its values are shown."""

    name: str
    header: str
    kind: Kind = Kind.TEXT


BROKER: Final = Shown("brokerName", "Broker")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The text below a table: a head, which may be empty, and notes, each of one thought."""

    head: str
    notes: Sequence[str] = ()

    @classmethod
    def of(cls, head: str, *notes: str | None) -> Verdict:
        """Return the verdict of a head and the notes that are not None or empty."""
        return cls(head, tuple(note for note in notes if note))

    def __str__(self) -> str:
        notes = "; ".join(self.notes)
        return f"{self.head}: {notes}" if self.head and notes else self.head or notes


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What a command lists.

    Attributes:
        view: the view that has the rows; as json and csv they have all its columns.
        columns: the columns of the table.
        order: the order of the rows, as SQL after ORDER BY.
        totals: name -> aggregate over all rows, for the verdict.
        verdict: makes the text below the table, from the totals and the numbers of all rows and brokers.
        details: columns that are shown if there is only one row to show, each on a line of its own; if empty, that row is a table too.
        about: text below the lines of `details`, with names of columns in braces.
        left_out: columns of the view that no form shows.
        more: columns that the view does not have: name -> expression over its columns.
        sums: whether the view aggregates many rows to few, so that one query has the rows and the totals; else there are two queries.
    """

    view: str
    columns: Sequence[Shown]
    order: str
    totals: Mapping[str, str]
    verdict: Callable[[Totals], Verdict]
    details: Sequence[Shown] = ()
    about: str = ""
    left_out: Sequence[str] = ()
    more: Mapping[str, str] = field(default_factory=dict)
    sums: bool = False

    def columns_of(self, totals: Totals) -> Sequence[Shown]:
        """Return the columns of the table; with several brokers, the broker's column comes after the first columns of text."""
        if totals["brokers"] < 2:
            return self.columns
        place = next(place for place, column in enumerate(self.columns) if column.kind not in TEXTS)
        return (*self.columns[:place], BROKER, *self.columns[place:])

    @property
    def names(self) -> list[str]:
        """The columns that json and csv have, in the order of the view."""
        own = [column.name for column in documented(view_sql(self.view)).columns if column.name not in self.left_out]
        return [*own, *(name for name in self.more if name not in own)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedListing:
    """A list with the options of the command line.

    Attributes:
        listing: what is listed.
        conditions: conditions on the rows, in SQL.
        sort: value of --sort: a column of the view or a header of the table, and :asc or :desc after it; None for the list's own order.
        limit: greatest number of rows; 0 for all; None for TABLE_ROWS in a table, and for all in other forms.
        form: table, json or csv.
    """

    listing: Listing
    conditions: Sequence[str] = ()
    sort: str | None = None
    limit: int | None = None
    form: str = "table"

    @property
    def rows(self) -> str:
        """The query for the rows, in Spark's SQL.

        Raises:
            ListingError: --sort names no column.
        """
        return f"SELECT {self._columns} FROM {self.listing.view}{self._where} {self._first}"

    @property
    def totals(self) -> str:
        """The query for the totals, which is one row, in Spark's SQL."""
        sums = ", ".join(f"{of} AS {name}" for name, of in self._aggregates.items())
        return f"SELECT {sums} FROM {self.listing.view}{self._where}"

    @property
    def totals_with_rows(self) -> str:
        """The query for totals and rows, in Spark's SQL: each row has the totals first; without rows, NULLs follow. It reads the view once.

        Raises:
            ListingError: as in `rows`.
        """
        found = f"SELECT * FROM {self.listing.view}{self._where}"
        sums = ", ".join(f"{of} AS {name}Total" for name, of in self._aggregates.items())  # other names than those of the view
        names = ", ".join(f"{name}Total" for name in self._aggregates)
        return (
            f"WITH found AS ({found}), counted AS (SELECT {sums} FROM found) "
            f"SELECT {names}, {self._columns} FROM counted LEFT JOIN (SELECT * FROM found {self._first}) ON true ORDER BY {self.order}"
        )

    def split(self, row: Sequence[Any]) -> tuple[Totals, Sequence[Any]]:
        """Return the two parts of a row of `totals_with_rows`: the totals, and the row of the list."""
        count = len(self._aggregates)
        return dict(zip(self._aggregates, row[:count], strict=True)), row[count:]

    @property
    def _aggregates(self) -> Mapping[str, str]:
        return {"rows": "count(*)", "brokers": "count(DISTINCT brokerName)", **self.listing.totals}

    @property
    def _columns(self) -> str:
        more = self.listing.more
        return ", ".join(f"{more[name]} AS {name}" if name in more else name for name in self.listing.names)

    @property
    def _first(self) -> str:
        limit = TABLE_ROWS if self.limit is None and self.form == "table" else self.limit
        return f"ORDER BY {self.order}" + (f" LIMIT {limit}" if limit else "")

    @property
    def _where(self) -> str:
        return f" WHERE {' AND '.join(f'({condition})' for condition in self.conditions)}" if self.conditions else ""

    @property
    def order(self) -> str:
        """The order of the rows, as SQL after ORDER BY.

        Raises:
            ListingError: --sort names no column.
        """
        if self.sort is None:
            return self.listing.order
        name, _, direction = self.sort.partition(":")
        headers = {column.header.lower().removesuffix(" (utc)"): column.name for column in (*self.listing.columns, BROKER)}
        known = {one.lower(): one for one in self.listing.names} | headers
        asked = name.lower().removesuffix(" (utc)")
        if asked not in known or direction not in {"", "asc", "desc"}:
            near = ", ".join(nearest(name, [column.header for column in (*self.listing.columns, BROKER)] + self.listing.names))
            raise ListingError(
                f"--sort: expected a column, and :asc or :desc after it where you like, found {self.sort!r}; the nearest: {near}"
            )
        column = known[asked]
        texts = {one.name for one in self.listing.columns if one.kind in TEXTS}
        return f"{column} {direction or ('asc' if column in texts else 'desc')} NULLS LAST, {self.listing.order}"


def equal(column: str, value: str | int | None) -> list[str]:
    """Return the condition that a column has a value, as a list; empty if the value is None."""
    return [] if value is None else [f"{column} = {literal(value) if isinstance(value, str) else value}"]
