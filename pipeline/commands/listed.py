"""Shows a list of an operator's command with the embedded engine, or with Spark if only Spark can read the lake."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from pipeline.commands.engine import Engine, engine_option, engine_options
from pipeline.commands.options import ROW_LIMIT, format_option
from pipeline.lake.asking import Ask
from pipeline.listings.listing import AskedListing, Totals

if TYPE_CHECKING:
    from pipeline.embedded.database import EmbeddedLake
    from pipeline.lake.lake import Lake

Answered = tuple[Sequence[str], Iterator[Sequence[Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Names of the command line that a lake must know: of a consumer group, a topic and a broker; None for a name that is not given."""

    group: str | None = None
    topic: str | None = None
    broker: str | None = None

    def require(self, root: str, ask: Ask) -> None:
        """Check the names.

        Raises:
            LakeError: the lake does not know a name; the message has the most similar known names.
        """
        from pipeline.lag.lag_sql import check_names
        from pipeline.lake.asking import ask_each, names_with

        check_names(root, names_with(ask_each(ask)), group=self.group, topic=self.topic, broker=self.broker)


def require_before_spark(root: str, *names: Names) -> None:
    """Check names without Spark; a lake that only Spark can read is not checked here.

    Raises:
        LakeError: as in `Names.require`.
    """
    given = [one for one in names if one != Names()]
    if not given:
        return
    from pipeline.embedded.database import EmbeddedLake
    from pipeline.embedded.opened_tables import NotSupportedError
    from pipeline.embedded.questions import errors_told

    try:
        with errors_told():
            ask = asked_of(EmbeddedLake(root))
            for one in given:
                one.require(root, ask)
    except NotSupportedError:
        return


def asked_of(lake: EmbeddedLake) -> Ask:
    """Return the function that asks the embedded engine."""

    def ask(query: str) -> tuple[Sequence[str], Iterator[Sequence[Any]]]:
        answer = lake.query(query)
        return answer.names, answer.rows

    return ask


def list_options(command: Callable[..., Any], *, in_table: str = "50 in a table") -> Callable[..., Any]:
    """Add the options of a list of rows: --sort and --limit, its form, and the engine that reads the lake.

    `in_table` says how many rows a table has by default.
    """
    sort = "Sort by a column of the table or of the view; numbers and times from the greatest down, unless :asc is given."
    limit = f"Greatest number of rows, 0 for all; {in_table} by default, all as json and csv."
    decorated = click.option("--limit", type=ROW_LIMIT, metavar="N", help=limit)(format_option(engine_option(engine_options(command))))
    return click.option("--sort", metavar="COLUMN[:asc|:desc]", help=sort)(decorated)


def answer(engine: Engine, lake: str, names: Names, show: Callable[[Ask], object], *, again: Callable[[int], None] | None = None) -> None:
    """Let an engine answer, after the names were checked.

    Args:
        engine: the options of the engines.
        lake: directory of the lake.
        names: what the lake must know.
        show: asks the engine, and shows the answers.
        again: called with each new version of the lake before `show` is called again, until a signal; None to show once.
    """

    def show_quickly(opened: EmbeddedLake) -> None:
        from pipeline.embedded.questions import errors_told
        from pipeline.files.stopping import told_to_stop

        with errors_told():
            names.require(opened.root, asked_of(opened))
            show(asked_of(opened))
        if again is not None:
            with told_to_stop() as stop:
                for newer in opened.changes(stop):
                    again(newer.at.version)
                    with errors_told():
                        show(asked_of(newer))

    if engine.without_spark(lake, show_quickly):
        return
    require_before_spark(lake, names)
    with engine.session(reads=lake) as spark:
        from pipeline.files.stopping import told_to_stop
        from pipeline.lake.lake import Lake, changes

        opened = Lake(spark, lake).require()
        ask = _asked_of_spark(opened)
        names.require(lake, ask)
        show(ask)
        if again is not None:
            with told_to_stop() as stop:
                for version in changes(opened, stop):
                    again(version.version)
                    show(ask)


def _asked_of_spark(lake: Lake) -> Ask:
    from pipeline.lake.views import create_views

    def ask(query: str) -> tuple[Sequence[str], Iterator[Sequence[Any]]]:
        frame = create_views(lake, query).sql(query)
        return frame.columns, frame.toLocalIterator()

    return ask


def show_first(ask: Ask, lists: Sequence[AskedListing]) -> Totals:
    """Show the first of `lists` that has rows, else the last one; return its totals."""
    from pipeline.listings.table import show_listing
    from pipeline.terminal import show_values

    totals: Totals = {}
    for asked in lists:
        totals, rows_of = _with_sums(ask, asked) if asked.listing.sums else _with_totals(ask, asked)
        if totals["rows"] or asked is lists[-1]:
            columns, rows = rows_of()
            if asked.form == "table":
                show_listing(asked, columns, list(rows), totals)
            else:
                show_values(columns, rows, asked.form)
            break
    return totals


def _with_totals(ask: Ask, asked: AskedListing) -> tuple[Totals, Callable[[], Answered]]:
    """Return the totals of a list, and the function that asks for its rows."""
    query = asked.rows  # a wrong --sort is found before anything runs
    names, rows = ask(asked.totals)
    return dict(zip(names, next(iter(rows)), strict=True)), partial(ask, query)


def _with_sums(ask: Ask, asked: AskedListing) -> tuple[Totals, Callable[[], Answered]]:
    """Return what `_with_totals` returns, from one query."""
    names, rows = ask(asked.totals_with_rows)
    first = next(rows)
    totals, _ = asked.split(first)
    found = (asked.split(row)[1] for row in chain([first], rows)) if totals["rows"] else iter(())
    return totals, lambda: (asked.split(names)[1], found)
