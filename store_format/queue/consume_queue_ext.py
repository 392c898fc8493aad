"""The files of a consume queue extension: for each queue entry a unit with tag hash, store timestamp and a bit map of consumers.

Broker source (4.9.3): ConsumeQueueExt and its CqExtUnit.
Rule: a tagsCode of -2147483649 or below is an address: the entry's unit is at byte tagsCode + 2**63. No tag has a hash that small.
Surprises: a unit lies whole in one file. If it does not fit with four bytes to spare, -1 is written as a size and the rest of the file
stays zero. Recover walks all files, but only the last file decides where the extension ends: before its -1. The broker throws, and does not
return null, if a unit reaches past the bytes in use.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from store_format.big_endian import Bytes, int16_at
from store_format.compiled import compiled
from store_format.errors import CorruptStoreError
from store_format.files.mapped_files import MappedFile, max_offset, offset_to_file_name, truncate_dirty_files
from store_format.layout import EXT_MAX_ADDRESS

EXT_UNIT: Final = np.dtype(
    [
        ("size", ">i2"),  # the whole unit
        ("tagsCode", ">i8"),
        ("msgStoreTime", ">i8"),  # store timestamp of the message, ms
        ("bitMapSize", ">i2"),  # bytes; the bit map follows
    ]
)
assert EXT_UNIT.itemsize == 20  # CqExtUnit.MIN_EXT_UNIT_SIZE
_UNIT = struct.Struct(">hqqh")
assert _UNIT.size == EXT_UNIT.itemsize

MAX_EXT_UNIT_SIZE: Final = 32767
END_BLANK_DATA_LENGTH: Final = 4
END_OF_FILE: Final = -1  # the value of a size after the last unit of a file
NO_ADDRESS: Final = 1  # the broker's value while it has found no address
DEFAULT_EXT_FILE_SIZE: Final = 48 << 20
_REAL_OFFSET_MAX: Final = EXT_MAX_ADDRESS + 2**63

ReadBytes = Callable[[MappedFile], Bytes]


def is_ext_address(tags_code: int) -> bool:
    """ConsumeQueueExt.isExtAddr: whether a tagsCode is the address of a unit."""
    return tags_code <= EXT_MAX_ADDRESS


def offset_of(address: int) -> int:
    """ConsumeQueueExt.unDecorate: the position in bytes in the extension of the unit at `address`."""
    return address + 2**63


def address_of(offset: int) -> int:
    """ConsumeQueueExt.decorate: the tagsCode that is the address of a unit at byte `offset`."""
    return offset - 2**63


def last_address(tags_codes: NDArray[np.int64], former: int = NO_ADDRESS) -> int:
    """The last of `tags_codes` that is an address, else `former`; a queue keeps it as maxExtAddr while it walks its entries."""
    found = np.flatnonzero(tags_codes <= EXT_MAX_ADDRESS)
    return int(tags_codes[found[-1]]) if len(found) else former


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtUnit:
    """One unit; `bit_map` is None if the broker knew no consumer, `size` is the number in the file."""

    tags_code: int
    msg_store_time: int
    bit_map: bytes | None = None
    size: int = 0


class UnitUnderflowError(Exception):
    """A unit that ends past the bytes in use: ConsumeQueueExt.get throws java.nio.BufferUnderflowException."""


def encode_unit(unit: ExtUnit) -> bytes:
    """CqExtUnit.write: the bytes of a unit; its size is computed."""
    bit_map = unit.bit_map or b""
    return _UNIT.pack(_UNIT.size + len(bit_map), unit.tags_code, unit.msg_store_time, len(bit_map)) + bit_map


def decode_unit(raw: Bytes) -> ExtUnit | None:
    """CqExtUnit.read: the unit at the start of `raw`, None if there is none.

    Raises:
        UnitUnderflowError: the bytes end inside the unit.
    """
    if len(raw) < 2 or int.from_bytes(raw[:2].tobytes(), "big", signed=True) < 1:
        return None
    if len(raw) < _UNIT.size:
        raise UnitUnderflowError(f"a unit of {_UNIT.size} bytes or more in {len(raw)}")
    size, tags_code, msg_store_time, bit_map_size = _UNIT.unpack(raw[: _UNIT.size].tobytes())
    bit_map = None
    if bit_map_size > 0:
        bit_map = raw[_UNIT.size : _UNIT.size + bit_map_size].tobytes()
        if len(bit_map) < bit_map_size:
            raise UnitUnderflowError(f"a bit map of {bit_map_size} bytes in {len(bit_map)}")
    return ExtUnit(size=size, tags_code=tags_code, msg_store_time=msg_store_time, bit_map=bit_map)


def _file_of(files: Sequence[MappedFile], offset: int) -> MappedFile | None:
    first = files[0] if files and offset == 0 else None
    return next((file for file in files if file.from_offset <= offset < file.end), first)


def get(files: Sequence[MappedFile], address: int, read: ReadBytes) -> ExtUnit | None:
    """ConsumeQueueExt.get: the unit at `address` (any tagsCode), None if there is none; `read` returns all bytes of a file.

    Raises:
        UnitUnderflowError: the unit ends past the bytes in use, and the broker throws.
    """
    if not is_ext_address(address):
        return None
    offset = offset_of(address)
    file = _file_of(files, offset)
    if file is None or offset % file.length >= file.wrote:
        return None
    return decode_unit(read(file)[offset % file.length : file.wrote])


@compiled
def _end_of_units(content):  # type: ignore[no-untyped-def]
    at = np.int64(0)
    while at + 2 <= len(content):
        size = int16_at(content, at)
        if size <= 0:
            return at
        at += size
    return np.int64(-1)


def recover(files: Sequence[MappedFile], read: ReadBytes) -> tuple[MappedFile, ...]:
    """The files after ConsumeQueueExt.recover; the bytes in use of the last one end with its last unit.

    Raises:
        CorruptStoreError: the sizes of a file's units reach past its end, and the broker's load fails.
    """
    end = 0
    for file in files:
        stop = int(_end_of_units(read(file)))
        if stop < 0:
            raise CorruptStoreError(
                file.name,
                "units of a consume queue extension that end before the file does",
                "sizes that run over its end",
                hint="the broker does not load such a store",
            )
        end = file.from_offset + stop
    return truncate_dirty_files(files, end)


def truncate_by_min_address(files: Sequence[MappedFile], address: int) -> tuple[MappedFile, ...]:
    """The files after ConsumeQueueExt.truncateByMinAddress: without the files that end before `address`."""
    if not is_ext_address(address):
        return tuple(files)
    return tuple(file for file in files if file.end >= offset_of(address))


def truncate_by_max_address(files: Sequence[MappedFile], address: int, read: ReadBytes) -> tuple[MappedFile, ...]:
    """The files after ConsumeQueueExt.truncateByMaxAddress: up to the end of the unit at `address`, or all if there is no unit.

    Raises:
        UnitUnderflowError: the unit ends past the bytes in use, and the broker throws.
    """
    unit = get(files, address, read)
    return tuple(files) if unit is None else truncate_dirty_files(files, offset_of(address) + unit.size)


@dataclass(slots=True, kw_only=True)
class ExtWriter:
    """The extension of one queue while entries are dispatched; files oldest first.

    `contents` has the writable bytes, by file name, of the last file and of each created file; `new_content` makes the zeros of a new file.
    """

    file_size: int
    files: list[MappedFile] = field(default_factory=list)
    contents: dict[str, Bytes] = field(default_factory=dict)
    new_content: Callable[[str, int], Bytes] = lambda _name, length: np.zeros(length, np.uint8)

    def put(self, unit: ExtUnit) -> int:
        """ConsumeQueueExt.put: the address of the stored unit, or NO_ADDRESS if it cannot be stored and the entry keeps its tagsCode."""
        raw = encode_unit(unit) if len(unit.bit_map or b"") <= MAX_EXT_UNIT_SIZE - _UNIT.size else None
        if raw is None or max_offset(self.files) + len(raw) > _REAL_OFFSET_MAX:
            return NO_ADDRESS
        for _ in range(3):
            if not self.files or self.files[-1].wrote == self.file_size:
                self._create()
            file = self.files[-1]
            content = self.contents[file.name]
            if len(raw) <= self.file_size - file.wrote - END_BLANK_DATA_LENGTH:
                content[file.wrote : file.wrote + len(raw)] = np.frombuffer(raw, np.uint8)
                self.files[-1] = replace(file, wrote=file.wrote + len(raw))
                return address_of(file.from_offset + file.wrote)
            if file.wrote + 2 > self.file_size:
                break  # the broker logs a BufferOverflowException
            content[file.wrote : file.wrote + 2] = 0xFF
            self.files[-1] = replace(file, wrote=self.file_size)
        return NO_ADDRESS

    def _create(self) -> None:
        start = self.files[-1].end if self.files else 0
        name = offset_to_file_name(start)
        self.files.append(MappedFile(name=name, from_offset=start, length=self.file_size, wrote=0))
        self.contents[name] = self.new_content(name, self.file_size)
