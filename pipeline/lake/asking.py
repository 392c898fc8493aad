"""How code asks queries of a lake without knowing the engine that answers. This module needs no Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
# a query in Spark's SQL -> the names of its columns, and its rows
Ask = Callable[[str], tuple[Sequence[str], Iterator[Sequence[Any]]]]
# queries in Spark's SQL -> the rows of each query, which runs when its rows are taken
AskAll = Callable[[Sequence[str]], Iterator[Sequence[Row]]]


def known_names(column: str, tables: Sequence[str]) -> str:
    """The query for the names in a column of tables."""
    listed = " UNION ALL ".join(f"SELECT {column} AS name FROM {table}" for table in tables)
    return f"SELECT DISTINCT name FROM ({listed}) WHERE name IS NOT NULL ORDER BY name"


def ask_each(ask: Ask) -> AskAll:
    """Return the function that asks one query after the other, and gives rows by the names of their columns."""

    def ask_all(queries: Sequence[str]) -> Iterator[Sequence[Row]]:
        for query in queries:
            names, rows = ask(query)
            yield [dict(zip(names, row, strict=True)) for row in rows]

    return ask_all


def names_with(ask: AskAll) -> Callable[[str, Sequence[str]], list[str]]:
    """Return the function that gives the sorted names in a column of tables."""
    return lambda column, tables: [row["name"] for row in next(ask([known_names(column, tables)]))]
