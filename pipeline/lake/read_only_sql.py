"""Checks that an SQL text only reads the lake: no file by its path, nothing written, no code of Java or of the shell.

Rule: an allow-list. A text is one query, or one of SHOW, DESCRIBE and EXPLAIN; a table has a name without a folder, schema or catalog. What
sqlglot cannot parse is refused too. The check knows no engine, so that all engines share it.
Surprise: a name may be put together while the query runs, in IDENTIFIER(...). No parser sees this name, so the engine itself must not take
a path as a table (`spark.sql.runSQLOnFiles`).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from store_format.errors import UnusableInputError, shown

_QUERIES: Final = frozenset({"SELECT", "WITH", "VALUES", "FROM", "("})
_NAMING: Final = frozenset({"DESCRIBE", "DESC"})
# refused after SHOW and DESCRIBE: a name of several parts, brackets, another statement, a comment
_NO_NAME: Final = re.compile(r"[.();]|--|/\*")
_EXPLAINED: Final = frozenset({"EXTENDED", "CODEGEN", "COST", "FORMATTED"})
# words after DESCRIBE that take a path in place of a name
_OF_PATHS: Final = frozenset({"DETAIL", "HISTORY"})
# functions that run code of Java or read a file (a schema); found in every form: quoted, qualified, with a comment before the bracket
_UNSAFE: Final = (
    *("java_method", "reflect", "try_reflect", "table_changes", "table_changes_by_path"),
    *("from_protobuf", "to_protobuf", "from_xml", "schema_of_xml", "from_avro", "to_avro", "schema_of_avro"),
)
_GAP = r"`?(?:\s|--[^\n]*\n|/\*.*?\*/)*"
_UNSAFE_CALL: Final = re.compile(rf"\b({'|'.join(_UNSAFE)}){_GAP}\(", re.IGNORECASE | re.DOTALL)
# IDENTIFIER(...)(...): the name of the function is put together, and sqlglot takes its arguments for names of columns
_IDENTIFIER: Final = re.compile(rf"\bidentifier{_GAP}\(", re.IGNORECASE | re.DOTALL)
_CALL_OF_CALL: Final = re.compile(rf"\){_GAP}\(", re.DOTALL)
# SELECT TRANSFORM(...) USING 'command', MAP and REDUCE
_SCRIPT: Final = re.compile(rf"\busing{_GAP}['\"]", re.IGNORECASE | re.DOTALL)
# texts in which sqlglot and Spark may find the end of a comment or of a literal at different places
_READ_DIFFERENTLY: Final = {
    r"/\*(?:(?!\*/).)*/\*": "a comment in a comment",
    r"\r(?!\n)": "a carriage return that ends no line",
    r"\$\w*\$": "a text between dollar signs",
    r"\\\n": "a backslash at the end of a line",
}
# functions in place of a table that take texts and read no file
_ROW_FUNCTIONS: Final = frozenset(
    {
        *("identifier", "range", "stack", "inline", "inline_outer", "explode", "explode_outer", "posexplode", "posexplode_outer"),
        *("json_tuple", "variant_explode", "variant_explode_outer", "sql_keywords", "collations"),
    }
)
_WRITING: Final = (exp.DML, exp.DDL, exp.Command, exp.Into, exp.QueryTransform, exp.Set, exp.Drop, exp.Use, exp.Merge, exp.LoadData)
_READING: Final = (exp.Query, exp.Values)


class NotReadOnlyError(UnusableInputError, ValueError):
    """An SQL text does more than read the lake, or cannot be checked."""

    def __init__(self, found: str) -> None:
        super().__init__(found)
        self.found = found

    def __str__(self) -> str:
        return f"expected SQL that reads the lake and nothing else, found {self.found}; --allow-files runs any SQL"


def check_read_only(text: str, functions: Collection[str] = ()) -> None:
    """Check that an SQL text in Spark's dialect only reads the lake.

    Args:
        text: the statement.
        functions: names of the lake's own functions that return rows.

    Raises:
        NotReadOnlyError: the text has several statements, or one that is no query, SHOW, DESCRIBE or EXPLAIN; it reads files or runs code.
    """
    if unsafe := _UNSAFE_CALL.search(text):
        raise NotReadOnlyError(f"the function {unsafe[1].lower()}")
    if _IDENTIFIER.search(text) and _CALL_OF_CALL.search(text):
        raise NotReadOnlyError("IDENTIFIER in the place of a function")
    if _SCRIPT.search(text):
        raise NotReadOnlyError("a command of the shell after USING")
    for form, what in _READ_DIFFERENTLY.items():
        if re.search(form, text, re.DOTALL):
            raise NotReadOnlyError(what)
    _check(text.strip().rstrip(";"), frozenset(name.lower() for name in functions))


def _check(text: str, functions: frozenset[str]) -> None:
    first, rest = _first_word(text)
    second, after = _first_word(rest)
    if first == "EXPLAIN":
        _check(after if second in _EXPLAINED else rest, functions)
    elif first in _NAMING and second == "QUERY":
        _check(after, functions)
    elif first in _NAMING and second in _QUERIES:
        _check_query(rest, functions)
    elif first in _NAMING or first == "SHOW":
        if first in _NAMING and second in _OF_PATHS:
            raise NotReadOnlyError(f"{first} {second}, which takes a path")
        if other := _NO_NAME.search(rest):
            raise NotReadOnlyError(f"{shown(other[0])} in {first}, where a table of the lake has one plain name")
    else:
        _check_query(text, functions)


def _first_word(text: str) -> tuple[str, str]:
    """The first word of a text in capitals, or its first bracket, and the rest; no word if a comment comes first."""
    found = re.match(r"\s*(\w+|\()", text)
    return (found[1].upper(), text[found.end() :]) if found else ("", text)


def _check_query(query: str, functions: frozenset[str]) -> None:
    if _first_word(query)[0] not in {*_QUERIES, ""}:
        raise NotReadOnlyError(f"{shown(query.split(maxsplit=1)[0])} as its first word")
    try:
        trees = sqlglot.parse(query, read="spark")
    except ParseError as error:
        place = error.errors[0] if error.errors else {}
        raise NotReadOnlyError(f"{shown(place.get('highlight'))} in line {place.get('line')}, column {place.get('col')}") from error
    except (SqlglotError, RecursionError, ValueError) as error:
        raise NotReadOnlyError("a query that cannot be parsed") from error
    if len(trees) != 1:
        raise NotReadOnlyError("more than one statement")
    (tree,) = trees
    if not isinstance(tree, _READING):
        raise NotReadOnlyError("no statement" if tree is None else f"a statement of the kind {type(tree).__name__.upper()}")
    for node in tree.walk():
        if isinstance(node, _WRITING):
            raise NotReadOnlyError(f"{type(node).__name__.upper()} in a query")
        if isinstance(node, exp.Table):
            _check_table(node, functions)


def _check_table(table: exp.Table, functions: frozenset[str]) -> None:
    if table.args.get("db") or table.args.get("catalog"):
        raise NotReadOnlyError(f"the table {shown(table.sql('spark'))}, where a table of the lake has one plain name")
    called = table.this
    if isinstance(called, exp.Func):
        name = (called.name if isinstance(called, exp.Anonymous) else called.sql_name()).lower()
        if name not in _ROW_FUNCTIONS | functions and any(one.is_string for one in called.find_all(exp.Literal)):
            raise NotReadOnlyError(f"the function {shown(name)} in the place of a table, with a text that may be a path")
