"""The rules' functions for DuckDB: macros of those that SQL defines, and functions over Arrow arrays of those in Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import duckdb
import pyarrow as pa
from duckdb import func
from sqlglot import exp

from pipeline.embedded.opened_tables import NotSupportedError, quoted
from pipeline.embedded.translation import BINARY_TEXT, AnsiSpark, duckdb_sql, parsed
from pipeline.sql.definitions import Documented, body_of, documented
from pipeline.sql.statements import FUNCTIONS, view_sql
from udfs.sql_statements import SQL_FUNCTIONS

MACROS: Final = {one.name: one for one in SQL_FUNCTIONS}


def _matches(expressions: pa.ChunkedArray, properties: pa.ChunkedArray) -> pa.Array:
    from udfs.filters.sql92_values import TRUE
    from udfs.sql_kernels import sql92_codes

    maps, found = [None if one is None else dict(one) for one in properties.to_pylist()], [None] * len(properties)
    rows: dict[str, list[int]] = {}
    for row, text in enumerate(expressions.to_pylist()):
        if text is not None:
            rows.setdefault(text, []).append(row)
    for text, places in rows.items():
        for row, code in zip(places, sql92_codes(text, [maps[row] for row in places]).tolist(), strict=True):
            found[row] = None if code < 0 else code == TRUE
    return pa.array(found, pa.bool_())


def _batch_cut(
    sizes: pa.ChunkedArray,
    in_disk: pa.ChunkedArray,
    max_msg_nums: pa.ChunkedArray,
    max_bytes_in_memory: pa.ChunkedArray,
    max_count_in_memory: pa.ChunkedArray,
    max_bytes_in_disk: pa.ChunkedArray,
    max_count_in_disk: pa.ChunkedArray,
) -> pa.Array:
    import numpy as np

    from udfs.sql_kernels import batch_cut

    def whole(values: list[Any] | None, kind: Any) -> Any:
        return None if values is None or None in values else np.asarray(values, kind)

    numbers = (max_msg_nums, max_bytes_in_memory, max_count_in_memory, max_bytes_in_disk, max_count_in_disk)
    rows = zip(*(column.to_pylist() for column in (sizes, in_disk, *numbers)), strict=True)
    return pa.array([batch_cut(whole(size, np.int64), whole(disk, np.bool_), row) for size, disk, *row in rows], pa.int32())


def _uncompressed(bodies: pa.ChunkedArray, flags: pa.ChunkedArray) -> pa.Array:
    from udfs.sql_kernels import uncompressed

    rows = zip(bodies.to_pylist(), flags.to_pylist(), strict=True)
    return pa.array([None if body is None or flag is None else uncompressed(body, flag) for body, flag in rows], pa.binary())


# a half surrogate pair; Java puts one replacement character in its place, Python three
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def java_text(value: bytes) -> str:
    """The text that Java makes of bytes in UTF-8: replacement characters stand for what is not UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub(b"\xff", value).decode("utf-8", "replace")


def _binary_text(values: pa.ChunkedArray) -> pa.Array:
    return pa.array([None if one is None else java_text(one) for one in values.to_pylist()], pa.string())


# name -> function, types of its parameters, type of its result
PYTHON: Final[dict[str, tuple[Callable[..., pa.Array], list[str], str]]] = {
    "sql92_matches": (_matches, ["VARCHAR", "MAP(VARCHAR, VARCHAR)"], "BOOLEAN"),
    "batch_cut": (_batch_cut, ["INTEGER[]", "BOOLEAN[]", *["INTEGER"] * 5], "INTEGER"),
    "uncompress_body": (_uncompressed, ["BLOB", "INTEGER"], "BLOB"),
    BINARY_TEXT: (_binary_text, ["BLOB"], "VARCHAR"),
}
NAMES: Final = frozenset({*MACROS, *PYTHON})


def create_function(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Define one of the functions NAMES for a connection."""
    if name in PYTHON:
        function, parameters, returns = PYTHON[name]
        kinds: list[Any] = [duckdb.sqltype(kind) for kind in parameters]
        connection.create_function(name, function, kinds, duckdb.sqltype(returns), type=func.ARROW, null_handling=func.SPECIAL)
        return
    one = MACROS[name]
    given = dict(parameter.split(" ", 1) for parameter in one.parameters.split(", "))
    # Spark casts arguments to the types of the parameters
    typed = {parameter: exp.cast(exp.column(parameter), kind, dialect=AnsiSpark) for parameter, kind in given.items()}
    body = duckdb_sql(_with_parameters(parsed(one.body), typed))
    connection.execute(f"CREATE MACRO {quoted(one.name)}({', '.join(map(quoted, given))}) AS CAST({body} AS {one.returns})")


def with_table_functions(tree: exp.Expr) -> exp.Expr:
    """A query in which each call of a function of pipeline/sql that gives rows is replaced by the function's query.

    Raises:
        NotSupportedError: the arguments do not fit, or are no constants.
    """
    copy = tree.copy()
    for call in [
        table for table in copy.find_all(exp.Table) if isinstance(table.this, exp.Anonymous) and table.this.name.lower() in FUNCTIONS
    ]:
        name = call.this.name.lower()
        statement = view_sql(name)
        defined = documented(statement)
        query = _with_parameters(parsed(body_of(statement)), _arguments(call.this, defined.parameters), name)
        names = exp.TableAlias(this=exp.to_identifier("found"), columns=[exp.to_identifier(one.name) for one in defined.columns])
        columns = [exp.alias_(exp.cast(exp.column(one.name), one.type, dialect=AnsiSpark), one.name) for one in defined.columns]
        rows = exp.select(*columns).from_(exp.Subquery(this=query, alias=names))
        alias = call.args.get("alias") or exp.TableAlias(this=exp.to_identifier(name))
        call.replace(exp.Subquery(this=rows, alias=alias.copy()))
    return copy


def _arguments(call: exp.Anonymous, parameters: Sequence[Documented]) -> dict[str, exp.Expr]:
    """The value of each parameter, cast to its type; the default where the call has none."""
    types = {one.name: one.type.split(" DEFAULT ") for one in parameters}
    given: dict[str, exp.Expr] = {}
    for place, value in enumerate(call.expressions):
        named = isinstance(value, exp.Kwarg)
        wanted = value.name if named else parameters[place].name if place < len(parameters) else ""
        name = next((one for one in types if one.lower() == wanted.lower()), None)
        constant = value.expression if named else value
        if name is None or name in given or constant.find(exp.Column, exp.Query):
            raise NotSupportedError(f"the arguments of {call.name} do not fit its parameters {', '.join(types)}")
        given[name] = constant
    values = {name: given.get(name) or parsed(default) for name, (_, default) in types.items()}
    return {name: exp.cast(values[name], kind, dialect=AnsiSpark) for name, (kind, _) in types.items()}


def _with_parameters(body: exp.Expr, values: Mapping[str, exp.Expr], owner: str = "") -> exp.Expr:
    """A body whose parameters, columns of `owner`, are replaced by values."""
    for column in list(body.find_all(exp.Column)):
        if column.table == owner and column.name in values:
            column.replace(values[column.name].copy())
    return body
