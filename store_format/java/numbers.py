"""Java's int and long where they differ from Python's integers: a result that is too large wraps.

Broker source (4.9.3): visible in DefaultMessageStore.isTheBatchFull (bytes so far + size of the entry), in getMessage (maxMsgNums * 20)
and in `(int) tagsCode`. Java Language Specification 5.1.3 and 15.18.2.
Surprise: a damaged entry can claim 2147483647 bytes. Its sum with the bytes taken so far is then negative, and the batch is not full.
No step of the compiled functions needs more than 64 bits, so their `py_func` returns the same for Python's integers.
"""

from __future__ import annotations

from store_format.compiled import compiled

_LONG_MODULUS = 1 << 64
_LONG_SIGN = 1 << 63


@compiled
def to_int(value: int) -> int:
    """Java's `(int) value` of a long: the low 32 bits, signed."""
    return ((value & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000


@compiled
def subtract_longs(left: int, right: int) -> int:
    """Java's `left - right` of two longs, wrapping at 64 bits."""
    low = (left & 0xFFFFFFFF) - (right & 0xFFFFFFFF)
    high = (left >> 32) - (right >> 32) + (low >> 32)
    return (to_int(high) << 32) | (low & 0xFFFFFFFF)


def to_long(value: int) -> int:
    """The low 64 bits of a Python integer of any size, signed, as Java's arithmetic on longs leaves them."""
    return (value + _LONG_SIGN) % _LONG_MODULUS - _LONG_SIGN
