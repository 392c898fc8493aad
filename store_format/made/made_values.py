"""Random numbers, choices, digits and letters for made messages.

Not the broker's code. The generator is SplitMix64: its state is a number, each step adds GAMMA, and `mixed` of the state is the random
number.
Surprise: numba makes a float of the sum of a signed and an unsigned number, so all random numbers here are uint64.
"""

from __future__ import annotations

import numpy as np

from store_format.compiled import compiled

GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .", np.uint8)
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)


@compiled
def mixed(number):  # type: ignore[no-untyped-def]
    """The random number of a SplitMix64 state."""
    number = (number ^ (number >> np.uint64(30))) * _MIX_1
    number = (number ^ (number >> np.uint64(27))) * _MIX_2
    return number ^ (number >> np.uint64(31))


@compiled
def unit(number):  # type: ignore[no-untyped-def]
    """A random number as a fraction in [0, 1)."""
    return np.float64(number >> np.uint64(11)) / 9007199254740992.0


@compiled
def pick(shares, first, count, number):  # type: ignore[no-untyped-def]
    """The row that a random number chooses among `count` rows of cumulative `shares` from row `first` on."""
    wanted = unit(number)
    low = first
    high = first + count - 1
    while low < high:
        middle = (low + high) // 2
        if shares[middle] <= wanted:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def between(least, most, number):  # type: ignore[no-untyped-def]
    """The number from `least` to `most`, both included, that a random number chooses."""
    return least + np.int64(number % np.uint64(most - least + 1))


@compiled
def put_decimal(out, at, value):  # type: ignore[no-untyped-def]
    """Write `value`, which is not negative, in decimal digits at position `at`; returns the position after them."""
    digits = 1
    rest = value
    while rest >= 10:
        rest //= 10
        digits += 1
    for k in range(digits):
        out[at + digits - 1 - k] = np.uint8(48 + value % 10)
        value //= 10
    return at + digits


@compiled
def put_hex(out, at, value, digits):  # type: ignore[no-untyped-def]
    """Write the last `digits` hexadecimal digits of `value` in upper case at position `at`; returns the position after them."""
    for k in range(digits):
        out[at + k] = _HEX[(value >> (4 * (digits - 1 - k))) & 15]
    return at + digits


@compiled
def put_letters(out, at, length, stream):  # type: ignore[no-untyped-def]
    """Write `length` random letters at position `at`; returns the position after them."""
    end = at + length
    while at < end:
        stream += GAMMA
        number = mixed(stream)
        for _ in range(min(end - at, 10)):
            out[at] = _LETTERS[number & np.uint64(63)]
            number >>= np.uint64(6)
            at += 1
    return at
