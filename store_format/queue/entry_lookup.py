"""Looks up in the commit log the bytes that consume queue entries point to.

Broker source (4.9.3): CommitLog.getMessage and pickupStoreTimestamp, MappedFileQueue.findMappedFileByOffset.
Rule: an entry is (physicOffset, size); the broker delivers the bytes at that place, whatever they are.
Surprise: if no file has offset 0, the first file is used, so a cleaned store delivers another message's bytes for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from store_format.big_endian import Bytes, int32_at, int64_at
from store_format.broker_version import DEFAULT_VERSION, BrokerVersion
from store_format.compiled import compiled
from store_format.files.mapped_files import MappedFile
from store_format.layout import BORNHOST_V6_FLAG
from store_format.record.message_version import MESSAGE_VERSION, is_message
from store_format.record.record_columns import is_representable
from store_format.record.record_length import record_length

NO_TIMESTAMP = -(2**63)


@dataclass(frozen=True, slots=True)
class EntriesInLog:
    """The bytes in the commit log of queue entries, a row each.

    Attributes:
        store_timestamps: ms, NO_TIMESTAMP if the log has no message there. Unlike a pull, CommitLog.pickupStoreTimestamp does not fall
            back to the first file.
        file: index of the log file with the delivered bytes, -1 if the broker gets null.
        positions: position in that file at which the delivered bytes start.
        is_record: whether the delivered bytes are exactly one record whose physicOffset is its place.
    """

    store_timestamps: NDArray[np.int64]
    file: NDArray[np.int64]
    positions: NDArray[np.int64]
    is_record: NDArray[np.bool_]


def find_files(files: Sequence[MappedFile], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """The index of the file that holds each offset, -1 if no file does; offset 0 falls back to the first file."""
    if not files:
        return np.full(len(offsets), -1, np.int64)
    starts = np.array([file.from_offset for file in files], np.int64)
    found = np.searchsorted(starts, offsets, side="right") - 1
    inside = (found >= 0) & (offsets - starts[found] < files[0].length)
    found = np.where(inside, found, -1)
    return np.where((offsets == 0) & (found < 0), 0, found)


def locate(
    files: Sequence[MappedFile], physic_offsets: NDArray[np.int64], sizes: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each entry the index of the file with its bytes (-1 if the broker gets null) and their start in that file."""
    file = find_files(files, physic_offsets)
    positions = np.where(file >= 0, physic_offsets % files[0].length if files else 0, 0)
    wrote = np.array([one.wrote for one in files] or [0], np.int64)[file]
    there = (file >= 0) & (sizes >= 0) & (positions + sizes <= wrote)  # zero bytes are an empty buffer, not null
    return np.where(there, file, -1), positions


def files_of(file: NDArray[np.int64]) -> list[int]:
    """The indexes of files in `file`, ascending; negative ones count as none."""
    found: list[int] = np.flatnonzero(np.bincount(file[file >= 0])).tolist()
    return found


@compiled
def _inspect(content, from_offset, walked, with_v2, offsets, positions, sizes, rows, stamps, is_record):  # type: ignore[no-untyped-def]
    for row in rows:
        at = positions[row]
        size = np.int64(sizes[row])
        if size >= 40:
            born = 20 if int32_at(content, at + 36) & BORNHOST_V6_FLAG else 8
            if size >= 56 + born:
                stamp = int64_at(content, at + 48 + born)
                stamps[row] = stamp if stamp >= 0 else NO_TIMESTAMP
        if at >= walked or size < 91 or from_offset + at != offsets[row]:
            continue
        if int32_at(content, at) == size and is_message(content, at, with_v2):
            is_record[row] = record_length(content, at, at + size) == size and is_representable(content, at, from_offset)


def look_up(
    files: Sequence[MappedFile],
    walked: Sequence[int],
    read: Callable[[MappedFile], Bytes],
    physic_offsets: NDArray[np.int64],
    sizes: NDArray[np.int32],
    version: BrokerVersion = DEFAULT_VERSION,
) -> EntriesInLog:
    """Look each entry up in the files of the commit log, whose records are those that a version of the broker knows.

    `walked` has the position in each file up to which a walk has found its records; `read` is called once for each file.
    """
    count, with_v2 = len(physic_offsets), MESSAGE_VERSION.of(version).value
    file, positions = locate(files, physic_offsets, sizes)
    stamps = np.full(count, NO_TIMESTAMP, np.int64)
    is_record = np.zeros(count, np.bool_)
    for index in files_of(file):
        rows = np.flatnonzero(file == index)
        content = read(files[index])
        start = files[index].from_offset
        _inspect(content, start, walked[index], with_v2, physic_offsets, positions, sizes, rows, stamps, is_record)
    if files:
        stamps[physic_offsets < files[0].from_offset] = NO_TIMESTAMP
    return EntriesInLog(stamps, file, positions, is_record)
