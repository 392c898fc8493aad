"""A SQL92 filter as a program: instructions for a stack of codes, one after the other, as the broker's parser would build its tree.

Broker source (4.9.3): the create methods of ComparisonExpression, LogicExpression, UnaryExpression and ConstantExpression, which check
their operands when an expression is compiled; SelectorParser.asBooleanExpression.
Rules: an order takes numbers and properties; an equality takes all but NULL; IN takes a plain property; AND, OR and NOT take what is
Boolean, and a bare property, which is cast.
Surprises: a bare property is false (or null), whatever its text. A minus sign makes an expression of its own, so `a > -'x'` and
`a BETWEEN 5 AND -5` compile. Constants are checked as they were written: 0.0 is too small to be a decimal.

A program has no nesting, so that no expression can overflow Python's stack. The broker's own stack overflows while it compiles deep nesting
(so that does not compile), and while it evaluates long chains (so that throws); where exactly depends on its threads and its compiler, so
the limits here are of that size only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from udfs.filters.sql92_program import Cast, Compare, Constant, In, Instruction, Logic, Property, Push, Static
from udfs.filters.sql92_values import ERROR, FALSE, NULL, TRUE, ComparisonError, Long, Value, compare, compare_values
from udfs.java import texts as java_texts

# a thread of 1 MiB (Java's default) compiled 850 brackets and 6000 signs or NOTs, and evaluated chains of 9000 operators, not 12000
BRACKET_COST: Final = 7
SIGN_COST: Final = 1
MAX_NESTING: Final = 6300
MAX_DEPTH: Final = 10_000


class Sql92Error(Exception):
    """An expression that the broker does not compile."""


@dataclass(slots=True)
class Operand:
    """What the parser has read of an expression.

    Attributes:
        static: the property or constant that it is, None where it is computed.
        code: the instructions that compute it; the one that takes the operand may go on with the list.
        boolean: whether it is a BooleanExpression of the broker.
        nesting: how much of the broker's stack compiling takes.
        depth: how deep the broker's evaluation goes.
    """

    static: Static | None
    code: list[Instruction]
    boolean: bool = False
    nesting: int = 0
    depth: int = 1

    @property
    def literal(self) -> Constant | None:
        """The constant that it is as written, for the checks that look at constants."""
        return self.static if isinstance(self.static, Constant) and self.static.literal else None


def variable(name: str) -> Operand:
    """A property."""
    return Operand(Property(name), [])


def constant(value: Value, *, literal: bool = True) -> Operand:
    """A constant; true, false and NULL are Boolean."""
    return Operand(Constant(value, literal), [], boolean=literal and (value is None or isinstance(value, bool)))


def decimal(text: str) -> Operand:
    """A whole number as written: an Integer if it is small enough, else a Long.

    Raises:
        Sql92Error: it is too large for a Long.
    """
    digits = text.rstrip("lL")
    try:
        value = java_texts.long_value_of(digits)
    except java_texts.NumberFormatError as error:
        raise Sql92Error(str(error)) from error
    return constant(value if value <= java_texts.INTEGER_MAX else Long(value))


def floating_point(text: str) -> Operand:
    """A decimal as written.

    Raises:
        Sql92Error: it is too large for a Double, or zero.
    """
    value = float(text)
    if not 0.0 < value <= sys.float_info.max:
        message = f"expected a decimal above 0 that a Double can hold, found {text[:40]!r}"
        raise Sql92Error(message)
    return constant(value)


def nested(operand: Operand, cost: int) -> Operand:
    """The same operand, after a bracket or sign.

    Raises:
        Sql92Error: the nesting is deeper than the broker's stack.
    """
    operand.nesting += cost
    if operand.nesting > MAX_NESTING:
        message = f"expected brackets, signs and NOTs that nest no deeper than {MAX_NESTING} calls of the broker, found more"
        raise Sql92Error(message)
    return operand


def _computed(operands: Sequence[Operand], *instructions: Instruction, boolean: bool = True) -> Operand:
    """The operands' code, then the instructions; a throw where the broker's stack would overflow."""
    code = operands[0].code
    for operand in operands[1:]:
        code.extend(operand.code)
    code.extend(instructions)
    depth = 1 + max(operand.depth for operand in operands)
    if depth > MAX_DEPTH:
        code, depth = [Push(ERROR)], 1
    return Operand(None, code, boolean, max(operand.nesting for operand in operands), depth)


def as_boolean(operand: Operand) -> Operand:
    """The operand as AND, OR and NOT take it: a property is cast.

    Raises:
        Sql92Error: it is neither Boolean nor a property.
    """
    if isinstance(operand.static, Property):
        return _computed([operand], Cast(operand.static.name))
    if not operand.boolean:
        message = "expected a condition, found a value"
        raise Sql92Error(message)
    if isinstance(operand.static, Constant):
        value = operand.static.value
        return _computed([operand], Push(NULL if value is None else TRUE if value else FALSE))
    return operand


Join: TypeAlias = Callable[[Operand, Operand], Operand]


def create_and(left: Operand, right: Operand) -> Operand:
    """left AND right."""
    return _computed([as_boolean(left), as_boolean(right)], Logic("AND"))


def create_or(left: Operand, right: Operand) -> Operand:
    """left OR right."""
    return _computed([as_boolean(left), as_boolean(right)], Logic("OR"))


def create_not(operand: Operand) -> Operand:
    """NOT operand."""
    return _computed([as_boolean(operand)], Logic("NOT"))


def create_negate(operand: Operand) -> Operand:
    """-operand: a number's opposite, null for all else."""
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
    """left = right.

    Raises:
        Sql92Error: NULL, or a Boolean constant before another one.
    """
    constants = left.literal, right.literal
    if any(one is not None and one.value is None for one in constants):
        message = "expected a value, found NULL: IS NULL asks for it"
        raise Sql92Error(message)
    if left.literal and right.literal and left.boolean and not right.boolean:
        message = "expected a Boolean right of a Boolean, found another constant"
        raise Sql92Error(message)
    return _compared("=", left, right)


def create_not_equal(left: Operand, right: Operand) -> Operand:
    """left <> right."""
    return create_not(create_equal(left, right))


def create_order(symbol: str, left: Operand, right: Operand) -> Operand:
    """left symbol right, the symbol being one of > >= < <=.

    Raises:
        Sql92Error: a constant that is no number, or a condition.
    """
    for operand in (left, right):
        literal = operand.literal
        number = literal is not None and isinstance(literal.value, int | float) and not isinstance(literal.value, bool)
        if operand.boolean or (literal is not None and not number):
            message = f"expected numbers and properties at {symbol}, found a condition or another constant"
            raise Sql92Error(message)
    return _compared(symbol, left, right)


def _between(join: Join, symbols: tuple[str, str], value: Operand, low: Operand, high: Operand) -> Operand:
    if value.static is not None:
        return join(create_order(symbols[0], value, low), create_order(symbols[1], Operand(value.static, []), high))
    # a computed value that is no condition is null or thrown, and so are both comparisons
    for operand in (low, high):
        create_order(symbols[0], Operand(None, [], value.boolean), operand)
    return _computed([value])


def create_between(value: Operand, low: Operand, high: Operand) -> Operand:
    """value BETWEEN low AND high.

    Raises:
        Sql92Error: two constants of which the second is less than the first, or what an order does not take.
    """
    if low.literal and high.literal:
        try:
            descending = None in (low.literal.value, high.literal.value) or compare_values(high.literal.value, low.literal.value) < 0
        except ComparisonError as error:
            raise Sql92Error(str(error)) from error
        if descending:
            message = "expected BETWEEN a lower and a higher constant, found the higher one first"
            raise Sql92Error(message)
    return _between(create_and, (">=", "<="), value, low, high)


def create_not_between(value: Operand, low: Operand, high: Operand) -> Operand:
    """value NOT BETWEEN low AND high; the constants are not checked against each other.

    Raises:
        Sql92Error: what an order does not take.
    """
    return _between(create_or, ("<", ">"), value, low, high)


def create_is_null(operand: Operand) -> Operand:
    """operand IS NULL: an equality with null, for any operand."""
    return _compared("=", operand, constant(None, literal=False))


def create_is_not_null(operand: Operand) -> Operand:
    """operand IS NOT NULL."""
    return create_not(create_is_null(operand))


def create_in(operand: Operand, values: Sequence[str], *, negated: bool) -> Operand:
    """operand IN (values), or operand NOT IN (values).

    Raises:
        Sql92Error: the operand is no plain property.
    """
    if not isinstance(operand.static, Property):
        message = "expected a property before IN, found another expression"
        raise Sql92Error(message)
    return _computed([operand], In(operand.static.name, frozenset(values), negated))
