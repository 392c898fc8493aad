"""docs/tables.md, made of the tables: what each column of a lake is, and which columns tell rows apart."""

from __future__ import annotations

from pathlib import Path

from pipeline.schema.table import Column, Table
from pipeline.schema.tables import IMPORTED, LAKE_VERSION, TABLES, TABLES_VERSION

PAGE = Path("docs/tables.md")

_HEAD = f"""\
# Tables

The tables of a lake, version {TABLES_VERSION}. `python -m pipeline.docpages.tables_page` makes this page of
`pipeline/schema/tables.py`, which the program uses; the same texts are the comments of the Delta tables (`DESCRIBE TABLE commit_log`).

A queue is (`brokerName`, `topic`, `queueId`). Stamps are ms since 1970 in UTC, unless the name of the column says micros. A key is
unique; a table without one may hold equal rows. A table is there from the first run on that writes it; `pullsim sql`
shows the others empty.

A column is never NULL where its type says NOT NULL. What stands behind "Always" is true or NULL for each row. Delta does not hold
writers to these constraints, as each would cost a table a commit: `pullsim verify STORE --lake DIR` counts the rows that break one
(`TABLE_CONSTRAINT`).

## Versions

`lake_version.tablesVersion` has the version that the tables of a lake follow. A new table keeps it. A new, renamed or removed column,
another type or another meaning is a new version, and CHANGELOG.md says which. pullsim reads and writes lakes of its own version only:

- a lake of a newer version: use the pullsim that wrote it, or a newer one;
- a lake of an older version: import the stores into a new lake, and capture and replay again what is to be kept. Stores and captures are
  the source of everything but `lag_history`, whose rows can be copied where its columns are the same.
"""


def tables_page() -> str:
    """The text of the page."""
    others = [table for table in TABLES.values() if table not in IMPORTED]
    sections = (("Imported stores", IMPORTED), ("Traffic, answers, observations", others), ("The commit point", [LAKE_VERSION]))
    parts = [_HEAD]
    for title, tables in sections:
        parts += [f"\n## {title}\n", *map(_section, tables)]
    return "".join(parts)


def cell(text: str) -> str:
    """A text as a cell of a Markdown table: on one line, with no markup in it."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", "<br>")


def _section(table: Table) -> str:
    key = f" Key: {', '.join(f'`{name}`' for name in table.key)}." if table.key else ""
    checks = f" Always: {', '.join(f'`{one}`' for one in table.checks)}." if table.checks else ""
    rows = "".join(f"| `{column.name}` | {cell(_type(column))} | {cell(column.comment)} |\n" for column in table.columns)
    return f"\n### {table.name}\n\n{cell(table.comment)}{key}{checks}\n\n| column | type | what |\n| --- | --- | --- |\n{rows}"


def _type(column: Column) -> str:
    return column.type if column.nullable else f"{column.type} NOT NULL"


if __name__ == "__main__":
    PAGE.write_text(tables_page(), "utf-8")
