"""docs/views.md, made of the statements that define the views: what each answers, and what its columns mean."""

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

The views of a lake, and what their columns mean. `python -m pipeline.docpages.views_page` makes this page of the files
under `pipeline/sql`; `DESCRIBE consume_lag` tells the same in a session. Which view answers which question: [Answers in SQL](sql.md).
"""
# a text of SQL: quotes in it are doubled
_COMMENT = r"COMMENT '(?P<what>(?:[^']|'')*)'"
_COLUMN = re.compile(rf"^  (?P<name>\w+)(?P<type>[^'\n]*?) {_COMMENT},?$", re.MULTILINE)
_WHOLE = re.compile(rf"^{_COMMENT}$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Documented:
    """A name and what it means."""

    name: str
    what: str


@dataclass(frozen=True, slots=True)
class Definition:
    """What the statement of a view or a function of rows says of it."""

    what: str
    parameters: Sequence[Documented]
    columns: Sequence[Documented]


def documented(statement: str) -> Definition:
    """The comments of a statement of pipeline/sql: of the whole, of each parameter, of each column."""
    whole = _WHOLE.search(statement)
    assert whole is not None, "every view has a comment"
    head = statement[: whole.start()]
    parameters, _, columns = head.rpartition("RETURNS TABLE (")
    return Definition(_text(whole), _all(parameters), _all(columns))


def views_page() -> str:
    """The text of the page."""
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
