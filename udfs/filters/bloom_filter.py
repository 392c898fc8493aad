"""The bloom filter that gives each consumer its bits in a message's bit map, and the bit map.

Broker source (4.9.3): BloomFilter, BitsArray, BloomFilterData; ConsumerFilterManager.register for the text that is hashed. Guava's
Hashing.murmur3_128().hashString(text, UTF_8).asLong(): seed 0, the first of the two halves.
Rule: position i, from 1 to k, is the low half of the hash plus i times its high half, as an int that wraps; if that is negative, its bits
are flipped; the result is taken modulo m.
Surprises: several positions of one consumer may be the same bit. k is rounded up, so error rates of 50 percent and more have one bit.
Bit 0 is the lowest one of the first byte.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from store_format.config.config_rows import BloomFilterData
from store_format.java.numbers import to_int

_BITS_A_BYTE: Final = 8
_MASK: Final = (1 << 64) - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F


def _rotated(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & _MASK


def _mixed(value: int) -> int:
    value = ((value ^ (value >> 33)) * 0xFF51AFD7ED558CCD) & _MASK
    value = ((value ^ (value >> 33)) * 0xC4CEB9FE1A85EC53) & _MASK
    return value ^ (value >> 33)


def murmur3_128(data: bytes) -> int:
    """Return the first half of murmur3's 128-bit hash of data (x64 form, seed 0), from 0 to 2**64 - 1."""
    h1 = h2 = 0
    whole = len(data) // 16 * 16
    for at in range(0, whole + 1, 16):
        block = data[at : at + 16]
        k1, k2 = int.from_bytes(block[:8], "little"), int.from_bytes(block[8:], "little")
        h1 ^= _rotated(k1 * _C1 & _MASK, 31) * _C2 & _MASK
        if at < whole:
            h1 = ((_rotated(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK
        h2 ^= _rotated(k2 * _C2 & _MASK, 33) * _C1 & _MASK
        if at < whole:
            h2 = ((_rotated(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    return (_mixed(h1) + _mixed(h2)) & _MASK


class BloomFilterError(ValueError):
    """Arguments for which the broker throws IllegalArgumentException."""


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """A bloom filter with `k` positions a consumer, out of `m` bits."""

    k: int
    m: int

    @classmethod
    def create_by_fn(cls, f: int, n: int) -> BloomFilter:
        """Return the filter for `f` percent of errors and `n` consumers: BloomFilter.createByFn.

        The settings are maxErrorRateOfBloomFilter and expectConsumerNumUseFilter.

        Raises:
            BloomFilterError: the rate is not from 1 to 99, or the number is below 1.
        """
        if not 1 <= f < 100:
            raise BloomFilterError(f"maxErrorRateOfBloomFilter: expected 1 to 99, found {f}")
        if n < 1:
            raise BloomFilterError(f"expectConsumerNumUseFilter: expected 1 or more, found {n}")
        rate = f / 100.0
        m = math.ceil(n * (math.log(1 / rate) / math.log(2)) * (math.log(math.e) / math.log(2)))
        return cls(math.ceil(math.log(rate) / math.log(0.5)), _BITS_A_BYTE * math.ceil(m / _BITS_A_BYTE))

    def calc_bit_positions(self, text: str) -> tuple[int, ...]:
        """Return the `k` bit positions of a text, in the broker's order."""
        # a lone surrogate becomes a question mark, as in String.getBytes
        hash64 = murmur3_128(text.encode("utf-8", "replace"))
        low, high = hash64 & 0xFFFFFFFF, hash64 >> 32
        combined = (int(to_int(low + i * high)) for i in range(1, self.k + 1))
        return tuple((~one if one < 0 else one) % self.m for one in combined)

    def generate(self, consumer_group: str, topic: str) -> BloomFilterData:
        """Return the bloom filter data of a consumer group's subscription to a topic."""
        return BloomFilterData(bitPos=self.calc_bit_positions(f"{consumer_group}#{topic}"), bitNum=self.m)

    def is_valid(self, data: BloomFilterData | None) -> bool:
        """Return whether a filter of this size made the data."""
        return data is not None and data.bitNum == self.m and data.bitPos is not None and len(data.bitPos) == self.k

    def hash_to(self, positions: Iterable[int], bits: BitsArray) -> None:
        """Set the bits at these positions.

        Raises:
            BloomFilterError: the array has another size than `m`.
        """
        self._check(bits)
        for position in positions:
            bits.set_bit(position)

    def is_hit(self, positions: Sequence[int], bits: BitsArray) -> bool:
        """Return whether the bits at all positions are set.

        Raises:
            BloomFilterError: the array has another size than `m`, or a position is past its end.
        """
        self._check(bits)
        return all(bits.get_bit(position) for position in positions)

    def _check(self, bits: BitsArray) -> None:
        if bits.bit_length != self.m:
            raise BloomFilterError(f"bit map: expected {self.m} bits, found {bits.bit_length}")


class BitsArray:
    """An array of bits in bytes; the lowest bit of a byte comes first."""

    def __init__(self, bit_length: int, raw: bytes | None = None) -> None:
        self.bit_length = bit_length
        self._bytes = bytearray(raw or -(-bit_length // _BITS_A_BYTE))

    @classmethod
    def of(cls, raw: bytes) -> BitsArray:
        """Return the bits of a bit map.

        Raises:
            BloomFilterError: the bit map is empty.
        """
        if not raw:
            raise BloomFilterError("bit map: expected bytes, found none")
        return cls(len(raw) * _BITS_A_BYTE, raw)

    def __bytes__(self) -> bytes:
        return bytes(self._bytes)

    def set_bit(self, position: int) -> None:
        """Set the bit at a position.

        Raises:
            BloomFilterError: the position is past the end.
        """
        self._check(position)
        self._bytes[position // _BITS_A_BYTE] |= 1 << position % _BITS_A_BYTE

    def get_bit(self, position: int) -> bool:
        """Return whether the bit at a position is set.

        Raises:
            BloomFilterError: the position is past the end.
        """
        self._check(position)
        return bool(self._bytes[position // _BITS_A_BYTE] >> position % _BITS_A_BYTE & 1)

    def _check(self, position: int) -> None:
        # The broker's check lets position == bit_length pass; it then throws only if that position has no byte.
        if not 0 <= position < len(self._bytes) * _BITS_A_BYTE or position > self.bit_length:
            raise BloomFilterError(f"bit position: expected 0 to {self.bit_length - 1}, found {position}")
