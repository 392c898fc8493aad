"""What a statement of this folder defines: names, types and comments of columns and parameters, and the query.

This module needs no Spark.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# a text of SQL: quotes in it are doubled
_COMMENT = r"COMMENT '(?P<what>(?:[^']|'')*)'"
_COLUMN = re.compile(rf"^  (?P<name>\w+)(?P<type>[^'\n]*?) {_COMMENT},?$", re.MULTILINE)
_WHOLE = re.compile(rf"^{_COMMENT}$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Documented:
    """A column or parameter: its name, what it means, and its type and default where the statement has them."""

    name: str
    what: str
    type: str = ""


@dataclass(frozen=True, slots=True)
class Definition:
    """The comments of a view or a function that gives rows: of the whole, its parameters, its columns."""

    what: str
    parameters: Sequence[Documented]
    columns: Sequence[Documented]


def documented(statement: str) -> Definition:
    """The comments in a statement of pipeline/sql: of the whole, of each parameter, of each column."""
    whole = _WHOLE.search(statement)
    assert whole is not None, "every view has a comment"
    head = statement[: whole.start()]
    parameters, _, columns = head.rpartition("RETURNS TABLE (")
    return Definition(_text(whole), _all(parameters), _all(columns))


def body_of(statement: str) -> str:
    """The query or expression of a statement of pipeline/sql, without the names and comments before it."""
    return re.split(r"^(?:AS|RETURN)$", statement, maxsplit=1, flags=re.MULTILINE)[1]


def _all(text: str) -> list[Documented]:
    return [Documented(found["name"], _text(found), found["type"].strip()) for found in _COLUMN.finditer(text)]


def _text(found: re.Match[str]) -> str:
    return found["what"].replace("''", "'")
