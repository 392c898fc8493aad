"""The values of a SQL92 filter, and the broker's rules for comparing them.

Broker source (4.9.3): ComparisonExpression (__compare, compare, doCreateEqual, evaluate), LogicExpression, UnaryExpression.
Rules: a property is a String, or null if the message lacks it. A comparison converts it to the class of the number or Boolean on the other
side. Logic is three-valued.
Surprises: null = null is true, x = null is false, and null = x is null. A Boolean left of a String is a ClassCastException; left of a
number it is less than the number. An order comparison of two Strings converts both to Doubles, an equality does not. If the left side is
null, an order comparison does not evaluate the right side, but an equality does.

The result of an evaluation is a code, so that many fit into an array: 1 true, 0 false, -1 null, -2 thrown. An evaluation has no side
effects, so a throw can be a value too; AND and OR pass it on only if the broker would have evaluated that side.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Final, TypeAlias

from udfs.java import texts as java_texts

TRUE: Final = 1
FALSE: Final = 0
NULL: Final = -1
ERROR: Final = -2
CODES: Final = (ERROR, NULL, FALSE, TRUE)  # ascending: a code's place is code - ERROR

# whether a comparison is true (1) or false (0) if left is less than, equal to, more than right
OUTCOMES: Final = {"=": (0, 1, 0), ">": (0, 0, 1), ">=": (0, 1, 1), "<": (1, 0, 0), "<=": (1, 1, 0)}


class Long(int):
    """A java.lang.Long; a plain int is an Integer, a float a Double."""


class Thrown(Enum):
    """The value of an operand whose evaluation threw."""

    THROWN = ERROR


Value: TypeAlias = str | bool | int | Long | float | Thrown | None


class ComparisonError(Exception):
    """Two values for which the broker's comparison throws."""


def value_of(code: int) -> Value:
    """Return the value that a code stands for."""
    return Thrown.THROWN if code == ERROR else None if code == NULL else code == TRUE


def _parsed(text: str, other: Value) -> Value:
    """Return a String converted to the class of the other value."""
    try:
        if isinstance(other, bool):
            return java_texts.boolean_value_of(text)
        if isinstance(other, Long):
            return Long(java_texts.long_value_of(text))
        if isinstance(other, int):
            return java_texts.integer_value_of(text)
        return java_texts.double_value_of(text)
    except java_texts.NumberFormatError as error:
        raise ComparisonError(str(error)) from error


def converted(text: str | None, other: Value) -> Value:
    """Return a String as a comparison converts it to the class of the other value; THROWN if the comparison throws, None for None."""
    try:
        return None if text is None else _parsed(text, other)
    except ComparisonError:
        return Thrown.THROWN


def _compare_to(left: Value, right: Value) -> int:
    """Return compareTo of two values of one class; for two Strings only whether it is 0 has a meaning."""
    if isinstance(left, float) and isinstance(right, float):
        if left < right or left > right:
            return -1 if left < right else 1
        # NaN is equal to itself and more than all others, -0.0 is less than 0.0
        keys = [(math.isnan(one), 0.0 if math.isnan(one) else math.copysign(1.0, one)) for one in (left, right)]
        return (keys[0] > keys[1]) - (keys[0] < keys[1])
    if isinstance(left, int) and isinstance(right, int):
        return (left > right) - (left < right)
    return 0 if left == right else 1


def compare_values(left: Value, right: Value) -> int:
    """Return -1, 0 or 1 for two values that are not null, converted as __compare does.

    Raises:
        ComparisonError: the broker throws.
    """
    if isinstance(left, bool) and isinstance(right, str):
        raise ComparisonError("expected a Boolean on the right as on the left, found a String, which the broker fails to cast")
    if isinstance(left, str) and not isinstance(right, str):
        left = _parsed(left, right)
    elif isinstance(right, str) and not isinstance(left, str):
        right = _parsed(right, left)
    elif isinstance(left, bool) != isinstance(right, bool):
        return -1
    elif isinstance(left, float) and isinstance(right, int):
        right = float(right)
    elif isinstance(right, float) and isinstance(left, int):
        left = float(left)
    return _compare_to(left, right)


def _equal(left: Value, right: Value) -> int:
    if Thrown.THROWN in (left, right):
        return ERROR
    if left is None or right is None:
        return TRUE if left is right else NULL if left is None else FALSE
    return OUTCOMES["="][compare_values(left, right) + 1]


def _ordered(symbol: str, left: Value, right: Value) -> int:
    for value in (left, right):
        if value is None:
            return NULL
        if value is Thrown.THROWN:
            return ERROR
    if isinstance(left, str) and isinstance(right, str):
        left, right = _parsed(left, 0.0), _parsed(right, 0.0)
    return OUTCOMES[symbol][compare_values(left, right) + 1]


def compare(symbol: str, left: Value, right: Value) -> int:
    """Return the code of `left symbol right`, for a symbol of OUTCOMES."""
    try:
        return _equal(left, right) if symbol == "=" else _ordered(symbol, left, right)
    except ComparisonError:
        return ERROR


def conjunction(left: int, right: int) -> int:
    """Return the code of AND: the right side counts only if the left one is true or null."""
    if left in (FALSE, ERROR):
        return left
    if right in (FALSE, ERROR):
        return right
    return NULL if NULL in (left, right) else TRUE


def disjunction(left: int, right: int) -> int:
    """Return the code of OR: the right side counts only if the left one is false or null."""
    if left in (TRUE, ERROR):
        return left
    if right in (TRUE, ERROR):
        return right
    return NULL if NULL in (left, right) else FALSE


def negation(code: int) -> int:
    """Return the code of NOT."""
    return {TRUE: FALSE, FALSE: TRUE}.get(code, code)


def no_text(code: int) -> int:
    """Return the code of a text operator on a value that is no text: false, or thrown if the value is thrown."""
    return ERROR if code == ERROR else FALSE


def no_number(code: int) -> int:
    """Return the code of a minus sign before a value that is not a number: null, or thrown if the value is thrown."""
    return ERROR if code == ERROR else NULL
