"""Convert texts as Java's Boolean, Integer, Long and Double.valueOf do.

Source: java.lang.Integer.parseInt and Long.parseLong (Character.digit), jdk.internal.math.FloatingDecimal.readJavaFormatString. The
broker's ComparisonExpression calls them on property values.
Rule: a whole number has an optional sign and decimal digits of any script, and no blanks. A decimal is trimmed, and has ASCII digits only.
Surprises: "+5" is an Integer, " 5" is not; " 5d ", "NaN", "Infinity" and "0x1p3" are Doubles. "1e400" is Infinity, not an error.
A digit outside the Basic Multilingual Plane is two chars, neither of which is a digit.
"""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Final

INTEGER_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
TRIMMED: Final = "".join(map(chr, range(0x21)))  # the characters that String.trim removes

_LAST_BMP: Final = "\uffff"
# Python refuses to parse a number of more than 4300 digits; a long has 19
_LONG_DIGITS: Final = 19
_DECIMAL: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEXADECIMAL: Final = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+))[pP]([+-]?[0-9]+)[fFdD]?")
_NAMED: Final = re.compile(r"([+-]?)(NaN|Infinity)")
# With an exponent of more digits, a hexadecimal number is 0 or Infinity, unless it has thousands of digits.
_EXPONENT_DIGITS: Final = 9


class NumberFormatError(ValueError):
    """A text that is no number of the wanted class: Java's NumberFormatException."""


def boolean_value_of(text: str) -> bool:
    """Return whether a text is "true" in any case: Boolean.valueOf."""
    return text.isascii() and text.lower() == "true"


def _digit(char: str) -> int:
    if char <= _LAST_BMP and unicodedata.category(char) == "Nd":
        return unicodedata.decimal(char)
    message = f"expected a decimal digit, found {char!r}"
    raise NumberFormatError(message)


def _whole_number(text: str, largest: int) -> int:
    negative = text[:1] == "-"
    digits = text[1:] if negative or text[:1] == "+" else text
    if not digits:
        message = f"expected digits, found {text[:40]!r}"
        raise NumberFormatError(message)
    plain = digits if digits.isascii() and digits.isdigit() else "".join(str(_digit(char)) for char in digits)
    plain = plain.lstrip("0") or "0"
    value = int(plain) if len(plain) <= _LONG_DIGITS else largest + 2
    if value > largest + negative:
        message = f"expected at most {largest}, found {text[:40]!r}"
        raise NumberFormatError(message)
    return -value if negative else value


def integer_value_of(text: str) -> int:
    """Return the int of a text: Integer.valueOf.

    Raises:
        NumberFormatError: the text is no int.
    """
    return _whole_number(text, INTEGER_MAX)


def long_value_of(text: str) -> int:
    """Return the long of a text: Long.valueOf.

    Raises:
        NumberFormatError: the text is no long.
    """
    return _whole_number(text, LONG_MAX)


def double_value_of(text: str) -> float:
    """Return the double of a text: Double.valueOf.

    Raises:
        NumberFormatError: the text is no double.
    """
    trimmed = text.strip(TRIMMED)
    if found := _DECIMAL.fullmatch(trimmed):
        return float(found[1])
    if found := _NAMED.fullmatch(trimmed):
        return math.nan if found[2] == "NaN" else math.copysign(math.inf, -1.0 if found[1] == "-" else 1.0)
    if found := _HEXADECIMAL.fullmatch(trimmed):
        return _hexadecimal(found[1], found[2])
    message = f"expected a double, found {text[:40]!r}"
    raise NumberFormatError(message)


def _hexadecimal(significand: str, exponent: str) -> float:
    sign = -1.0 if significand.startswith("-") else 1.0
    if not significand.lower().partition("x")[2].strip("0."):
        return math.copysign(0.0, sign)
    digits = exponent.lstrip("+-").lstrip("0")
    if len(digits) > _EXPONENT_DIGITS:
        return math.copysign(0.0 if exponent.startswith("-") else math.inf, sign)
    try:
        return float.fromhex(f"{significand}p{exponent}")
    except OverflowError:
        return math.copysign(math.inf, sign)
