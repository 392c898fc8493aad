"""Generates docs/views.md from the statements that define the views: what each view answers, and what its columns mean."""

from __future__ import annotations

from pathlib import Path

from pipeline.docpages.tables_page import cell
from pipeline.sql.definitions import documented
from pipeline.sql.statements import VIEWS, view_sql

PAGE = Path("docs/views.md")

_HEAD = """\
# Views

The views of a lake, and what their columns mean. `python -m pipeline.docpages.views_page` generates this page from the files
in `pipeline/sql`; `DESCRIBE consume_lag` shows the same in a session. [Answers in SQL](sql.md) says which view answers which question.
"""


def views_page() -> str:
    """The text of docs/views.md."""
    return "".join([_HEAD, *map(_section, sorted(VIEWS))])


def _section(name: str) -> str:
    defined = documented(view_sql(name))
    rows = "".join(f"| `{one.name}` | {cell(one.what)} |\n" for one in defined.columns)
    return f"\n## {name}\n\n{defined.what}\n\n| column | what |\n| --- | --- |\n{rows}"


if __name__ == "__main__":
    PAGE.write_text(views_page(), "utf-8")
