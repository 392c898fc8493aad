"""CRC-32 (the one of zlib and java.util.zip.CRC32) of many byte ranges at once.

zlib takes one range a call; for messages of a few hundred bytes the call costs more than the sum. This module computes the same CRC in
compiled code: by carry-less multiplication if the processor has it, else with sixteen tables, which takes more than twice as long.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from store_format.compiled import compiled
from store_format.record import carryless

_POLYNOMIAL = 0xEDB88320
_STEP = 16
_FOLDED_MIN = carryless.LANES * carryless.LANE


def _tables() -> NDArray[np.uint32]:
    tables = np.zeros((_STEP, 256), np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        tables[0, byte] = value
    for lane in range(1, _STEP):
        previous = tables[lane - 1]
        tables[lane] = (previous >> np.uint32(8)) ^ tables[0][previous & np.uint32(0xFF)]
    return tables


_TABLES = _tables()


@compiled
def _sixteen(crc, buffer, at, tables):  # type: ignore[no-untyped-def]
    """The sum `crc` continued over the sixteen bytes at `at`. `at` is an np.uint64: numba indexes with signed numbers more slowly."""
    word = crc ^ (
        np.uint32(buffer[at])
        | (np.uint32(buffer[at + np.uint64(1)]) << np.uint32(8))
        | (np.uint32(buffer[at + np.uint64(2)]) << np.uint32(16))
        | (np.uint32(buffer[at + np.uint64(3)]) << np.uint32(24))
    )
    crc = (
        tables[15, word & np.uint32(0xFF)]
        ^ tables[14, (word >> np.uint32(8)) & np.uint32(0xFF)]
        ^ tables[13, (word >> np.uint32(16)) & np.uint32(0xFF)]
        ^ tables[12, word >> np.uint32(24)]
    )
    for lane in range(12):
        crc ^= tables[11 - lane, buffer[at + np.uint64(4 + lane)]]
    return crc


@compiled
def _rest(crc, buffer, start, end, tables):  # type: ignore[no-untyped-def]
    """The sum `crc` continued over `buffer[start:end]` and inverted, which ends it."""
    at = np.uint64(start)
    while np.uint64(end) - at >= np.uint64(_STEP):
        crc = _sixteen(crc, buffer, at, tables)
        at += np.uint64(_STEP)
    while at < np.uint64(end):
        crc = (crc >> np.uint32(8)) ^ tables[0, (crc ^ np.uint32(buffer[at])) & np.uint32(0xFF)]
        at += np.uint64(1)
    return crc ^ np.uint32(0xFFFFFFFF)


@compiled
def _crc32_by_tables(buffer, starts, lengths, tables, out):  # type: ignore[no-untyped-def]
    """Write the CRC of each range to `out`, two ranges at a time: each step of one sum has to wait for the step before it."""
    for i in range(0, len(starts), 2):
        other = min(i + 1, len(starts) - 1)
        one = two = np.uint32(0xFFFFFFFF)
        shared = min(lengths[i], lengths[other]) // _STEP * _STEP
        for done in range(0, shared, _STEP):
            one = _sixteen(one, buffer, np.uint64(starts[i] + done), tables)
            two = _sixteen(two, buffer, np.uint64(starts[other] + done), tables)
        out[i] = _rest(one, buffer, starts[i] + shared, starts[i] + lengths[i], tables)
        out[other] = _rest(two, buffer, starts[other] + shared, starts[other] + lengths[other], tables)


@compiled
def _word(crc, word, tables):  # type: ignore[no-untyped-def]
    """The sum `crc` continued over the eight bytes of the number `word`."""
    word ^= np.uint64(crc)
    crc = np.uint32(0)
    for lane in range(8):
        crc ^= tables[7 - lane, (word >> np.uint64(8 * lane)) & np.uint64(0xFF)]
    return crc


@compiled
def _crc32_by_folding(buffer, starts, lengths, tables, out):  # type: ignore[no-untyped-def]
    """Write the CRC of each range of `buffer`, which must be contiguous, to `out`."""
    first = np.uint64(buffer.ctypes.data)
    for i in range(len(starts)):
        crc, start = np.uint32(0xFFFFFFFF), starts[i]
        if lengths[i] >= _FOLDED_MIN:
            lanes = lengths[i] // carryless.LANE
            low, high = carryless.folded(first + np.uint64(start), lanes, crc)
            crc = _word(_word(np.uint32(0), low, tables), high, tables)
            start += lanes * carryless.LANE
        out[i] = _rest(crc, buffer, start, starts[i] + lengths[i], tables)


def crc32_of_ranges(buffer: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.uint32]:
    """CRC-32 of `buffer[start:start + length]` for each pair; every range must lie inside `buffer`."""
    out = np.empty(len(starts), np.uint32)
    sums = _crc32_by_folding if carryless.AVAILABLE and buffer.flags.c_contiguous else _crc32_by_tables
    sums(buffer, starts, lengths, _TABLES, out)
    return out
