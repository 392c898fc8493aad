"""SQL92 filters: compile an expression, and evaluate it for one message or many.

Broker source (4.9.3): SqlFilter.compile, MessageEvaluationContext, ExpressionMessageFilter.isMatchedByCommitLog.
Rule: a message matches if the expression is true; it does not if the result is false or null or the evaluation throws.
Surprises: an expression that does not compile gives no filter at all, so a pull with it gets every message. A message without
properties is evaluated like any other, so `a IS NULL` is true of it.

Beside this module: sql92_parser has the grammar, sql92_expression the checks at compile time, sql92_program the compiled program,
sql92_values how values compare, and sql92_columns the same for many messages at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from udfs.filters import sql92_parser
from udfs.filters.sql92_columns import Codes, Columns, codes_of
from udfs.filters.sql92_expression import Sql92Error
from udfs.filters.sql92_program import Instruction, code_of, property_names
from udfs.filters.sql92_values import ERROR, NULL, TRUE

__all__ = ["Compiled", "EvaluationError", "Sql92Error", "compile_expression", "matches"]


class EvaluationError(Exception):
    """An expression whose evaluation throws in the broker; the message does not match."""

    def __init__(self, expression: str) -> None:
        super().__init__(expression)
        self.expression = expression

    def __str__(self) -> str:
        return (
            f"filter {self.expression[:200]!r}: expected numbers in the properties that it compares with numbers, and no property right of "
            "a condition, found a message on which the broker throws; it counts as no match"
        )


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled expression: its text, its instructions for a stack of codes, and the names of the properties that it reads, sorted."""

    expression: str
    program: tuple[Instruction, ...]
    properties: tuple[str, ...]

    def evaluate(self, properties: Mapping[str, str | None] | None) -> bool | None:
        """Return the expression's value for one message; None is null. A property of None counts as missing.

        Raises:
            EvaluationError: the broker throws.
        """
        code = code_of(self.program, properties or {})
        if code == ERROR:
            raise EvaluationError(self.expression)
        return None if code == NULL else code == TRUE

    def matches_many(self, columns: Columns, count: int) -> Codes:
        """Return the expression's value for each of `count` messages: 1 true, 0 false, -1 null, -2 if the broker throws.

        `columns` has `count` texts for each of `properties`; a property that no message has may be left out.
        """
        return codes_of(self.program, columns, count)


@lru_cache(maxsize=4096)
def compile_expression(text: str, *, text_operators: bool = False) -> Compiled | Sql92Error:
    """Return the compiled expression, as SqlFilter.compile does, or the error for which the broker does not compile it.

    `text_operators` is the value of TEXT_OPERATORS in the broker's version.
    """
    try:
        program = tuple(sql92_parser.parse(text, text_operators=text_operators).code)
    except Sql92Error as error:
        return error.with_traceback(None)
    return Compiled(text, program, tuple(sorted(set(property_names(program)))))


def matches(expression: str | None, properties: Mapping[str, str | None] | None, *, text_operators: bool = False) -> bool | None:
    """Return whether a message matches an expression; None if the value is null, the evaluation throws, or it does not compile."""
    compiled = None if expression is None else compile_expression(expression, text_operators=text_operators)
    if not isinstance(compiled, Compiled):
        return None
    try:
        return compiled.evaluate(properties)
    except EvaluationError:
        return None
