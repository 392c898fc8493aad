"""The rules' functions for DuckDB: macros for those that SQL defines, and functions over Arrow arrays for those in Python.

Rule: only a query that calls a function imports this module, as the modules of the rules load numba, which takes 0.3 s.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import duckdb
import pyarrow as pa
from duckdb import func
from sqlglot import exp

from pipeline.embedded.opened_tables import quoted
from pipeline.embedded.table_functions import with_parameters
from pipeline.embedded.translation import BINARY_TEXT, AnsiSpark, duckdb_sql, parsed
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
    body = duckdb_sql(with_parameters(parsed(one.body), typed))
    connection.execute(f"CREATE MACRO {quoted(one.name)}({', '.join(map(quoted, given))}) AS CAST({body} AS {one.returns})")
