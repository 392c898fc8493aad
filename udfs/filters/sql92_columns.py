"""SQL92 filters for many messages at once: from columns of property texts to a column of codes.

Broker source (4.9.3): ExpressionMessageFilter.isMatchedByCommitLog, which evaluates one message at a time.
Rule: the program is the one for a single message, on a stack of columns. AND and OR evaluate both sides for every message. A throw is a
code; the tables of AND and OR drop it if the broker would not have evaluated that side.
Surprise: bytes that are not UTF-8 are compared as the replacement characters that Java decodes them to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from store_format.big_endian import Bytes
from store_format.record.message import decode_text
from store_format.record.record_columns import Slices, are_utf8
from udfs.filters import sql92_kernels
from udfs.filters import sql92_values as v
from udfs.filters.sql92_program import ONE_CODE, Cast, Compare, Constant, In, Instruction, Logic, Part, Push, Static
from udfs.java import texts as java_texts

Codes: TypeAlias = NDArray[np.int8]


def _bytes_of(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _table(rule: Callable[[int, int], int]) -> Codes:
    return np.array([[rule(left, right) for right in v.CODES] for left in v.CODES], np.int8)


_LOGIC: Final = {"AND": _table(v.conjunction), "OR": _table(v.disjunction)}
_ONE_CODE: Final = {name: np.array([rule(code) for code in v.CODES], np.int8) for name, rule in ONE_CODE.items()}


@dataclass(frozen=True, slots=True)
class Texts:
    """One property of many messages: ranges of a buffer in valid UTF-8; the length is negative if a message lacks the property."""

    buffer: Bytes
    slices: Slices
    _converted: dict[tuple[int, type], v.Value] = field(default_factory=dict, compare=False)

    def __len__(self) -> int:
        return len(self.slices.starts)

    def __getitem__(self, row: int) -> str | None:
        start, length = int(self.slices.starts[row]), int(self.slices.lengths[row])
        return None if length < 0 else self.buffer[start : start + length].tobytes().decode("utf-8", "surrogatepass")

    def converted(self, row: int, number: int | float) -> v.Value:
        """Return a text converted to the class of a number; THROWN if the text is no number of that class.

        The result is kept, because an expression may compare one property with thousands of numbers.
        """
        key = row, type(number)
        if key not in self._converted:
            self._converted[key] = v.converted(self[row], number)
        return self._converted[key]

    @classmethod
    def of(cls, texts: Iterable[str | None]) -> Texts:
        """Return the column of texts; None is a missing property."""
        encoded = [None if text is None else _bytes_of(text) for text in texts]
        lengths = np.fromiter((-1 if one is None else len(one) for one in encoded), np.int64, len(encoded))
        starts = np.zeros(len(encoded), np.int64)
        np.cumsum(np.maximum(lengths[:-1], 0), out=starts[1:])
        return cls(np.frombuffer(b"".join(filter(None, encoded)), np.uint8), Slices(starts, lengths))

    @classmethod
    def of_records(cls, buffer: Bytes, slices: Slices) -> Texts:
        """Return the column of ranges of stored bytes, decoded as Java does if they are not UTF-8."""
        plain = are_utf8(buffer, slices)
        if plain.all():
            return cls(buffer, slices)
        starts, lengths, tail, end = slices.starts.copy(), slices.lengths.copy(), [buffer], len(buffer)
        for row in np.flatnonzero(~plain).tolist():
            raw = buffer[starts[row] : starts[row] + lengths[row]].tobytes()
            decoded = np.frombuffer(_bytes_of(decode_text(raw)), np.uint8)
            starts[row], lengths[row] = end, len(decoded)
            tail.append(decoded)
            end += len(decoded)
        return cls(np.concatenate(tail), Slices(starts, lengths))


Columns: TypeAlias = Mapping[str, Texts]
Side: TypeAlias = Codes | Texts | Constant


def columns_of_records(buffer: Bytes, properties: Slices, names: Iterable[str]) -> dict[str, Texts]:
    """Return a column for each property name, from the properties of stored records."""
    wanted = sorted(set(names))
    all_names, ends = _joined(map(_bytes_of, wanted))
    starts, lengths = (np.zeros((len(wanted), len(properties.starts)), np.int64) for _ in range(2))
    sql92_kernels.pick_properties(buffer, properties.starts, properties.lengths, all_names, ends, starts, lengths)
    return {name: Texts.of_records(buffer, Slices(starts[row], lengths[row])) for row, name in enumerate(wanted)}


def _joined(texts: Iterable[bytes]) -> tuple[Bytes, NDArray[np.int64]]:
    """Return texts one after the other, and their bounds: 0, then the end of each text."""
    encoded = list(texts)
    return np.frombuffer(b"".join(encoded), np.uint8), np.cumsum([0, *map(len, encoded)], dtype=np.int64)


def _missing(count: int) -> Texts:
    return Texts(np.zeros(0, np.uint8), Slices(np.zeros(count, np.int64), np.full(count, -1, np.int64)))


@lru_cache(maxsize=128)
def _sorted_values(values: frozenset[str]) -> tuple[Bytes, NDArray[np.int64]]:
    return _joined(sorted(map(_bytes_of, values)))


def _found(texts: Texts, values: frozenset[str], found: int, other: int, absent: int) -> Codes:
    out = np.empty(len(texts), np.int8)
    buffer, ends = _sorted_values(values)
    sql92_kernels.find_texts(texts.buffer, texts.slices.starts, texts.slices.lengths, buffer, ends, found, other, absent, out)
    return out


def _flipped(symbol: str, flipped: bool) -> NDArray[np.int8]:
    """Return a comparison's codes for less, equal and more; `flipped` exchanges less and more, for `constant symbol text`."""
    outcomes = v.OUTCOMES[symbol]
    return np.array(outcomes[::-1] if flipped else outcomes, np.int8)


def _with_number(symbol: str, texts: Texts, number: int | float, flipped: bool) -> Codes:
    absent = v.compare(symbol, number, None) if flipped else v.compare(symbol, None, number)
    out, outcomes = np.empty(len(texts), np.int8), _flipped(symbol, flipped)
    where = texts.buffer, texts.slices.starts, texts.slices.lengths
    if isinstance(number, float):
        sql92_kernels.compare_decimal(*where, number, outcomes, absent, out)
    else:
        largest = java_texts.LONG_MAX if isinstance(number, v.Long) else java_texts.INTEGER_MAX
        sql92_kernels.compare_whole(*where, np.int64(largest), np.int64(number), outcomes, absent, out)
    for row in np.flatnonzero(out == sql92_kernels.SLOW).tolist():
        value = texts.converted(row, number)
        out[row] = v.compare(symbol, number, value) if flipped else v.compare(symbol, value, number)
    return out


def _two_properties(symbol: str, left: Texts, right: Texts) -> Codes:
    out = np.empty(len(left), np.int8)
    where = left.buffer, left.slices.starts, left.slices.lengths, right.buffer, right.slices.starts, right.slices.lengths
    if symbol == "=":
        pairs: Sequence[tuple[v.Value, v.Value]] = (("a", "a"), ("a", "b"), (None, "a"), ("a", None), (None, None))
        sql92_kernels.same_texts(*where, np.array([v.compare("=", *pair) for pair in pairs], np.int8), out)
        return out
    sql92_kernels.compare_decimals(*where, _flipped(symbol, False), v.NULL, out)
    for row in np.flatnonzero(out == sql92_kernels.SLOW).tolist():
        out[row] = v.compare(symbol, left.converted(row, 0.0), right.converted(row, 0.0))
    return out


_LIKE_CODES: Final = tuple(v.value_of(code) for code in v.CODES)
_LIKE_TEXTS: Final = (v.Thrown.THROWN, None, "", "true")  # a value for each code that are_true gives


def _looked_up(symbol: str, left: Side, right: Side, count: int) -> Codes:
    """Return the codes of a comparison that depends on a text only by whether it is "true"."""
    sides: list[Codes] = []
    values: list[tuple[v.Value, ...]] = []
    for side in (left, right):
        if isinstance(side, Constant):
            sides.append(np.zeros(count, np.int8))
            values.append((side.value,) * len(v.CODES))
        elif isinstance(side, Texts):
            sides.append(np.empty(count, np.int8))
            sql92_kernels.are_true(side.buffer, side.slices.starts, side.slices.lengths, sides[-1])
            values.append(_LIKE_TEXTS)
        else:
            sides.append(side)
            values.append(_LIKE_CODES)
    table = np.array([[v.compare(symbol, one, other) for other in values[1]] for one in values[0]], np.int8)
    return _apply(table, *sides)


def _apply(table: Codes, left: Codes, right: Codes) -> Codes:
    out = np.empty(len(left), np.int8)
    sql92_kernels.look_up(left, right, table, out)
    return out


def _compared(symbol: str, left: Side, right: Side, count: int) -> Codes:
    if isinstance(left, Texts) and isinstance(right, Texts):
        return _two_properties(symbol, left, right)
    flipped = isinstance(left, Constant)
    texts, constant = (right, left) if flipped else (left, right)
    if isinstance(texts, Texts) and isinstance(constant, Constant):
        value = constant.value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return _with_number(symbol, texts, value, flipped)
        if isinstance(value, str):
            return _found(texts, frozenset([value]), v.TRUE, v.FALSE, v.compare(symbol, value, None) if flipped else v.NULL)
    return _looked_up(symbol, left, right, count)


def _has_part(instruction: Part, texts: Texts) -> Codes:
    out = np.full(len(texts), v.FALSE, np.int8)
    if instruction.text:
        part = np.frombuffer(_bytes_of(instruction.text), np.uint8)
        found, other = (v.FALSE, v.TRUE) if instruction.negated else (v.TRUE, v.FALSE)
        at_start, at_end = instruction.operator == "STARTSWITH", instruction.operator == "ENDSWITH"
        sql92_kernels.find_part(texts.buffer, texts.slices.starts, texts.slices.lengths, part, at_start, at_end, found, other, out)
    return out


def _leaf(instruction: Push | Cast | In | Part, columns: Columns, count: int) -> Codes:
    if isinstance(instruction, Push):
        return np.full(count, instruction.code, np.int8)
    texts = columns[instruction.name] if instruction.name in columns else _missing(count)
    if isinstance(instruction, Part):
        return _has_part(instruction, texts)
    if isinstance(instruction, Cast):
        return np.where(texts.slices.lengths < 0, np.int8(v.NULL), np.int8(v.FALSE))
    found, other = (v.FALSE, v.TRUE) if instruction.negated else (v.TRUE, v.FALSE)
    return _found(texts, instruction.values, found, other, v.NULL)


def codes_of(program: Sequence[Instruction], columns: Columns, count: int) -> Codes:
    """Return the code of each of `count` messages, as a program evaluates them; codes as in udfs.filters.sql92_values.

    `columns` has `count` texts for each property; a property that no message has may be left out.
    """
    stack: list[Codes] = []

    def operand(static: Static | None) -> Side:
        if static is None:
            return stack.pop()
        if isinstance(static, Constant):
            return static
        return columns[static.name] if static.name in columns else _missing(count)

    for instruction in program:
        if isinstance(instruction, Compare):
            right = operand(instruction.right)
            stack.append(_compared(instruction.symbol, operand(instruction.left), right, count))
        elif not isinstance(instruction, Logic):
            stack.append(_leaf(instruction, columns, count))
        elif instruction.operator in _LOGIC:
            right = stack.pop()
            stack.append(_apply(_LOGIC[instruction.operator], stack.pop(), right))
        else:
            stack.append(_ONE_CODE[instruction.operator][stack.pop() + 2])
    return stack.pop()
