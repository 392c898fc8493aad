"""Compile a SQL92 filter into a program of stack instructions, with the checks of the broker's parser.

Broker source (4.9.3): the create methods of ComparisonExpression, LogicExpression, UnaryExpression and ConstantExpression, which check
their operands when an expression is compiled; SelectorParser.asBooleanExpression.
Rules: an order comparison takes numbers and properties; an equality takes every operand except NULL; IN takes a plain property; AND, OR
and NOT take Boolean operands, and a bare property, which is cast.
Surprises: a bare property is false (or null), whatever its text. A minus sign makes a computed expression, so `a > -'x'` and
`a BETWEEN 5 AND -5` compile. Constants are checked as they are written: 0.0 is refused as too small for a decimal.

A program has no nesting, so no expression can overflow Python's stack. The broker's stack overflows when it compiles deep nesting (the
expression then does not compile) and when it evaluates long chains (the evaluation then throws). The exact limits depend on the broker's
threads and JIT compiler; the limits here have the same magnitude.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from udfs.filters.sql92_program import (
    Cast,
    Compare,
    Constant,
    In,
    Instruction,
    Logic,
    Part,
    Property,
    Push,
    Static,
    TextOperator,
    has_part,
)
from udfs.filters.sql92_values import ERROR, FALSE, NULL, TRUE, ComparisonError, Long, Value, compare, compare_values
from udfs.java import texts as java_texts

# Measured: a thread with a stack of 1 MiB (Java's default) compiled 850 brackets and 6000 signs or NOTs. It evaluated chains of 9000
# operators, but not of 12000.
BRACKET_COST: Final = 7
SIGN_COST: Final = 1
MAX_NESTING: Final = 6300
MAX_DEPTH: Final = 10_000


class Sql92Error(Exception):
    """Why the broker does not compile an expression."""


@dataclass(slots=True)
class Operand:
    """A part of an expression that the parser has read.

    Attributes:
        static: the property or constant; None if the operand is computed.
        code: the instructions that compute the operand; an enclosing expression may append to this list.
        boolean: whether the operand is a BooleanExpression of the broker.
        nesting: depth of the broker's stack when it compiles the operand, in calls.
        depth: depth of the broker's stack when it evaluates the operand, in calls.
    """

    static: Static | None
    code: list[Instruction]
    boolean: bool = False
    nesting: int = 0
    depth: int = 1

    @property
    def literal(self) -> Constant | None:
        """Return the operand's constant if it was written without a sign, for the checks of constants; else None."""
        return self.static if isinstance(self.static, Constant) and self.static.literal else None


def variable(name: str) -> Operand:
    """Return the operand of a property."""
    return Operand(Property(name), [])


def constant(value: Value, *, literal: bool = True) -> Operand:
    """Return the operand of a constant; true, false and NULL are Boolean."""
    return Operand(Constant(value, literal), [], boolean=literal and (value is None or isinstance(value, bool)))


def decimal(text: str) -> Operand:
    """Return the operand of a whole number: an Integer if the number is small enough, else a Long.

    Raises:
        Sql92Error: the number is too large for a Long.
    """
    digits = text.rstrip("lL")
    try:
        value = java_texts.long_value_of(digits)
    except java_texts.NumberFormatError as error:
        raise Sql92Error(str(error)) from error
    return constant(value if value <= java_texts.INTEGER_MAX else Long(value))


def floating_point(text: str) -> Operand:
    """Return the operand of a decimal.

    Raises:
        Sql92Error: the decimal is too large for a Double, or zero.
    """
    value = float(text)
    if not 0.0 < value <= sys.float_info.max:
        raise Sql92Error(f"expected a decimal above 0 that a Double can hold, found {text[:40]!r}")
    return constant(value)


def nested(operand: Operand, cost: int) -> Operand:
    """Return the operand inside a bracket or after a sign, with its nesting increased by `cost`.

    Raises:
        Sql92Error: the nesting is deeper than the broker's stack.
    """
    operand.nesting += cost
    if operand.nesting > MAX_NESTING:
        raise Sql92Error(f"expected brackets, signs and NOTs that nest no deeper than {MAX_NESTING} calls of the broker, found more")
    return operand


def _computed(operands: Sequence[Operand], *instructions: Instruction, boolean: bool = True) -> Operand:
    """Return an operand with the operands' code, then the instructions; it evaluates to a throw if the broker's stack would overflow."""
    code = operands[0].code
    for operand in operands[1:]:
        code.extend(operand.code)
    code.extend(instructions)
    depth = 1 + max(operand.depth for operand in operands)
    if depth > MAX_DEPTH:
        code, depth = [Push(ERROR)], 1
    return Operand(None, code, boolean, max(operand.nesting for operand in operands), depth)


def as_boolean(operand: Operand) -> Operand:
    """Return the operand as AND, OR and NOT take it: a property is cast.

    Raises:
        Sql92Error: the operand is neither Boolean nor a property.
    """
    if isinstance(operand.static, Property):
        return _computed([operand], Cast(operand.static.name))
    if not operand.boolean:
        raise Sql92Error("expected a condition, found a value")
    if isinstance(operand.static, Constant):
        value = operand.static.value
        return _computed([operand], Push(NULL if value is None else TRUE if value else FALSE))
    return operand


Join: TypeAlias = Callable[[Operand, Operand], Operand]


def create_and(left: Operand, right: Operand) -> Operand:
    """Return the operand of `left AND right`."""
    return _computed([as_boolean(left), as_boolean(right)], Logic("AND"))


def create_or(left: Operand, right: Operand) -> Operand:
    """Return the operand of `left OR right`."""
    return _computed([as_boolean(left), as_boolean(right)], Logic("OR"))


def create_not(operand: Operand) -> Operand:
    """Return the operand of `NOT operand`."""
    return _computed([as_boolean(operand)], Logic("NOT"))


def create_negate(operand: Operand) -> Operand:
    """Return the operand of `-operand`: the negated number, null for any other value."""
    if operand.static is None:
        return _computed([operand], Logic("MINUS"), boolean=False)
    value = operand.static.value if isinstance(operand.static, Constant) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        negative: Value = None
    else:
        negative = Long(-value) if isinstance(value, Long) else -value
    return Operand(Constant(negative, literal=False), [], nesting=operand.nesting, depth=operand.depth + 1)


def _compared(symbol: str, left: Operand, right: Operand) -> Operand:
    if isinstance(left.static, Constant) and isinstance(right.static, Constant):
        return _computed([left, right], Push(compare(symbol, left.static.value, right.static.value)))
    return _computed([left, right], Compare(symbol, left.static, right.static))


def create_equal(left: Operand, right: Operand) -> Operand:
    """Return the operand of `left = right`.

    Raises:
        Sql92Error: a side is NULL, or the left is a Boolean constant and the right another constant.
    """
    constants = left.literal, right.literal
    if any(one is not None and one.value is None for one in constants):
        raise Sql92Error("expected a value, found NULL: IS NULL asks for it")
    if left.literal and right.literal and left.boolean and not right.boolean:
        raise Sql92Error("expected a Boolean right of a Boolean, found another constant")
    return _compared("=", left, right)


def create_not_equal(left: Operand, right: Operand) -> Operand:
    """Return the operand of `left <> right`."""
    return create_not(create_equal(left, right))


def create_order(symbol: str, left: Operand, right: Operand) -> Operand:
    """Return the operand of `left symbol right`, for a symbol among > >= < <=.

    Raises:
        Sql92Error: a side is a constant that is no number, or a condition.
    """
    for operand in (left, right):
        literal = operand.literal
        number = literal is not None and isinstance(literal.value, int | float) and not isinstance(literal.value, bool)
        if operand.boolean or (literal is not None and not number):
            raise Sql92Error(f"expected numbers and properties at {symbol}, found a condition or another constant")
    return _compared(symbol, left, right)


def _between(join: Join, symbols: tuple[str, str], value: Operand, low: Operand, high: Operand) -> Operand:
    if value.static is not None:
        return join(create_order(symbols[0], value, low), create_order(symbols[1], Operand(value.static, []), high))
    # A computed value that is not a condition is null or throws; then both comparisons are null or throw too.
    for operand in (low, high):
        create_order(symbols[0], Operand(None, [], value.boolean), operand)
    return _computed([value])


def create_between(value: Operand, low: Operand, high: Operand) -> Operand:
    """Return the operand of `value BETWEEN low AND high`.

    Raises:
        Sql92Error: `high` is a smaller constant than `low`, or an operand is one that `create_order` refuses.
    """
    if low.literal and high.literal:
        try:
            descending = None in (low.literal.value, high.literal.value) or compare_values(high.literal.value, low.literal.value) < 0
        except ComparisonError as error:
            raise Sql92Error(str(error)) from error
        if descending:
            raise Sql92Error("expected BETWEEN a lower and a higher constant, found the higher one first")
    return _between(create_and, (">=", "<="), value, low, high)


def create_not_between(value: Operand, low: Operand, high: Operand) -> Operand:
    """Return the operand of `value NOT BETWEEN low AND high`; `low` may be greater than `high`.

    Raises:
        Sql92Error: an operand is one that `create_order` refuses.
    """
    return _between(create_or, ("<", ">"), value, low, high)


def create_is_null(operand: Operand) -> Operand:
    """Return the operand of `operand IS NULL`: an equality with null, for any operand."""
    return _compared("=", operand, constant(None, literal=False))


def create_is_not_null(operand: Operand) -> Operand:
    """Return the operand of `operand IS NOT NULL`."""
    return create_not(create_is_null(operand))


def create_part(operand: Operand, operator: TextOperator, text: str, *, negated: bool) -> Operand:
    """Return the operand of `operand operator text`; if `negated`, of `operand NOT operator text`. It takes any operand."""
    if isinstance(operand.static, Property):
        return _computed([operand], Part(operand.static.name, operator, text, negated))
    if isinstance(operand.static, Constant):
        return _computed([operand], Push(has_part(operator, operand.static.value, text, negated=negated)))
    return _computed([operand], Logic("NO_TEXT"))


def create_in(operand: Operand, values: Sequence[str], *, negated: bool) -> Operand:
    """Return the operand of `operand IN (values)`; if `negated`, of `operand NOT IN (values)`.

    Raises:
        Sql92Error: the operand is not a plain property.
    """
    if not isinstance(operand.static, Property):
        raise Sql92Error("expected a property before IN, found another expression")
    return _computed([operand], In(operand.static.name, frozenset(values), negated))
