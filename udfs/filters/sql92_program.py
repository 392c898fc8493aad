"""The instructions of a compiled SQL92 filter, and their evaluation for one message.

Broker source (4.9.3): the evaluate methods of PropertyExpression, ComparisonExpression, LogicExpression, UnaryExpression and
UnaryInExpression, which call each other; a program lists them in the order in which they return.
Rule: an instruction takes its computed operands from the stack, and puts its code on the stack.
Surprise: both sides of AND and OR are computed. The broker skips the right side if the left one decides. A throw on the right is a code
here, and AND and OR drop it if the left side decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from udfs.filters.sql92_values import FALSE, NULL, TRUE, Value, compare, conjunction, disjunction, negation, no_number, no_text, value_of


@dataclass(frozen=True, slots=True)
class Property:
    """A property of the message."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant of the expression; `literal` unless it has a sign."""

    value: Value
    literal: bool = True


Static: TypeAlias = Property | Constant


@dataclass(frozen=True, slots=True)
class Push:
    """Instruction: put a code on the stack."""

    code: int


@dataclass(frozen=True, slots=True)
class Cast:
    """Instruction: put the code of a bare property on the stack: false, or null if the property is missing."""

    name: str


@dataclass(frozen=True, slots=True)
class In:
    """Instruction: put on the stack whether a property is one of the values (IN) or none of them (NOT IN)."""

    name: str
    values: frozenset[str]
    negated: bool


TextOperator: TypeAlias = Literal["CONTAINS", "STARTSWITH", "ENDSWITH"]


@dataclass(frozen=True, slots=True)
class Part:
    """Instruction: put on the stack whether a property has a text in it (5.5.0); a missing property gives false, negated or not."""

    name: str
    operator: TextOperator
    text: str
    negated: bool


@dataclass(frozen=True, slots=True)
class Compare:
    """Instruction: put the code of a comparison on the stack; an operand of None is taken from the stack, the right one first."""

    symbol: str
    left: Static | None
    right: Static | None


@dataclass(frozen=True, slots=True)
class Logic:
    """Instruction: replace the two codes on top of the stack (AND, OR), or the top one (NOT, MINUS, NO_TEXT), by the result.

    NO_TEXT is a text operator on a computed operand, which is no text.
    """

    operator: Literal["AND", "OR", "NOT", "MINUS", "NO_TEXT"]


Instruction: TypeAlias = Push | Cast | In | Part | Compare | Logic
# the functions of the operators that take one code
ONE_CODE: Final = {"NOT": negation, "MINUS": no_number, "NO_TEXT": no_text}


def code_of(program: Sequence[Instruction], properties: Mapping[str, str | None]) -> int:
    """Return the code of a program for one message's properties."""
    stack: list[int] = []

    def operand(static: Static | None) -> Value:
        if static is None:
            return value_of(stack.pop())
        return properties.get(static.name) if isinstance(static, Property) else static.value

    for instruction in program:
        if isinstance(instruction, Compare):
            right = operand(instruction.right)
            stack.append(compare(instruction.symbol, operand(instruction.left), right))
        elif isinstance(instruction, Push):
            stack.append(instruction.code)
        elif isinstance(instruction, Cast | In | Part):
            stack.append(_of_property(instruction, properties.get(instruction.name)))
        elif instruction.operator in ("AND", "OR"):
            last = stack.pop()
            stack.append((conjunction if instruction.operator == "AND" else disjunction)(stack.pop(), last))
        else:
            stack.append(ONE_CODE[instruction.operator](stack.pop()))
    return stack.pop()


def has_part(operator: TextOperator, value: Value, text: str, *, negated: bool) -> int:
    """Return the code of a text operator on a value."""
    if not isinstance(value, str) or not text:
        return FALSE
    found = {"CONTAINS": text in value, "STARTSWITH": value.startswith(text), "ENDSWITH": value.endswith(text)}[operator]
    return TRUE if found != negated else FALSE


def _of_property(instruction: Cast | In | Part, text: str | None) -> int:
    if isinstance(instruction, Part):
        return has_part(instruction.operator, text, instruction.text, negated=instruction.negated)
    if text is None:
        return NULL
    if isinstance(instruction, Cast):
        return FALSE
    return TRUE if (text in instruction.values) != instruction.negated else FALSE


def property_names(program: Sequence[Instruction]) -> Iterator[str]:
    """Yield the names of the properties that a program reads; a name may repeat."""
    for instruction in program:
        if isinstance(instruction, Cast | In | Part):
            yield instruction.name
        elif isinstance(instruction, Compare):
            yield from (side.name for side in (instruction.left, instruction.right) if isinstance(side, Property))
