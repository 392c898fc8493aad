"""Generates docs/functions.md: parameters, result and meaning of each function, in SQL, in Python, or with rows as its result."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.docpages.tables_page import cell
from pipeline.sql.definitions import documented
from pipeline.sql.statements import FUNCTIONS, view_sql
from udfs.sql_functions import PANDAS_UDFS, batch_cut, sql92_matches, uncompress_body
from udfs.sql_statements import SQL_FUNCTIONS

PAGE = Path("docs/functions.md")

_HEAD = """\
# Functions

The broker's rules as functions of SQL. `python -m pipeline.docpages.functions_page` generates this page from their definitions;
`DESCRIBE FUNCTION tags_code` shows the same in a session. Every session that pullsim builds has all of these functions. `spark-sql`
with the init file has the functions that are defined in SQL.

## Functions defined in SQL

Spark puts the expression of such a function into the query, so a call costs what the expression costs.

| function | gives | what |
| --- | --- | --- |
"""
_PYTHON = """
## Functions in Python

| function | gives | what |
| --- | --- | --- |
"""
_TABLES = """
## Functions that give rows

"""
_OF_PYTHON: dict[str, Callable[..., Any]] = {"batch_cut": batch_cut, "uncompress_body": uncompress_body, "sql92_matches": sql92_matches}


def functions_page() -> str:
    """The text of docs/functions.md."""
    sql = [_row(one.name, one.parameters, one.returns, one.comment) for one in SQL_FUNCTIONS]
    python = [_python_row(name) for name in PANDAS_UDFS]
    return "".join([_HEAD, *sql, _PYTHON, *python, _TABLES, *map(_of_rows, FUNCTIONS)])


def _row(name: str, parameters: str, returns: str, what: str) -> str:
    return f"| `{name}({cell(parameters)})` | {returns} | {cell(what)} |\n"


def _python_row(name: str) -> str:
    function = _OF_PYTHON[name]
    what = " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())
    return _row(name, ", ".join(inspect.signature(function).parameters), PANDAS_UDFS[name].returnType.simpleString().upper(), what)


def _of_rows(name: str) -> str:
    defined = documented(view_sql(name))
    parameters = "".join(f"| `{one.name}` | {cell(one.what)} |\n" for one in defined.parameters)
    columns = "".join(f"| `{one.name}` | {cell(one.what)} |\n" for one in defined.columns)
    return f"### {name}\n\n{defined.what}\n\n| parameter | what |\n| --- | --- |\n{parameters}\n| column | what |\n| --- | --- |\n{columns}"


if __name__ == "__main__":
    PAGE.write_text(functions_page(), "utf-8")
