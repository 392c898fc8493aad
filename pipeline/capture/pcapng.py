"""Parse blocks of a pcapng section: interfaces, and the packets that were captured on them.

Rule: link type, time resolution and time offset of a packet are those of its interface. Each section numbers its interfaces from 0.
Surprise: a simple packet block belongs to the first interface and has no time; it gets the time of the packet before it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from dpkt import pcapng as blocks

PCAPNG_MAGIC = blocks.PCAPNG_BT_SHB.to_bytes(4, "big")
_BYTE_ORDER_MAGIC = blocks.BYTE_ORDER_MAGIC.to_bytes(4, "big")
_SIMPLE_PACKET = 3
_SIMPLE_HEAD = 12
_BASE_TWO = 0x80
_MILLION = 1_000_000
_MICROS = 6
_MICROS_MAX = 1 << 62


@dataclass(frozen=True, slots=True)
class BlockPacket:
    """The packet in a block; its fields are as in packets.Packet."""

    micros: int
    link_type: int
    data: bytes


@dataclass(frozen=True, slots=True)
class _Interface:
    link_type: int
    snaplen: int
    ticks_a_second: int
    offset_seconds: int

    def micros(self, high: int, low: int) -> int:
        micros = (high << 32 | low) * _MILLION // self.ticks_a_second + self.offset_seconds * _MILLION
        if not 0 <= micros < _MICROS_MAX:
            raise ValueError(f"a time of {micros} microseconds")
        return micros


def byte_order_of(magic: bytes) -> str | None:
    """The byte order of a section as a format character of `struct`, from its byte-order magic; None for a wrong magic."""
    if magic == _BYTE_ORDER_MAGIC:
        return ">"
    return "<" if magic == _BYTE_ORDER_MAGIC[::-1] else None


@dataclass(slots=True)
class Interfaces:
    """The interfaces of a section that were read so far; `order` is the section's byte order."""

    order: str
    _known: list[_Interface] = field(default_factory=list)
    _last_micros: int = 0

    def block_length(self, head: bytes) -> int:
        """The length of a block, from its first eight bytes."""
        length: int = struct.unpack_from(f"{self.order}I", head, 4)[0]
        return length

    def packet_of(self, raw: bytes) -> BlockPacket | None:
        """Read one complete block: give its packet, or None for a block of another kind. The interface of an interface block is kept.

        Raises:
            ValueError, struct.error, dpkt's UnpackError: the block cannot be read.
        """
        kind = struct.unpack_from(f"{self.order}I", raw)[0]
        little = self.order == "<"
        if kind == blocks.PCAPNG_BT_IDB:
            self._known.append(
                _interface((blocks.InterfaceDescriptionBlockLE if little else blocks.InterfaceDescriptionBlock)(raw), self.order)
            )
        elif kind == blocks.PCAPNG_BT_EPB:
            return self._timed((blocks.EnhancedPacketBlockLE if little else blocks.EnhancedPacketBlock)(raw))
        elif kind == blocks.PCAPNG_BT_PB:
            return self._timed((blocks.PacketBlockLE if little else blocks.PacketBlock)(raw))
        elif kind == _SIMPLE_PACKET:
            return self._simple(raw)
        return None

    def _interface(self, number: int) -> _Interface:
        if number >= len(self._known):
            raise ValueError(f"a packet of interface {number} where {len(self._known)} are described")
        return self._known[number]

    def _timed(self, block: Any) -> BlockPacket:
        interface = self._interface(block.iface_id)
        self._last_micros = interface.micros(block.ts_high, block.ts_low)
        return BlockPacket(self._last_micros, interface.link_type, bytes(block.pkt_data))

    def _simple(self, raw: bytes) -> BlockPacket:
        interface = self._interface(0)
        (length,) = struct.unpack_from(f"{self.order}I", raw, 8)
        kept = min(length, interface.snaplen or length, len(raw) - _SIMPLE_HEAD - 4)
        return BlockPacket(self._last_micros, interface.link_type, raw[_SIMPLE_HEAD : _SIMPLE_HEAD + kept])


def _interface(block: Any, order: str) -> _Interface:
    ticks, offset = 10**_MICROS, 0
    for option in block.opts:
        if option.code == blocks.PCAPNG_OPT_IF_TSRESOL and option.data:
            value = option.data[0]
            ticks = 2 ** (value & ~_BASE_TWO) if value & _BASE_TWO else 10**value
        elif option.code == blocks.PCAPNG_OPT_IF_TSOFFSET:
            (offset,) = struct.unpack(f"{order}q", option.data)
    return _Interface(block.linktype, block.snaplen, ticks, offset)
