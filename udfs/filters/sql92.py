"""SQL92 filters: what the broker compiles, and what it makes of a message.

Broker source (4.9.3): SqlFilter.compile, MessageEvaluationContext, ExpressionMessageFilter.isMatchedByCommitLog.
Rule: a message is given where the expression is true; null and a throw are as good as false.
Surprises: an expression that does not compile gives no filter at all, so that a pull that brings it gets every message. A message without
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
    """An expression on whose evaluation the broker throws, which is no match.

    Attributes:
        expression: its text.
    """

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
    """A compiled expression.

    Attributes:
        expression: its text.
        program: what it does, for a stack of codes.
        properties: names of the properties that it looks at, in order.
    """

    expression: str
    program: tuple[Instruction, ...]
    properties: tuple[str, ...]

    def evaluate(self, properties: Mapping[str, str | None] | None) -> bool | None:
        """What the expression is of one message; None is its null.

        Args:
            properties: of the message; None, or None as a value, is a message without them.

        Raises:
            EvaluationError: the broker throws.
        """
        code = code_of(self.program, properties or {})
        if code == ERROR:
            raise EvaluationError(self.expression)
        return None if code == NULL else code == TRUE

    def matches_many(self, columns: Columns, count: int) -> Codes:
        """What the expression is of many messages: 1 true, 0 false, -1 null, -2 where the broker throws.

        Args:
            columns: `count` texts of each of `properties`; one that no message has may be left out.
            count: how many messages.
        """
        return codes_of(self.program, columns, count)


@lru_cache(maxsize=4096)
def compile_expression(text: str) -> Compiled | Sql92Error:
    """Compile an expression, as SqlFilter.compile does; the error says why the broker does not compile it."""
    try:
        program = tuple(sql92_parser.parse(text).code)
    except Sql92Error as error:
        return error.with_traceback(None)
    return Compiled(text, program, tuple(sorted(set(property_names(program)))))


def matches(expression: str | None, properties: Mapping[str, str | None] | None) -> bool | None:
    """Whether a message matches; None where the evaluation is null or throws, or the expression does not compile."""
    compiled = None if expression is None else compile_expression(expression)
    if not isinstance(compiled, Compiled):
        return None
    try:
        return compiled.evaluate(properties)
    except EvaluationError:
        return None
