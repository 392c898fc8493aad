"""SHOW TABLES and DESCRIBE NAME without Spark, in Spark's form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlglot import exp

from pipeline.embedded.database import RELATIONS, Answer, EmbeddedLake
from pipeline.schema.tables import TABLES
from pipeline.sql.definitions import documented
from pipeline.sql.statements import VIEWS, view_sql


def described(lake: EmbeddedLake, tree: exp.Expr) -> Answer | None:
    """The answer to SHOW TABLES or DESCRIBE NAME; None for every other statement.

    Raises:
        NotSupportedError: only Spark reads the table.
        LakeError: the table's log is damaged.
    """
    if isinstance(tree, exp.Command):
        if (tree.name.upper(), str(tree.args.get("expression") or "").strip("' ;").upper()) != ("SHOW", "TABLES"):
            return None
        rows: list[tuple[Any, ...]] = [("", name, True) for name in sorted(RELATIONS)]
        return Answer(("namespace", "tableName", "isTemporary"), ("string", "string", "boolean"), iter(rows))
    if not isinstance(tree, exp.Describe) or tree.args.get("style") or str(tree.args.get("kind") or "TABLE").upper() != "TABLE":
        return None
    name = next((one for one in RELATIONS if one.lower() == tree.this.name.lower()), None)
    if name is None or tree.this.db:
        return None
    return Answer(("col_name", "data_type", "comment"), ("string", "string", "string"), _columns(lake, name))


def _columns(lake: EmbeddedLake, name: str) -> Iterator[tuple[str, str | None, str | None]]:
    columns = lake.query(f"SELECT * FROM {name} LIMIT 0")
    if name in VIEWS:
        comments = {column.name: column.what for column in documented(view_sql(name)).columns}
    else:
        comments = {column.name: column.comment for column in TABLES[name].columns} if name in lake.at.tables else {}
    for column, kind in zip(columns.names, columns.types, strict=True):
        yield column, kind, comments.get(column)
