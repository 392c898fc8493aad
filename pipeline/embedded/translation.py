"""SQL of Spark, translated for DuckDB.

sqlglot parses and writes the two dialects. The functions here replace what sqlglot 30 leaves unchanged although the engines differ:
overflow and division by zero (Spark's ANSI mode raises an error), NULLs in arrays and aggregates, places in arrays (Spark counts from 0
in some functions), texts of binary values.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, ClassVar, Final

from sqlglot import exp, parse_one
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser

# Python function that gives the text of binary values as Spark shows it
BINARY_TEXT: Final = "pullsim_binary_text"

_BIGINT, _INT = "BIGINT", "INT"
# whitespace and control characters that Spark trims before it casts a text to a number
_TRIMMED = "[\\x00-\\x20\\x7f]*"
# hex digits of the UTF-16 units of a text; DuckDB encodes UTF-8 only
_UTF16_HEX = """
array_to_string(list_transform(string_split(text, ''), lambda c :
  CASE WHEN unicode(c) < 65536 THEN printf('%04X', unicode(c))
  ELSE printf('%04X%04X', 55296 + ((unicode(c) - 65536) >> 10), 56320 + ((unicode(c) - 65536) & 1023)) END), '')
"""


# statements that are not parsed are left to Spark, without a warning
logging.getLogger("sqlglot").setLevel(logging.ERROR)


class AnsiSpark(Spark):
    """Spark's dialect in ANSI mode: CAST raises an error, only TRY_CAST gives NULL; a doubled quote in a text is a quote."""

    class Tokenizer(Spark.Tokenizer):
        """Tokenizer of Spark 4, in which 'a''b' is one text."""

        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']

    class Parser(SparkParser):
        """Parser that keeps CAST and TRY_CAST apart."""

        STRICT_CAST = True


def parsed(text: str) -> exp.Expr:
    """The tree of one statement in Spark's SQL.

    Raises:
        sqlglot.errors.SqlglotError: the text is not one statement of SQL.
    """
    return parse_one(text, dialect=AnsiSpark)


def duckdb_sql(tree: exp.Expr) -> str:
    """The SQL of DuckDB for a tree of Spark's SQL; the tree is not changed."""
    copy = exp.Paren(this=tree.copy())  # so that the root can be replaced, too
    for hint in list(copy.find_all(exp.Hint)):
        hint.pop()  # Spark's plans
    for select in copy.find_all(exp.Select):
        _order_by_given_names(select)
    for node in reversed(list(copy.walk())):
        if change := _CHANGES.get(type(node)) or (_CALLS.get(node.name.lower()) if isinstance(node, exp.Anonymous) else None):
            change(node)
    return str(copy.this.sql(dialect=DuckDB, identify=True, comments=False))


def _order_by_given_names(select: exp.Select) -> None:
    """Replace the query's own names of columns in expressions of ORDER BY, because DuckDB prefers columns of the table there."""
    given = {one.alias.lower(): one.this for one in select.expressions if isinstance(one, exp.Alias)}
    order = select.args.get("order")
    for ordered in [] if order is None else order.expressions:
        for column in list(ordered.this.find_all(exp.Column)) if not isinstance(ordered.this, exp.Column) else []:
            is_argument = column.find_ancestor(exp.AggFunc, exp.Select) is not select
            if column.name.lower() in given and not column.table and not is_argument:
                column.replace(exp.paren(given[column.name.lower()], copy=True))


def duck(text: str, /, **parts: exp.Expr | None) -> exp.Expr:
    """The tree of an expression in DuckDB's SQL, in which columns with the names of `parts` are replaced by the parts."""
    tree = exp.Paren(this=parse_one(text, dialect=DuckDB))
    for column in list(tree.find_all(exp.Column)):
        part = parts.get(column.name) if not column.table else None
        if part is not None:
            column.replace(part.copy() if isinstance(part, exp.Column | exp.Literal | exp.Func) else exp.paren(part, copy=True))
    return tree


def _call(name: str, *arguments: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _whole_call(node: exp.Expr) -> exp.Expr:
    """An aggregate or window function with its FILTER, IGNORE NULLS and OVER."""
    while isinstance(node.parent, exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.Window) and node.arg_key == "this":
        node = node.parent
    return node


def _tried(kind: type[exp.Binary]) -> Callable[[Any], None]:
    def change(node: Any) -> None:
        node.replace(_call("try", kind(this=exp.paren(node.this), expression=exp.paren(node.expression))))

    return change


def _try_divide(node: exp.SafeDivide) -> None:
    node.replace(duck("CASE WHEN y <> 0 THEN x / y END", x=node.this, y=node.expression))


def _divide(node: exp.Div) -> None:
    divisor = node.expression.unnest()
    if not (isinstance(divisor, exp.Literal) and float(divisor.this) != 0):
        zero = "division by zero; use try_divide to get NULL instead"
        node.replace(duck(f"CASE WHEN y = 0 THEN error('{zero}') ELSE x / y END", x=node.this, y=node.expression))
    else:
        node.set("typed", None)
        node.set("safe", None)


def _try_sum(node: exp.Anonymous) -> None:
    node.replace(summed := exp.Sum(this=node.expressions[0]))
    whole = _whole_call(summed)
    whole.replace(exp.TryCast(this=whole.copy(), to=exp.DataType.build(_BIGINT)))


def _cast_to(kind: str) -> Callable[[exp.Expr], None]:
    """A change that casts the result of a function to `kind`, its type in Spark."""

    def change(node: exp.Expr) -> None:
        whole = _whole_call(node)
        whole.replace(exp.cast(whole.copy(), kind))

    return change


def _count_if(node: exp.CountIf) -> None:
    # DuckDB's count_if is NULL if every condition is NULL
    node.replace(exp.Count(this=exp.case().when(node.this, exp.Literal.number(1))))


def _avg(node: exp.Avg) -> None:
    # Spark adds doubles; DuckDB adds whole numbers, without rounding
    of = node.this.expressions if isinstance(node.this, exp.Distinct) else [node.this]
    for one in of:
        one.replace(exp.cast(one.copy(), "DOUBLE"))


def _over_known(kind: type[exp.Expr]) -> Callable[[Any], None]:
    # sqlglot drops IGNORE NULLS of first and last, which DuckDB takes in a window
    def change(node: Any) -> None:
        if isinstance(node.parent, exp.IgnoreNulls) and isinstance(node.parent.parent, exp.Window):
            node.replace(kind(this=node.this))

    return change


def _first_by(name: str) -> Callable[[Any], None]:
    # Spark's max_by gives NULL if the value beside the maximum is NULL; arg_max takes another row
    return lambda node: node.replace(_call(name, node.this, node.expression)) and None


def _collected(node: exp.ArrayAgg) -> None:
    """Values without NULLs; no value gives an empty array."""
    value = node.this
    kept = exp.Filter(this=_call("list", value.copy()), expression=exp.Where(this=exp.not_(exp.paren(value).is_(exp.null()))))
    node.replace(exp.Coalesce(this=kept, expressions=[exp.Array()]))


def _filtered(node: exp.ArrayFilter) -> None:
    if isinstance(node.expression, exp.Lambda) and len(node.expression.expressions) == 2:
        place = node.expression.expressions[1].name
        for found in list(node.expression.this.find_all(exp.Column, exp.Identifier)):
            if found.name == place and not isinstance(found.parent, exp.Column | exp.Dot):
                found.replace(exp.paren(exp.Sub(this=found.copy(), expression=exp.Literal.number(1))))


def _exists(node: exp.Exists) -> None:
    test = node.args.get("expression")
    if isinstance(test, exp.Lambda):
        unknown = exp.Lambda(this=exp.paren(test.this.copy()).is_(exp.null()), expressions=[one.copy() for one in test.expressions])
        true, null = exp.ArrayFilter(this=node.this, expression=test), exp.ArrayFilter(this=node.this, expression=unknown)
        text = "CASE WHEN x IS NULL THEN NULL WHEN len(t) > 0 THEN TRUE WHEN len(n) > 0 THEN NULL ELSE FALSE END"
        node.replace(duck(text, x=node.this, t=true, n=null))


def _contains(node: exp.ArrayContains) -> None:
    text = (
        "CASE WHEN x IS NULL OR y IS NULL THEN NULL WHEN list_contains(x, y) THEN TRUE "
        "WHEN len(list_filter(x, lambda one : one IS NULL)) > 0 THEN NULL ELSE FALSE END"
    )
    node.replace(duck(text, x=node.this, y=node.expression))


def _get(node: exp.Anonymous) -> None:
    array, place = node.expressions
    node.replace(duck("CASE WHEN i >= 0 THEN list_extract(x, CAST(i AS BIGINT) + 1) END", x=array, i=place))


def _element_at(node: exp.Anonymous) -> None:
    array, place = node.expressions
    node.replace(duck("list_extract(x, i)" if isinstance(array, exp.Array) else "map_extract_value(x, i)", x=array, i=place))


def _slice(node: exp.ArraySlice) -> None:
    text = "CASE WHEN a IS NOT NULL AND n IS NOT NULL THEN list_slice(x, a, a + n - 1) END"
    node.replace(duck(text, x=node.this, a=node.args["start"], n=node.args["end"]))


def _utf16_hex(node: exp.Hex) -> None:
    if isinstance(node.this, exp.Encode):
        assert node.this.args["charset"].name.upper() == "UTF-16BE"
        node.replace(duck(_UTF16_HEX, text=node.this.this))


def _from_base(node: exp.Anonymous) -> None:
    digits, base, other = node.expressions
    assert (base.name, other.name) == ("16", "10")
    node.replace(duck("CAST(CAST('0x' || x AS BIGINT) AS VARCHAR)", x=digits))


def _decode(node: exp.Decode) -> None:
    assert node.args["charset"].name.upper() == "UTF-8"
    node.replace(_call("decode", node.this))


def _is_valid_utf8(node: exp.Expr) -> None:
    text = _argument(node)
    if isinstance(text, exp.Anonymous) and text.name == BINARY_TEXT:
        node.replace(duck("CASE WHEN x IS NOT NULL THEN try(decode(x)) IS NOT NULL END", x=text.expressions[0]))


def _valid_utf8(node: exp.Expr) -> None:
    text = _argument(node)
    if isinstance(text, exp.Anonymous) and text.name == BINARY_TEXT:
        node.replace(_call("try", _call("decode", text.expressions[0])))


def _argument(node: exp.Expr) -> exp.Expr:
    first = node.expressions[0] if isinstance(node, exp.Anonymous) else node.this
    assert isinstance(first, exp.Expr)
    return first


def _cast(node: exp.Cast) -> None:
    kind = node.to.sql(dialect=DuckDB).upper()
    if isinstance(node, exp.TryCast) and kind in {_BIGINT, _INT} and isinstance(node.this, exp.Bracket | exp.Column):
        # DuckDB takes '1.5' and '1_0' for numbers, too
        text = f"TRY_CAST(CASE WHEN regexp_full_match(x, '{_TRIMMED}[+-]?[0-9]+{_TRIMMED}') THEN "
        text += f"regexp_extract(x, '[+-]?[0-9]+') END AS {kind})"
        node.replace(duck(text, x=node.this))
    elif kind in {_BIGINT, _INT} and node.this.find(exp.Div, exp.Avg, exp.Floor, exp.Ceil):
        node.set("this", _call("trunc", node.this))  # DuckDB rounds
    elif kind == "TEXT" and is_binary(node.this):
        node.replace(_call(BINARY_TEXT, node.this))


def is_binary(node: exp.Expr) -> bool:
    """Whether an expression is known to be of type BINARY."""
    return node.name == "body" if isinstance(node, exp.Column) else isinstance(node, exp.Anonymous) and node.name == "uncompress_body"


def _timestamp_millis(node: exp.Anonymous) -> None:
    node.replace(duck("make_timestamptz(x * 1000)", x=node.expressions[0]))


def _unix_millis(node: exp.UnixMillis) -> None:
    node.replace(duck("epoch_us(x) // 1000", x=node.this))  # epoch_ms rounds; no query asks for times before 1970


def _json_map(node: exp.VarMap) -> None:
    node.replace(_call("map", node.args["keys"], node.args["values"]))


def _like(node: exp.Like) -> None:
    if not isinstance(node.parent, exp.Escape):
        node.replace(exp.Escape(this=node.copy(), expression=exp.Literal.string("\\")))


_CHANGES: Final[dict[type[exp.Expr], Callable[[Any], None]]] = {
    exp.SafeAdd: _tried(exp.Add),
    exp.SafeSubtract: _tried(exp.Sub),
    exp.SafeMultiply: _tried(exp.Mul),
    exp.SafeDivide: _try_divide,
    exp.Div: _divide,
    exp.CountIf: _count_if,
    exp.Avg: _avg,
    exp.First: _over_known(exp.FirstValue),
    exp.Last: _over_known(exp.LastValue),
    exp.ArgMax: _first_by("arg_max_null"),
    exp.ArgMin: _first_by("arg_min_null"),
    exp.ArrayAgg: _collected,
    exp.ArrayFilter: _filtered,
    exp.Exists: _exists,
    exp.ArrayContains: _contains,
    exp.ArraySlice: _slice,
    exp.ArraySize: _cast_to(_INT),
    exp.Length: _cast_to(_INT),
    exp.ByteLength: _cast_to(_INT),
    exp.RowNumber: _cast_to(_INT),
    exp.Rank: _cast_to(_INT),
    exp.DenseRank: _cast_to(_INT),
    exp.Hex: _utf16_hex,
    exp.Decode: _decode,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.VarMap: _json_map,
    exp.UnixMillis: _unix_millis,
    exp.Like: _like,
}
_CALLS: Final[dict[str, Callable[[Any], None]]] = {
    "try_sum": _try_sum,
    "timestamp_millis": _timestamp_millis,
    "get": _get,
    "element_at": _element_at,
    "conv": _from_base,
    "octet_length": _cast_to(_INT),
    "is_valid_utf8": _is_valid_utf8,
    "try_validate_utf8": _valid_utf8,
}
# functions of Spark that sqlglot does not know, and that are translated here
TRANSLATED_CALLS: Final = frozenset(_CALLS)
