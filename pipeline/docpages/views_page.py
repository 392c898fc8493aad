"""Generates docs/views.md from the statements that define the views: what each view answers, and what its columns mean."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.docpages.tables_page import cell
from pipeline.sql.statements import VIEWS, view_sql

PAGE = Path("docs/views.md")

_HEAD = """\
# Views

The views of a lake, and what their columns mean. `python -m pipeline.docpages.views_page` generates this page from the files
in `pipeline/sql`; `DESCRIBE consume_lag` shows the same in a session. [Answers in SQL](sql.md) says which view answers which question.
"""
# a text of SQL: quotes in it are doubled
_COMMENT = r"COMMENT '(?P<what>(?:[^']|'')*)'"
_COLUMN = re.compile(rf"^  (?P<name>\w+)(?P<type>[^'\n]*?) {_COMMENT},?$", re.MULTILINE)
_WHOLE = re.compile(rf"^{_COMMENT}$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Documented:
    """A column or parameter, and what it means."""

    name: str
    what: str


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


def views_page() -> str:
    """The text of docs/views.md."""
    return "".join([_HEAD, *map(_section, sorted(VIEWS))])


def _section(name: str) -> str:
    defined = documented(view_sql(name))
    rows = "".join(f"| `{one.name}` | {cell(one.what)} |\n" for one in defined.columns)
    return f"\n## {name}\n\n{defined.what}\n\n| column | what |\n| --- | --- |\n{rows}"


def _all(text: str) -> list[Documented]:
    return [Documented(found["name"], _text(found)) for found in _COLUMN.finditer(text)]


def _text(found: re.Match[str]) -> str:
    return found["what"].replace("''", "'")


if __name__ == "__main__":
    PAGE.write_text(views_page(), "utf-8")
