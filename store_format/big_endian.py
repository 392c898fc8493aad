"""Big endian numbers in buffers of bytes, as Java's ByteBuffer reads and writes them; and the types of buffers and of positions in them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from store_format.compiled import compiled

Bytes = NDArray[np.uint8]
Positions = NDArray[np.int64]


@compiled
def int32_at(buffer, at):  # type: ignore[no-untyped-def]
    """The signed 32-bit big endian number at position `at`."""
    value = (np.int64(buffer[at]) << 24) | (np.int64(buffer[at + 1]) << 16) | (np.int64(buffer[at + 2]) << 8) | np.int64(buffer[at + 3])
    return value - (np.int64(1) << 32) if value >= (np.int64(1) << 31) else value


@compiled
def int64_at(buffer, at):  # type: ignore[no-untyped-def]
    """The signed 64-bit big endian number at position `at`."""
    return (int32_at(buffer, at) << 32) | (int32_at(buffer, at + 4) & np.int64(0xFFFFFFFF))


@compiled
def int16_at(buffer, at):  # type: ignore[no-untyped-def]
    """The signed 16-bit big endian number at position `at`."""
    value = (np.int64(buffer[at]) << 8) | np.int64(buffer[at + 1])
    return value - 65536 if value >= 32768 else value


@compiled
def put_int32(out, at, value):  # type: ignore[no-untyped-def]
    """Write `value` to `out` at position `at` as a 32-bit big endian number."""
    out[at] = np.uint8((value >> 24) & 0xFF)
    out[at + 1] = np.uint8((value >> 16) & 0xFF)
    out[at + 2] = np.uint8((value >> 8) & 0xFF)
    out[at + 3] = np.uint8(value & 0xFF)


@compiled
def put_int64(out, at, value):  # type: ignore[no-untyped-def]
    """Write `value` to `out` at position `at` as a 64-bit big endian number."""
    put_int32(out, at, value >> 32)
    put_int32(out, at + 4, value)
