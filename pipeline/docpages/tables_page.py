"""Generates docs/tables.md from the tables of a lake: what each column means, and which columns are the key."""

from __future__ import annotations

from pathlib import Path

from pipeline.schema.table import Column, Table
from pipeline.schema.tables import IMPORTED, IMPORTED_OF_5, LAKE_VERSION, TABLES, TABLES_VERSION

PAGE = Path("docs/tables.md")

_HEAD = f"""\
# Tables

The tables of a lake, version {TABLES_VERSION}. `python -m pipeline.docpages.tables_page` generates this page from the modules of
`pipeline/schema`, which the program uses. The same texts are the comments of the Delta tables (`DESCRIBE TABLE commit_log`).

A queue is (`brokerName`, `topic`, `queueId`). Stamps are ms since 1970 in UTC, unless the name of the column says micros. A key is
unique; a table without a key may hold equal rows. The first run that writes a table creates it. `pullsim sql` shows a table that no run
has written as an empty one.

A column is never NULL if its type says NOT NULL. A condition after "Always" is true or NULL for each row. Delta does not enforce
these constraints, because each would cost a table a commit. `pullsim verify STORE --lake DIR` counts the rows that break one
(`TABLE_CONSTRAINT`).

## Versions

`lake_version.tablesVersion` has the version that the tables of a lake follow. A new table does not change the version. A new, renamed or
removed column, another type or another meaning is a new version; CHANGELOG.md lists these changes.
pullsim reads and writes lakes of its own version only:

- A lake of a newer version: use the pullsim that wrote it, or a newer one.
- A lake of an older version: import the stores into a new lake, and repeat the captures and replays that you need. Stores and captures are
  the source of all tables except `lag_history`. Its rows can be copied if its columns are the same.
"""


def tables_page() -> str:
    """The text of docs/tables.md."""
    imported = (*IMPORTED, *IMPORTED_OF_5)
    others = [table for table in TABLES.values() if table not in imported]
    sections = (("Imported stores", imported), ("Traffic, answers, observations", others), ("The commit point", [LAKE_VERSION]))
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
