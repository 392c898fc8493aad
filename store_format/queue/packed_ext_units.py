"""Packs the extension's unit of each queue entry for the tables, which have a column for it next to the entries.

Broker source (4.9.3): ConsumeQueue.getExt, ConsumeQueueExt.get, CqExtUnit.read, as DefaultMessageStore.getMessage calls them.
Rule: if an entry's tagsCode is an address, the tagsCode of the unit at that address is used instead.
Surprise: if there is no unit at the address, the entry has no tagsCode, and every TAG filter lets it pass. If the unit reaches past the
bytes in use, getMessage throws.

Packed form: a row of PACKED_UNIT for each entry, then all bit maps one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from store_format.big_endian import Bytes, int16_at, int64_at
from store_format.compiled import compiled
from store_format.files.mapped_files import MappedFile
from store_format.layout import EXT_MAX_ADDRESS
from store_format.queue.consume_queue_ext import EXT_UNIT
from store_format.queue.entry_lookup import find_files
from store_format.record.record_columns import Slices

# states of an entry's unit
NO_UNIT: Final = 0  # the entry's tagsCode is no address, or there is no unit at the address
UNIT: Final = 1
UNDERFLOW: Final = 2  # the unit reaches past the bytes in use: BufferUnderflowException

PACKED_UNIT: Final = np.dtype(
    [
        ("state", "i1"),
        ("tagsCode", "<i8"),
        ("msgStoreTime", "<i8"),  # store timestamp of the message, ms
        ("bitMapLength", "<i4"),  # bytes
    ]
)
_FIXED_PART = EXT_UNIT.itemsize


@dataclass(frozen=True, slots=True)
class UnitColumns:
    """The units of entries, a row for each entry: NO_UNIT, UNIT or UNDERFLOW; the other columns have a value for a UNIT only.

    `msg_store_times` are in ms; the slices of `bit_maps` point into `buffer`.
    """

    states: NDArray[np.int8]
    tags_codes: NDArray[np.int64]
    msg_store_times: NDArray[np.int64]
    buffer: Bytes
    bit_maps: Slices


@compiled
def _read_units(content, wrote, positions, rows, units, starts):  # type: ignore[no-untyped-def]
    for row in rows:
        at = positions[row]
        left = wrote - at
        if left < 2 or int16_at(content, at) < 1:
            continue
        if left < _FIXED_PART:
            units[row]["state"] = UNDERFLOW
            continue
        length = max(int16_at(content, at + 18), np.int64(0))
        if left < _FIXED_PART + length:
            units[row]["state"] = UNDERFLOW
            continue
        units[row]["state"] = UNIT
        units[row]["tagsCode"] = int64_at(content, at + 2)
        units[row]["msgStoreTime"] = int64_at(content, at + 10)
        units[row]["bitMapLength"] = length
        starts[row] = at + _FIXED_PART


@compiled
def _copy(content, starts, units, rows, offsets, out):  # type: ignore[no-untyped-def]
    for row in rows:
        for i in range(units[row]["bitMapLength"]):
            out[offsets[row] + i] = content[starts[row] + i]


def pack_units(files: Sequence[MappedFile], read: Callable[[MappedFile], Bytes], tags_codes: NDArray[np.int64]) -> bytes | None:
    """The packed units of entries with these tagsCodes, None if no tagsCode is an address.

    `files` are those of the queue's extension; `wrote` of each is the bytes in use.
    """
    offsets = tags_codes ^ np.int64(-(2**63))  # ConsumeQueueExt.unDecorate: plus 2**63
    file = np.where(tags_codes <= EXT_MAX_ADDRESS, find_files(files, offsets), -1)
    if not (file >= 0).any():
        return None
    units, starts = np.zeros(len(tags_codes), PACKED_UNIT), np.zeros(len(tags_codes), np.int64)
    positions = offsets % files[0].length
    rows_of = {index: np.flatnonzero(file == index) for index in np.unique(file[file >= 0]).tolist()}
    for index, rows in rows_of.items():
        _read_units(read(files[index]), files[index].wrote, positions, rows, units, starts)
    if not units["state"].any():
        return None
    lengths = units["bitMapLength"].astype(np.int64)
    maps = np.empty(int(lengths.sum()), np.uint8)
    for index, rows in rows_of.items():
        _copy(read(files[index]), starts, units, rows, np.cumsum(lengths) - lengths, maps)
    return units.tobytes() + maps.tobytes()


def unpack_units(packed: bytes, count: int) -> UnitColumns:
    """The units of `count` entries in their packed form."""
    raw = np.frombuffer(packed, np.uint8)
    units = raw[: count * PACKED_UNIT.itemsize].view(PACKED_UNIT)
    lengths = units["bitMapLength"].astype(np.int64)
    return UnitColumns(
        states=units["state"],
        tags_codes=units["tagsCode"].astype(np.int64),
        msg_store_times=units["msgStoreTime"].astype(np.int64),
        buffer=raw[count * PACKED_UNIT.itemsize :],
        bit_maps=Slices(np.cumsum(lengths) - lengths, lengths),
    )


def join_units(parts: Sequence[tuple[bytes | None, int, int]]) -> UnitColumns | None:
    """The units of consecutive runs of entries, None if no run has units.

    `parts` has for each run its packed units, its number of entries, and how many of the entries to take.
    """
    if all(packed is None for packed, _, _ in parts):
        return None
    nothing = np.zeros(max(count for _, count, _ in parts), PACKED_UNIT).tobytes()
    columns = [unpack_units(nothing if packed is None else packed, count) for packed, count, _ in parts]
    kept = [count for _, _, count in parts]
    before = np.cumsum([0, *(len(one.buffer) for one in columns)]).tolist()

    def joined(name: str) -> NDArray[np.generic]:
        return np.concatenate([getattr(one, name)[:count] for one, count in zip(columns, kept, strict=True)])

    starts = [one.bit_maps.starts[:count] + start for one, count, start in zip(columns, kept, before, strict=False)]
    lengths = [one.bit_maps.lengths[:count] for one, count in zip(columns, kept, strict=True)]
    return UnitColumns(
        states=joined("states").astype(np.int8),
        tags_codes=joined("tags_codes").astype(np.int64),
        msg_store_times=joined("msg_store_times").astype(np.int64),
        buffer=np.concatenate([one.buffer for one in columns]),
        bit_maps=Slices(np.concatenate(starts), np.concatenate(lengths)),
    )
