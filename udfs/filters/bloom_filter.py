"""The bloom filter by which consumers share the bit map of a message, and the bits themselves.

Broker source (4.9.3): BloomFilter, BitsArray, BloomFilterData; ConsumerFilterManager.register for the text that is hashed. Guava's
Hashing.murmur3_128().hashString(text, UTF_8).asLong(): seed 0, the first of the two halves.
Rule: position i, from 1 to k, is the low half of the hash plus i times its high half, in an int that wraps; then its bits flipped if it is
negative; then modulo m.
Surprises: several positions of one consumer may be the same bit. k is rounded up, so that error rates of 50 percent and more have one bit.
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
    """The first half of murmur3's 128 bits (x64 form, seed 0), from 0 to 2**64 - 1."""
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
    """What the broker answers with an IllegalArgumentException."""


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """A bloom filter: `k` bits a consumer, out of `m`."""

    k: int
    m: int

    @classmethod
    def create_by_fn(cls, f: int, n: int) -> BloomFilter:
        """BloomFilter.createByFn.

        Args:
            f: error rate in percent, maxErrorRateOfBloomFilter.
            n: how many consumers are expected, expectConsumerNumUseFilter.

        Raises:
            BloomFilterError: no such rate, or no consumers.
        """
        if not 1 <= f < 100:
            message = f"maxErrorRateOfBloomFilter: expected 1 to 99, found {f}"
            raise BloomFilterError(message)
        if n < 1:
            message = f"expectConsumerNumUseFilter: expected 1 or more, found {n}"
            raise BloomFilterError(message)
        rate = f / 100.0
        m = math.ceil(n * (math.log(1 / rate) / math.log(2)) * (math.log(math.e) / math.log(2)))
        return cls(math.ceil(math.log(rate) / math.log(0.5)), _BITS_A_BYTE * math.ceil(m / _BITS_A_BYTE))

    def calc_bit_positions(self, text: str) -> tuple[int, ...]:
        """The bits of a text, `k` of them, in the broker's order."""
        # half a surrogate pair becomes a question mark, as in String.getBytes
        hash64 = murmur3_128(text.encode("utf-8", "replace"))
        low, high = hash64 & 0xFFFFFFFF, hash64 >> 32
        combined = (int(to_int(low + i * high)) for i in range(1, self.k + 1))
        return tuple((~one if one < 0 else one) % self.m for one in combined)

    def generate(self, consumer_group: str, topic: str) -> BloomFilterData:
        """The bits of a consumer group's subscription to a topic."""
        return BloomFilterData(bitPos=self.calc_bit_positions(f"{consumer_group}#{topic}"), bitNum=self.m)

    def is_valid(self, data: BloomFilterData | None) -> bool:
        """Whether bits were made by a filter of this size."""
        return data is not None and data.bitNum == self.m and data.bitPos is not None and len(data.bitPos) == self.k

    def hash_to(self, positions: Iterable[int], bits: BitsArray) -> None:
        """Set bits.

        Raises:
            BloomFilterError: the array has another size.
        """
        self._check(bits)
        for position in positions:
            bits.set_bit(position)

    def is_hit(self, positions: Sequence[int], bits: BitsArray) -> bool:
        """Whether all of these bits are set.

        Raises:
            BloomFilterError: the array has another size, or no such bit where it is looked for.
        """
        self._check(bits)
        return all(bits.get_bit(position) for position in positions)

    def _check(self, bits: BitsArray) -> None:
        if bits.bit_length != self.m:
            message = f"bit map: expected {self.m} bits, found {bits.bit_length}"
            raise BloomFilterError(message)


class BitsArray:
    """Bits in bytes, the lowest bit of a byte first."""

    def __init__(self, bit_length: int, raw: bytes | None = None) -> None:
        self.bit_length = bit_length
        self._bytes = bytearray(raw or -(-bit_length // _BITS_A_BYTE))

    @classmethod
    def of(cls, raw: bytes) -> BitsArray:
        """The bits of a bit map.

        Raises:
            BloomFilterError: it is empty.
        """
        if not raw:
            message = "bit map: expected bytes, found none"
            raise BloomFilterError(message)
        return cls(len(raw) * _BITS_A_BYTE, raw)

    def __bytes__(self) -> bytes:
        return bytes(self._bytes)

    def set_bit(self, position: int) -> None:
        """Set a bit.

        Raises:
            BloomFilterError: there is no such bit.
        """
        self._check(position)
        self._bytes[position // _BITS_A_BYTE] |= 1 << position % _BITS_A_BYTE

    def get_bit(self, position: int) -> bool:
        """Whether a bit is set.

        Raises:
            BloomFilterError: there is no such bit.
        """
        self._check(position)
        return bool(self._bytes[position // _BITS_A_BYTE] >> position % _BITS_A_BYTE & 1)

    def _check(self, position: int) -> None:
        # the broker lets bit_length itself pass, and throws when it does not find the byte
        if not 0 <= position < len(self._bytes) * _BITS_A_BYTE or position > self.bit_length:
            message = f"bit position: expected 0 to {self.bit_length - 1}, found {position}"
            raise BloomFilterError(message)
