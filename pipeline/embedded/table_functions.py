"""Calls of the functions of pipeline/sql that give rows, which become subqueries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from pipeline.embedded.opened_tables import NotSupportedError
from pipeline.embedded.translation import AnsiSpark, parsed
from pipeline.sql.definitions import Documented, body_of, documented
from pipeline.sql.statements import FUNCTIONS, view_sql


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
        query = with_parameters(parsed(body_of(statement)), _arguments(call.this, defined.parameters), name)
        names = exp.TableAlias(this=exp.to_identifier("found"), columns=[exp.to_identifier(one.name) for one in defined.columns])
        columns = [exp.alias_(exp.cast(exp.column(one.name), one.type, dialect=AnsiSpark), one.name) for one in defined.columns]
        rows = exp.select(*columns).from_(exp.Subquery(this=query, alias=names))
        alias = call.args.get("alias") or exp.TableAlias(this=exp.to_identifier(name))
        call.replace(exp.Subquery(this=rows, alias=alias.copy()))
    return copy


def _arguments(call: exp.Anonymous, parameters: Sequence[Documented]) -> dict[str, exp.Expr]:
    """The value of each parameter, cast to its type; the default if the call has none."""
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


def with_parameters(body: exp.Expr, values: Mapping[str, exp.Expr], owner: str = "") -> exp.Expr:
    """Replace the parameters in a body by values; the parameters are columns of `owner`."""
    for column in list(body.find_all(exp.Column)):
        if column.table == owner and column.name in values:
            column.replace(values[column.name].copy())
    return body
