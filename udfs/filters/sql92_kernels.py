"""Compiled comparisons of a SQL92 filter for many messages: a property's texts with a constant, a list, or another property's texts.

Broker source (4.9.3): ComparisonExpression.__compare, UnaryExpression.createInExpression, with Integer, Long, Double and Boolean.valueOf.
Rule: texts are ranges of a buffer, in UTF-8; a negative length stands for a message without the property.
Surprise: rare texts (digits of other scripts, "NaN", hexadecimal, more digits than a double holds exactly) get `SLOW` instead of a code.
The caller evaluates them with the plain functions of sql92_values, the only place with all rules.
"""

from __future__ import annotations

import numpy as np

from store_format.compiled import compiled
from store_format.record.record_columns import are_same

SLOW = 2
_ERROR = -2

# A double holds whole numbers up to 2**53, and powers of ten up to 10**22, exactly. One multiplication or division of two of them rounds
# only once.
_EXACT = 1 << 53
_LARGEST_POWER = 22
_POWERS = np.array([float(10**power) for power in range(_LARGEST_POWER + 1)])
_MAX_DIGITS = 18  # any number of 18 digits fits into 64 bits
# the states of a parsed number
_GOOD, _BAD, _UNSURE = 0, 1, 2


@compiled
def _whole(buffer, at, end, largest):  # type: ignore[no-untyped-def]
    """Return (state, value) of a whole number; `largest` is the greatest value of its Java class."""
    negative = at < end and buffer[at] == 45
    if negative or (at < end and buffer[at] == 43):
        at += 1
    if at == end:
        return _BAD, np.int64(0)
    # The number is built as a negative one, because the smallest int has no positive counterpart.
    limit = -largest - 1 if negative else -largest
    value = np.int64(0)
    while at < end:
        digit = np.int64(buffer[at]) - 48
        if digit < 0 or digit > 9:
            return (_UNSURE if buffer[at] >= 0x80 else _BAD), np.int64(0)
        # too large for the class: no further digit can make it valid
        if value < -(largest // 10) or value * 10 < limit + digit:
            return _BAD, np.int64(0)
        value = value * 10 - digit
        at += 1
    return _GOOD, (value if negative else -value)


@compiled
def compare_whole(buffer, starts, lengths, largest, constant, outcomes, absent, out):  # type: ignore[no-untyped-def]
    """Write the codes of texts compared with an Integer or Long; `largest` is the greatest value of its class."""
    for i in range(len(starts)):
        if lengths[i] < 0:
            out[i] = absent
            continue
        state, value = _whole(buffer, starts[i], starts[i] + lengths[i], largest)
        if state == _GOOD:
            out[i] = outcomes[0] if value < constant else outcomes[2] if value > constant else outcomes[1]
        else:
            out[i] = _ERROR if state == _BAD else SLOW


@compiled
def _digits(buffer, at, end, value, count):  # type: ignore[no-untyped-def]
    """Read decimal digits; return (position after them, value with them appended, number of significant digits)."""
    while at < end and 48 <= buffer[at] <= 57:
        if count < _MAX_DIGITS:
            value = value * 10 + (np.int64(buffer[at]) - 48)
        if value > 0:
            count += 1
        at += 1
    return at, value, count


@compiled
def _exponent(buffer, at, end):  # type: ignore[no-untyped-def]
    """Read an exponent, if there is one; return (state, position after it, exponent)."""
    if at == end or (buffer[at] | 32) != 101:
        return _GOOD, at, np.int64(0)
    at += 1
    negative = at < end and buffer[at] == 45
    if negative or (at < end and buffer[at] == 43):
        at += 1
    stop, power, count = _digits(buffer, at, end, np.int64(0), 0)
    if stop == at:
        return _BAD, at, np.int64(0)
    return (_GOOD if count < 5 else _UNSURE), stop, (-power if negative else power)


@compiled
def _decimal(buffer, at, end):  # type: ignore[no-untyped-def]
    """Return (state, value) of a decimal."""
    while at < end and buffer[at] <= 32:
        at += 1
    while end > at and buffer[end - 1] <= 32:
        end -= 1
    negative = at < end and buffer[at] == 45
    if negative or (at < end and buffer[at] == 43):
        at += 1
    # NaN, Infinity, 0x
    if at < end and (buffer[at] == 78 or buffer[at] == 73 or (at + 1 < end and (buffer[at + 1] | 32) == 120)):
        return _UNSURE, 0.0
    point, value, count = _digits(buffer, at, end, np.int64(0), 0)
    given, at = point - at, point
    scale = np.int64(0)
    if at < end and buffer[at] == 46:
        at, value, count = _digits(buffer, point + 1, end, value, count)
        scale = at - point - 1
    if given + scale == 0:
        return _BAD, 0.0
    state, at, power = _exponent(buffer, at, end)
    if at < end and ((buffer[at] | 32) == 100 or (buffer[at] | 32) == 102):
        at += 1
    if state == _BAD or at < end:
        return _BAD, 0.0
    power -= scale
    if state == _UNSURE or count > _MAX_DIGITS or value > _EXACT or abs(power) > _LARGEST_POWER:
        return _UNSURE, 0.0
    number = value * _POWERS[power] if power >= 0 else value / _POWERS[-power]
    return _GOOD, (-number if negative else number)


@compiled
def compare_decimal(buffer, starts, lengths, constant, outcomes, absent, out):  # type: ignore[no-untyped-def]
    """Write the codes of texts compared with a Double that is neither zero nor NaN."""
    for i in range(len(starts)):
        if lengths[i] < 0:
            out[i] = absent
            continue
        state, value = _decimal(buffer, starts[i], starts[i] + lengths[i])
        if state == _GOOD:
            out[i] = outcomes[0] if value < constant else outcomes[2] if value > constant else outcomes[1]
        else:
            out[i] = _ERROR if state == _BAD else SLOW


@compiled
def compare_decimals(buffer, starts, lengths, others, other_starts, other_lengths, outcomes, absent, out):  # type: ignore[no-untyped-def]
    """Write the codes of an order comparison of two properties, both read as Doubles."""
    for i in range(len(starts)):
        if lengths[i] < 0 or other_lengths[i] < 0:
            out[i] = absent
            continue
        state, value = _decimal(buffer, starts[i], starts[i] + lengths[i])
        other_state, other = _decimal(others, other_starts[i], other_starts[i] + other_lengths[i])
        if state == _BAD or other_state == _BAD:
            out[i] = _ERROR
        elif state == _UNSURE or other_state == _UNSURE or (value == 0.0 and other == 0.0):  # -0.0 and 0.0 differ
            out[i] = SLOW
        else:
            out[i] = outcomes[0] if value < other else outcomes[2] if value > other else outcomes[1]


@compiled
def _order_of_bytes(buffer, start, length, others, other_start, other_length):  # type: ignore[no-untyped-def]
    for i in range(min(length, other_length)):
        difference = np.int64(buffer[start + i]) - np.int64(others[other_start + i])
        if difference != 0:
            return difference
    return length - other_length


@compiled
def find_texts(buffer, starts, lengths, values, value_ends, found, other, absent, out):  # type: ignore[no-untyped-def]
    """Write whether each text is in a list: `values` has the listed texts, ascending; the k-th ends at value_ends[k + 1]."""
    for i in range(len(starts)):
        if lengths[i] < 0:
            out[i] = absent
            continue
        out[i] = other
        low, high = 0, len(value_ends) - 1
        while low < high:
            middle = (low + high) >> 1
            at = value_ends[middle]
            order = _order_of_bytes(buffer, starts[i], lengths[i], values, at, value_ends[middle + 1] - at)
            if order == 0:
                out[i] = found
                break
            if order < 0:
                high = middle
            else:
                low = middle + 1


@compiled
def _borders(part):  # type: ignore[no-untyped-def]
    """Return for each n the length of the longest proper prefix of `part[:n]` that is also a suffix of it."""
    borders = np.zeros(len(part) + 1, np.int64)
    same = np.int64(0)
    for at in range(1, len(part)):
        while same and part[at] != part[same]:
            same = borders[same]
        same += part[at] == part[same]
        borders[at + 1] = same
    return borders


@compiled
def find_part(buffer, starts, lengths, part, at_start, at_end, found, other, out):  # type: ignore[no-untyped-def]
    """Write whether each text has `part` in it: at its start, at its end, or anywhere. Elements of missing texts stay unchanged.

    `part` has a byte or more. The time is proportional to the length of the texts, even if they repeat `part` (Knuth, Morris and Pratt).
    """
    size = len(part)
    borders = _borders(part)
    for i in range(len(starts)):
        if lengths[i] < 0:
            continue
        out[i] = other
        if lengths[i] < size:
            continue
        first = lengths[i] - size if at_end else np.int64(0)
        end = np.int64(size) if at_start else lengths[i]
        same = np.int64(0)
        for at in range(starts[i] + first, starts[i] + end):
            while same and buffer[at] != part[same]:
                same = borders[same]
            same += buffer[at] == part[same]
            if same == size:
                out[i] = found
                break


@compiled
def same_texts(buffer, starts, lengths, others, other_starts, other_lengths, codes, out):  # type: ignore[no-untyped-def]
    """Write the codes of an equality of two properties; `codes`: equal, not equal, left missing, right missing, both missing."""
    for i in range(len(starts)):
        if lengths[i] < 0:
            out[i] = codes[4] if other_lengths[i] < 0 else codes[2]
        elif other_lengths[i] < 0:
            out[i] = codes[3]
        elif lengths[i] != other_lengths[i]:
            out[i] = codes[1]
        else:
            order = _order_of_bytes(buffer, starts[i], lengths[i], others, other_starts[i], other_lengths[i])
            out[i] = codes[0] if order == 0 else codes[1]


@compiled
def are_true(buffer, starts, lengths, out):  # type: ignore[no-untyped-def]
    """Write 1 for a text that is "true" in any case, 0 for another text, -1 for a missing one."""
    for i in range(len(starts)):
        at = starts[i]
        if lengths[i] < 0:
            out[i] = -1
        elif lengths[i] != 4:
            out[i] = 0
        else:
            # a letter and its capital differ in one bit; no other ASCII byte becomes one of these letters
            same = (buffer[at] | 32) == 116 and (buffer[at + 1] | 32) == 114
            out[i] = 1 if same and (buffer[at + 2] | 32) == 117 and (buffer[at + 3] | 32) == 101 else 0


@compiled
def look_up(left, right, table, out):  # type: ignore[no-untyped-def]
    """Write table[left, right] for two columns of codes."""
    for i in range(len(left)):
        out[i] = table[left[i] + 2, right[i] + 2]


@compiled
def _name_at(buffer, at, last, names, name_ends):  # type: ignore[no-untyped-def]
    """Return the index of the name that begins at `at` and is followed by a separator; -1 if none does."""
    for name in range(len(name_ends) - 1):
        start = name_ends[name]
        length = name_ends[name + 1] - start
        if at + length < last and buffer[at + length] == 1 and are_same(buffer, at, length, names, start, length):
            return name
    return -1


@compiled
def pick_properties(buffer, starts, lengths, names, name_ends, value_starts, value_lengths):  # type: ignore[no-untyped-def]
    """Write start and length of the value of each name (a row) in each message's properties: MessageDecoder.string2messageProperties."""
    for i in range(len(starts)):
        value_lengths[:, i] = -1
        at, last = starts[i], starts[i] + lengths[i]
        while at < last:
            name = _name_at(buffer, at, last, names, name_ends)
            value = at if name < 0 else at + (name_ends[name + 1] - name_ends[name]) + 1
            stop = value
            while stop < last and buffer[stop] != 2:
                stop += 1
            # a property without a value does not exist; of equal names the last one counts
            if name >= 0 and stop > value:
                value_starts[name, i] = value
                value_lengths[name, i] = stop - value
            at = stop + 1
