"""Read the packets of a capture file in the formats pcap and pcapng, which tcpdump and Wireshark write.

The headers are parsed with dpkt. Its readers are not used: they give neither the position of a packet nor its original length, and they
take the time resolution and link type of every packet of a pcapng file from the first interface.
Rule: a part that cannot be read is returned as a value, and the reader continues after it. Lengths above PACKET_MAX are errors.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from dpkt import UnpackError
from dpkt import pcap as dpkt_pcap
from numpy.typing import NDArray

from pipeline.capture.pcapng import PCAPNG_MAGIC, Interfaces, byte_order_of
from pipeline.schema.capture_tables import RAW_BYTES_MAX
from store_format.errors import StoreError, shown

PACKET_MAX = 1 << 20  # libpcap captures at most 256 KiB of a packet; packets of offloading cards have at most half a MiB
_NANO = {dpkt_pcap.TCPDUMP_MAGIC_NANO, dpkt_pcap.PMUDPCT_MAGIC_NANO}
_SWAPPED = {dpkt_pcap.PMUDPCT_MAGIC, dpkt_pcap.PMUDPCT_MAGIC_NANO, dpkt_pcap.PACPDOM_MAGIC}
_MODIFIED = {dpkt_pcap.MODPCAP_MAGIC, dpkt_pcap.PACPDOM_MAGIC}
_MILLION = 1_000_000
_BLOCK_HEAD = 8
_SEARCHED = 1 << 16  # bytes that are searched at a time for the next record; also the least size of a read
_FIRST_STRETCH = 256  # bytes that are searched first; after one damaged record, the next one is near
_RECORD_HEAD = 16  # bytes of a record's time and sizes
_YEAR = 366 * 86_400


class Source(Protocol):
    """A file that is read sequentially."""

    def read(self, size: int, /) -> bytes:
        """The next `size` bytes; fewer only at the end of the file."""


class Packet(NamedTuple):
    """One captured packet: its number in the file, from 0, and the position of its record, in bytes.

    `micros` is the time of the capture since 1970, `link_type` a LINKTYPE_ number of tcpdump. `data` begins with the header of the link
    layer.
    """

    number: int
    position: int
    micros: int
    link_type: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Bad:
    """A part of the file that cannot be read: its position, the reason, and its first bytes."""

    position: int
    error: str
    raw: bytes


@dataclass(slots=True)
class _Reading:
    """A source that is read ahead, with the position of the next byte."""

    source: Source
    at: int = 0
    _held: bytes = b""
    _begin: int = 0
    _is_read: bool = False

    def read(self, size: int) -> bytes:
        """The next `size` bytes; fewer at the end of the file."""
        self._hold(size)
        found = self._held[self._begin : self._begin + size]
        self.skip(len(found))
        return found

    def peek(self, size: int) -> memoryview:
        """The bytes that `read` would give, without reading past them."""
        self._hold(size)
        return memoryview(self._held)[self._begin : self._begin + size]

    def _hold(self, size: int) -> None:
        left = len(self._held) - self._begin
        if left < size and not self._is_read:
            # at least _SEARCHED bytes, because each read copies the held bytes: a search holds a megabyte
            wanted = max(size - left, _SEARCHED)
            more = self.source.read(wanted)
            self._held, self._begin, self._is_read = self._held[self._begin :] + more, 0, len(more) < wanted

    def skip(self, size: int) -> None:
        """Go on after `size` bytes that `peek` gave."""
        self._begin += size
        self.at += size


def read_packets(source: Source, path: str) -> Iterator[Packet | Bad]:
    """The packets of a capture file in order, and the parts that cannot be read; one packet at a time is in memory.

    Raises:
        StoreError: the file is neither pcap nor pcapng.
    """
    reading = _Reading(source)
    if reading.peek(4) == PCAPNG_MAGIC:
        yield from _pcapng(reading)
        return
    head = reading.read(dpkt_pcap.FileHdr.__hdr_len__)
    magic = int.from_bytes(head[:4], "big")
    if len(head) < dpkt_pcap.FileHdr.__hdr_len__ or magic not in dpkt_pcap.MAGIC_TO_PKT_HDR:
        raise StoreError(path, "the header of a pcap or pcapng file", repr(head) if head else "an empty file", position=0)
    yield from _pcap(reading, magic, head)


def with_a_packet(found: Iterable[Packet | Bad], path: str) -> Iterator[Packet | Bad]:
    """Pass on the packets and unreadable parts `found` in a capture file; check that not all of them are unreadable.

    Raises:
        StoreError: after the last part, if all parts are unreadable. A file without any part, from a silent wire, is no error.
    """
    first: Bad | None = None
    has_packet = False
    for one in found:
        has_packet = has_packet or isinstance(one, Packet)
        first = one if first is None and isinstance(one, Bad) else first
        yield one
    if first is not None and not has_packet:
        hint = f"the first bytes that are none: {shown(first.raw[:16])}; was the file damaged, or cut short?"
        raise StoreError(path, "one packet that can be read, or more", "none after the file's header", position=first.position, hint=hint)


def _pcap(reading: _Reading, magic: int, head: bytes) -> Iterator[Packet | Bad]:
    order = "<" if magic in _SWAPPED else ">"
    link_type = (dpkt_pcap.LEFileHdr if magic in _SWAPPED else dpkt_pcap.FileHdr)(head).linktype & 0x0FFFFFFF  # above: FCS bits
    fraction = 1000 if magic in _NANO else 1
    record = struct.Struct(f"{order}IIII" + ("8x" if magic in _MODIFIED else ""))
    number = 0
    seconds_before: int | None = None
    while raw := bytes(reading.peek(record.size)):
        position = reading.at
        if len(raw) < record.size:
            yield Bad(position, f"expected a record header of {record.size} bytes, found {len(raw)} up to the end of the file", raw)
            return
        seconds, part, kept, length = record.unpack(raw)
        if not _plausible(seconds, part, kept, length, seconds_before, fraction):
            yield _after_bad_record(reading, record, seconds_before, fraction)
            continue
        reading.skip(record.size)
        data = reading.read(kept)
        if len(data) < kept:
            yield Bad(position, f"expected a packet of {kept} bytes, found {len(data)} up to the end of the file", data[:RAW_BYTES_MAX])
            return
        seconds_before = seconds
        yield Packet(number, position, seconds * _MILLION + part // fraction, link_type, data)
        number += 1


def _plausible(seconds: int, part: int, kept: int, length: int, before: int | None, fraction: int) -> bool:
    """Whether a record header is plausible: sizes in bounds, a fraction below a second, less than a year from the packet before."""
    near = before is None or abs(seconds - before) < _YEAR
    return kept <= PACKET_MAX and kept <= max(length, 1) and part < _MILLION * fraction and near


def _after_bad_record(reading: _Reading, record: struct.Struct, before: int | None, fraction: int) -> Bad:
    """Skip to the next position with two plausible consecutive records, or with the last record of the file."""
    position = reading.at
    raw = bytes(reading.peek(RAW_BYTES_MAX))
    size = _SEARCHED + PACKET_MAX + 2 * record.size
    while True:
        window = reading.peek(size)
        is_last = len(window) < size
        end = len(window) if is_last else _SEARCHED
        for at in _places(window, end, record, before, fraction):
            if reading.at + at > position and _records_at(window, at, record, before, fraction, is_last=is_last):
                reading.skip(at)
                found = f"one that cannot be; {reading.at - position} bytes were skipped"
                return Bad(position, f"expected a record header, found {found}", raw)
        reading.skip(end)
        if is_last:
            what = f"expected a record header, found none up to the end of the file, {reading.at - position} bytes"
            return Bad(position, what, raw)


def _places(window: memoryview, end: int, record: struct.Struct, before: int | None, fraction: int) -> Iterator[int]:
    """The positions before `end` at which a record may begin: its header is plausible, and so is the next one if the window has it.

    Many positions are tested at once, in ever longer stretches: one by one, a megabyte of garbage would take a second.
    """
    headers = len(window) - _RECORD_HEAD + 1  # positions at which a header fits in
    if headers <= 0:
        return
    # the numbers of four bytes at each position; nothing is copied
    numbers = [np.ndarray(headers, np.dtype(f"{record.format[0]}u4"), window, place, (1,)) for place in (0, 4, 8, 12)]

    def are_plausible(found: slice | NDArray[np.int64], before: int | NDArray[np.int64] | None) -> NDArray[np.bool_]:
        seconds, part, kept, length = (number[found] for number in numbers)
        plausible: NDArray[np.bool_] = (kept > 0) & (kept <= PACKET_MAX) & (kept <= np.maximum(length, 1)) & (part < _MILLION * fraction)
        if before is not None:
            plausible &= np.abs(seconds.astype(np.int64) - before) < _YEAR
        return plausible

    start, stretch = 0, _FIRST_STRETCH
    while start < min(end, headers):
        stop = min(start + stretch, end, headers)
        first = start + np.flatnonzero(are_plausible(slice(start, stop), before))
        following = first + record.size + numbers[2][first]
        inside = np.flatnonzero(following < headers)
        kept = following >= headers
        kept[inside] = are_plausible(following[inside], numbers[0][first[inside]].astype(np.int64))
        yield from first[kept].tolist()
        start, stretch = stop, stretch * 4


def _records_at(window: memoryview, at: int, record: struct.Struct, before: int | None, fraction: int, *, is_last: bool) -> bool:
    for _ in range(2):
        if at + record.size > len(window):
            return is_last and at == len(window)
        seconds, part, kept, length = record.unpack_from(window, at)
        if kept == 0 or not _plausible(seconds, part, kept, length, before, fraction):
            return False
        before = seconds
        at += record.size + kept
    return True


def _pcapng(reading: _Reading) -> Iterator[Packet | Bad]:
    number = 0
    interfaces: Interfaces | None = None
    while head := reading.read(_BLOCK_HEAD):
        position = reading.at - len(head)
        if head[:4] == PCAPNG_MAGIC:
            head += reading.read(4)
            order = byte_order_of(head[8:12])
            interfaces = None if order is None else Interfaces(order)
        if interfaces is None or len(head) < _BLOCK_HEAD:
            yield Bad(position, "expected a block of a pcapng section, found something else; the rest was not read", head)
            return
        length = interfaces.block_length(head)
        if length % 4 or not len(head) + 4 <= length <= PACKET_MAX + (1 << 16):
            yield Bad(
                position, f"expected a block of 12 bytes or more and at most {PACKET_MAX}, found {length}; the rest was not read", head
            )
            return
        raw = head + reading.read(length - len(head))
        if len(raw) < length:
            yield Bad(position, f"expected a block of {length} bytes, found {len(raw)} up to the end of the file", raw[:RAW_BYTES_MAX])
            return
        try:
            found = interfaces.packet_of(raw)
        except (UnpackError, ValueError, struct.error, IndexError) as error:
            yield Bad(position, f"expected a block of pcapng, found one that cannot be read: {error}", raw[:RAW_BYTES_MAX])
            continue
        if found is not None:
            yield Packet(number, position, found.micros, found.link_type, found.data)
            number += 1
