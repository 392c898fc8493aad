"""Questions in SQL that the embedded engine answers: checked, translated, run; errors name the place in the question."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import duckdb
import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import SqlglotError

from pipeline.delta.damaged_files import damaged_file
from pipeline.embedded.database import RELATIONS, Answer, EmbeddedLake
from pipeline.embedded.describe import described
from pipeline.embedded.opened_tables import NotSupportedError
from pipeline.embedded.supported import require_supported, with_names
from pipeline.embedded.translation import parsed
from pipeline.lake.lake_errors import LakeError
from pipeline.settings.settings import nearest
from pipeline.sql.statements import FUNCTIONS
from store_format.errors import UnusableInputError

_NO_COLUMN: Final = re.compile(r'(?:Referenced column|does not have a column named) "(?P<name>[^"]+)"')
_CANDIDATES: Final = re.compile(r"Candidate bindings: (?P<names>.*)")
# DuckDB's errors about a query or its data, not about DuckDB itself
_OF_QUERY: Final = (
    duckdb.BinderException,
    duckdb.CatalogException,
    duckdb.ConversionException,
    duckdb.InvalidInputException,
    duckdb.OutOfRangeException,
    duckdb.ParserException,
    duckdb.PermissionException,
    duckdb.NotImplementedException,
)
# DuckDB's message after Ctrl-C
_INTERRUPTED: Final = "Query interrupted"
_INT64: Final = range(-(2**63), 2**63)
_TOO_LARGE: Final = "a sum is greater than a BIGINT; use try_sum, or sum doubles"


class QuestionError(UnusableInputError, ValueError):
    """The question is no query that can be answered; the message names the place."""


def ask(lake: EmbeddedLake, text: str) -> Answer:
    """The answer to a question in Spark's SQL.

    Raises:
        NotSupportedError: the question is left to Spark.
        LakeError: the question names an unknown table or view, or a file of the lake is missing or damaged.
        QuestionError: the question names an unknown column, or fails while it runs.
    """
    tree = _parsed(text)
    if (answer := described(lake, tree)) is not None:
        return answer
    named = _supported(tree)
    with errors_told(tree, text):
        answer = lake.rows(named)
    if None in answer.types:
        lake.connection.interrupt()
        raise NotSupportedError(f"the type of {answer.names[answer.types.index(None)]} is left to Spark")
    return Answer(_names(named, answer.names), answer.types, _told(answer.rows, tree, text))


def ask_table(lake: EmbeddedLake, text: str) -> pa.Table:
    """The answer to a question in Spark's SQL as an Arrow table with the types of Spark's `toArrow`; errors are those of `ask`."""
    tree = _parsed(text)
    if (answer := described(lake, tree)) is not None:
        kinds = {"string": pa.string(), "boolean": pa.bool_()}
        schema = pa.schema([(name, kinds[str(kind)]) for name, kind in zip(answer.names, answer.types, strict=True)])
        return pa.Table.from_pylist([dict(zip(answer.names, row, strict=True)) for row in answer.rows], schema)
    named = _supported(tree)
    with errors_told(tree, text):
        table = lake.table(named)
    return table.rename_columns(_names(named, table.column_names))


def _parsed(text: str) -> exp.Expr:
    try:
        return parsed(text)
    except SqlglotError as error:
        raise NotSupportedError(f"the question is not parsed: {str(error).splitlines()[0]}") from error


def _supported(tree: exp.Expr) -> exp.Query:
    """The query in a tree, with Spark's names of its columns, after a check that the embedded engine answers it as Spark does."""
    if not isinstance(tree, exp.Query):
        raise NotSupportedError("only queries, SHOW TABLES and DESCRIBE are answered without Spark")
    require_supported(tree)
    _require_known(tree)
    named = with_names(tree)
    assert isinstance(named, exp.Query)
    return named


def _names(query: exp.Query, found: Sequence[str]) -> Sequence[str]:
    """The names of a query's columns, in the query's upper and lower case, as Spark gives them."""
    return found if "*" in query.named_selects else query.named_selects


def _told(rows: Iterator[tuple[Any, ...]], tree: exp.Expr, text: str) -> Iterator[tuple[Any, ...]]:
    with errors_told(tree, text):
        for row in rows:
            if any(type(value) is int and value not in _INT64 for value in row):
                raise QuestionError(_TOO_LARGE)
            yield row


@contextmanager
def errors_told(tree: exp.Expr | None = None, text: str = "") -> Iterator[None]:
    """Turn DuckDB's errors into errors of the lake and of the question. The block runs the query `tree` of `text`.

    Raises:
        NotSupportedError: DuckDB has no such function for the types of the arguments.
        LakeError: a file of the lake is missing or damaged.
        QuestionError: DuckDB refuses the query, or the query fails.
        KeyboardInterrupt: Ctrl-C ended the query.
    """
    try:
        yield
    except RuntimeError as error:  # DuckDB's error for Ctrl-C, which is no duckdb.Error
        if str(error) != _INTERRUPTED:
            raise
        raise KeyboardInterrupt from error
    except pa.ArrowInvalid as error:  # from the cast of a sum
        raise QuestionError(_TOO_LARGE) from error
    except duckdb.Error as error:
        if (damaged := damaged_file(str(error))) is not None or isinstance(error, duckdb.IOException):
            raise LakeError(damaged or _sentence(error)) from error
        if not isinstance(error, _OF_QUERY):
            raise
        if "No function matches" in str(error):  # Spark casts more arguments by itself
            raise NotSupportedError(_sentence(error)) from error
        found = _NO_COLUMN.search(str(error))
        if found is None or tree is None:
            raise QuestionError(_sentence(error)) from error
        name = found["name"]
        listed = _CANDIDATES.search(str(error))
        known = [] if listed is None else [one.rpartition(".")[2].strip('"') for one in re.findall(r"[^\s,]+", listed["names"])]
        near = ", ".join(f"`{one}`" for one in dict.fromkeys(nearest(name, known)))
        raise QuestionError(
            f"{_place(tree, text, name)}there is no column {name!r}" + (f"; the nearest known: {near}" if near else "")
        ) from error


def _sentence(error: duckdb.Error) -> str:
    return re.sub(r"^(?:\w+ )+Error: ", "", str(error).partition("\n")[0])


def _place(tree: exp.Expr, text: str, name: str) -> str:
    """Where a name stands in a question, as `line 1, column 8: `; empty if it does not."""
    for node in tree.find_all(exp.Identifier):
        start = node.meta.get("start")
        if node.name.lower() == name.lower() and start is not None:
            return f"line {text.count(chr(10), 0, start) + 1}, column {start - text.rfind(chr(10), 0, start)}: "
    return ""


def _require_known(tree: exp.Expr) -> None:
    own = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    known = own | {name.lower() for name in RELATIONS}
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Anonymous):
            if table.this.name.lower() not in FUNCTIONS:
                raise NotSupportedError(f"the function {table.this.name} is left to Spark")
        elif table.name.lower() in set(FUNCTIONS) - known:
            raise LakeError(f"{table.name!r} is a function, found it without parentheses; write {table.name}()")
        elif table.name.lower() not in known:
            near = ", ".join(nearest(table.name, RELATIONS))
            raise LakeError(f"there is no table or view {table.name!r}; the nearest known: {near}")
