"""Check that the embedded engine takes a query in Spark's SQL, by an allow-list of the parts of a query, and name its columns.

Rule: what is not listed here is left to Spark, because the engines may differ: decimals, rounding, casts of texts, regular expressions,
upper and lower case, dates. The views of a lake are not checked; tests compare them row by row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlglot import exp

from pipeline.embedded.database import rule_functions
from pipeline.embedded.opened_tables import NotSupportedError
from pipeline.embedded.translation import is_binary
from pipeline.sql.statements import FUNCTIONS

_CLAUSES: Final = (
    *(exp.Select, exp.From, exp.Join, exp.Where, exp.Group, exp.Having, exp.Order, exp.Ordered, exp.Limit, exp.Offset, exp.Distinct),
    *(exp.Subquery, exp.CTE, exp.With, exp.Table, exp.TableAlias, exp.Alias, exp.Union, exp.Intersect, exp.Except, exp.Values, exp.Tuple),
    *(exp.Window, exp.WindowSpec, exp.Filter, exp.Hint, exp.Kwarg, exp.Var),
)
_OPERATORS: Final = (
    *(exp.Column, exp.Identifier, exp.Star, exp.Literal, exp.HexString, exp.Boolean, exp.Null, exp.Paren, exp.Bracket, exp.Dot, exp.Array),
    exp.VarMap,
    *(exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.Is, exp.Between, exp.In, exp.Like),
    *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.BitwiseAnd, exp.BitwiseOr, exp.Case, exp.If, exp.Exists),
)
# sqlglot's functions, with Spark's names
_FUNCTIONS: Final[dict[type[exp.Expr], str]] = {
    exp.Count: "count",
    exp.CountIf: "count_if",
    exp.Sum: "sum",
    exp.Min: "min",
    exp.Max: "max",
    exp.Avg: "avg",
    exp.ArgMax: "max_by",
    exp.ArgMin: "min_by",
    exp.Coalesce: "coalesce",
    exp.Greatest: "greatest",
    exp.Least: "least",
    exp.Nullif: "nullif",
    exp.Length: "length",
    exp.StartsWith: "startswith",
    exp.EndsWith: "endswith",
    exp.Contains: "contains",
    exp.ArrayContains: "array_contains",
    exp.ArraySize: "size",
    exp.MapKeys: "map_keys",
    exp.SafeAdd: "try_add",
    exp.SafeSubtract: "try_subtract",
    exp.SafeMultiply: "try_multiply",
    exp.SafeDivide: "try_divide",
    exp.RowNumber: "row_number",
    exp.Rank: "rank",
    exp.DenseRank: "dense_rank",
}
_TAKEN: Final = (*_CLAUSES, *_OPERATORS, *_FUNCTIONS, exp.Cast, exp.DataType, exp.Anonymous)
_CALLS: Final = frozenset({*FUNCTIONS, "timestamp_millis"})
_CASTS: Final = frozenset({"BIGINT", "INT", "DOUBLE", "STRING"})


def require_supported(tree: exp.Expr) -> None:
    """Check that the embedded engine answers a query as Spark does.

    Raises:
        NotSupportedError: a part of the query is left to Spark; the message names it.
    """
    for node in tree.walk():
        if type(node) not in _TAKEN:
            raise NotSupportedError(f"the query has {_shown(node)}, which is left to Spark")
        reason = _reason(node)
        if reason is not None:
            raise NotSupportedError(f"{reason} is left to Spark: {_shown(node)}")


def _shown(node: exp.Expr) -> str:
    text = node.sql(dialect="spark", comments=False)
    return text if len(text) <= 60 else f"{text[:60]} ..."


def _reason(node: exp.Expr) -> str | None:
    """The part of a node that is left to Spark; None if the embedded engine takes the node."""
    if isinstance(node, exp.Anonymous):
        return None if node.name.lower() in _CALLS or node.name.lower() in rule_functions() else f"the function {node.name}"
    if isinstance(node, exp.Literal):
        return _number_reason(node)
    if isinstance(node, exp.Cast):
        return _cast_reason(node)
    if isinstance(node, exp.Star) and (node.args.get("except_") or node.args.get("replace") or _joined_by_names(node)):
        return "the order of columns of *"
    if isinstance(node, exp.Table):
        return None if not (node.db or node.args.get("joins") or node.args.get("version") or node.args.get("sample")) else "this table"
    if isinstance(node, exp.Like) and (not isinstance(node.expression, exp.Literal) or "\\" in node.expression.name):
        return "a pattern with \\, or one that is computed,"
    if isinstance(node, exp.With) and node.recursive:
        return "WITH RECURSIVE"
    if isinstance(node, exp.Join) and (node.method or node.args.get("side") in {"SEMI", "ANTI"} or node.kind in {"SEMI", "ANTI"}):
        return "this join"
    if isinstance(node, exp.Group) and any(node.args.get(name) for name in ("rollup", "cube", "grouping_sets", "totals")):
        return "GROUP BY with more than columns"
    if isinstance(node, exp.Select):
        return next((f"{name} of a query" for name in _OTHER_CLAUSES if node.args.get(name)), None)
    return None


_OTHER_CLAUSES: Final = ("laterals", "pivots", "qualify", "sample", "sort", "cluster", "distribute", "into", "locks", "match", "kind")
_COMPARED: Final = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between, exp.Limit)


def _number_reason(literal: exp.Literal) -> str | None:
    if literal.is_string or literal.name.isdecimal():
        return None if literal.is_string or int(literal.name) < 2**63 else "a number of more than 64 bits"
    # 1.5 is a decimal in both engines, but their results have different types; 1e3 and 1.5D are doubles
    in_double = "e" in literal.name.lower() or isinstance(literal.parent, exp.Cast | exp.Kwarg)
    return None if in_double or isinstance(literal.parent, _COMPARED) else "arithmetic with decimals"


def _cast_reason(cast: exp.Cast) -> str | None:
    kind = cast.to.sql(dialect="spark").upper()
    inner = cast.this.unnest()
    if type(cast) is exp.Cast and kind in _CASTS:
        if kind == "STRING" and is_binary(inner):
            return None
        if isinstance(inner, exp.Null | exp.Count) or inner.is_int or (isinstance(inner, exp.Literal) and kind == "DOUBLE"):
            return None
    return "this cast"


def _joined_by_names(star: exp.Star) -> bool:
    select = star.find_ancestor(exp.Select)
    joins = [] if select is None else select.args.get("joins") or []
    is_shown = star.parent is select or isinstance(star.parent, exp.Column)  # * or name.*
    return is_shown and any(join.args.get("using") for join in joins)


def with_names(tree: exp.Expr) -> exp.Expr:
    """The query with the names that Spark gives to columns without one.

    Raises:
        NotSupportedError: Spark makes up a name from the text of an expression.
    """
    named = tree.copy()
    for select in list(named.find_all(exp.Select)):
        shown = [
            one if isinstance(one, exp.Alias | exp.Column | exp.Star) else exp.alias_(one, _name(one), quoted=True)
            for one in select.expressions
        ]
        select.set("expressions", shown)
    return named


def _name(node: exp.Expr) -> str:
    """The name that Spark gives to a column."""
    if isinstance(node, exp.Column) or (isinstance(node, exp.Literal) and (node.is_string or node.name.isdecimal())):
        return node.name
    if isinstance(node, exp.Null):
        return "NULL"
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
        return "count(1)"
    if type(node) in _FUNCTIONS or isinstance(node, exp.Anonymous):
        name = node.name if isinstance(node, exp.Anonymous) else _FUNCTIONS[type(node)]
        return f"{name}({', '.join(_arguments(node))})"
    raise NotSupportedError(f"a name for {_shown(node)}, which has no AS, is left to Spark")


def _arguments(node: exp.Expr) -> Iterator[str]:
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Distinct):
        yield "DISTINCT " + ", ".join(map(_name, node.this.expressions))
        return
    for value in node.iter_expressions():
        if isinstance(value, exp.Distinct | exp.Kwarg):
            raise NotSupportedError(f"a name for {_shown(node)}, which has no AS, is left to Spark")
        yield _name(value)
