"""Writes packets and capture files byte by byte, without any code of their readers."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable
from dataclasses import dataclass

SYN, FIN, RST, ACK, PUSH = 2, 1, 4, 16, 8
ETHERNET, NULL, RAW, COOKED, COOKED2, IPV4_LINK, IPV6_LINK = 1, 0, 101, 113, 276, 228, 229
CLIENT, SERVER = ("10.0.0.1", 40001), ("10.0.0.2", 10911)
START = 1_795_257_280_000_000


def tcp(source: tuple[str, int], target: tuple[str, int], seq: int, payload: bytes = b"", *, flags: int = ACK, ack: int = 0) -> bytes:
    """A TCP segment with a timestamp option."""
    options = b"\x01\x01\x08\x0a" + bytes(8)
    return struct.pack(">HHIIBBHHH", source[1], target[1], seq % 2**32, ack % 2**32, 8 << 4, flags, 512, 0, 0) + options + payload


def ip(source: str, target: str, segment: bytes, *, extension: bytes = b"") -> bytes:
    """An IPv4 or IPv6 packet; `extension` is an IPv6 hop-by-hop header without its next header."""
    ends = ipaddress.ip_address(source).packed + ipaddress.ip_address(target).packed
    if ":" not in source:
        return struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(segment), 1, 0x4000, 64, 6, 0) + ends + segment
    inner = bytes([6]) + extension + segment if extension else segment
    return struct.pack(">IHBB", 6 << 28, len(inner), 0 if extension else 6, 64) + ends + inner


def link(kind: int, packet: bytes, *, vlans: Iterable[int] = ()) -> bytes:
    """An IP packet with the header of a link layer."""
    v6 = packet[0] >> 4 == 6
    ethertype = struct.pack(">H", 0x86DD if v6 else 0x0800)
    if kind == ETHERNET:
        tags = b"".join(struct.pack(">HH", 0x8100, vlan) for vlan in vlans)
        return bytes(12) + tags + ethertype + packet
    heads = {
        COOKED: bytes(14) + ethertype,
        COOKED2: ethertype + bytes(18),
        NULL: struct.pack("<I", 30 if v6 else 2),
    }
    return heads.get(kind, b"") + packet


@dataclass(frozen=True)
class Sent:
    """A segment: its sender, the place of its payload in the stream, and its time."""

    from_client: bool
    seq: int
    payload: bytes = b""
    flags: int = ACK
    ack: int = 0
    micros: int = START

    def packet(self, kind: int = ETHERNET) -> bytes:
        """The packet."""
        source, target = (CLIENT, SERVER) if self.from_client else (SERVER, CLIENT)
        return link(kind, ip(source[0], target[0], tcp(source, target, self.seq, self.payload, flags=self.flags, ack=self.ack)))


def pcap(
    packets: Iterable[tuple[int, bytes]], *, kind: int = ETHERNET, order: str = "<", nano: bool = False, snaplen: int = 262144
) -> bytes:
    """A pcap file of (micros, packet)."""
    head = struct.pack(f"{order}IHHiIII", 0xA1B23C4D if nano else 0xA1B2C3D4, 2, 4, 0, 0, snaplen, kind)
    records = []
    for micros, packet in packets:
        seconds, part = divmod(micros, 1_000_000)
        kept = packet[:snaplen]
        records.append(struct.pack(f"{order}IIII", seconds, part * (1000 if nano else 1), len(kept), len(packet)) + kept)
    return head + b"".join(records)


def block(kind: int, content: bytes, order: str = "<") -> bytes:
    """A block of pcapng."""
    content += bytes(-len(content) % 4)
    length = len(content) + 12
    return struct.pack(f"{order}II", kind, length) + content + struct.pack(f"{order}I", length)


def section(order: str = "<") -> bytes:
    """The block that begins a section."""
    return block(0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(kind: int = ETHERNET, options: bytes = b"", order: str = "<") -> bytes:
    """The block of an interface."""
    return block(1, struct.pack(f"{order}HHI", kind, 0, 0) + options, order)


def option(code: int, value: bytes, order: str = "<") -> bytes:
    """An option of a block."""
    return struct.pack(f"{order}HH", code, len(value)) + value + bytes(-len(value) % 4)


def enhanced(number: int, ticks: int, packet: bytes, order: str = "<", options: bytes = b"") -> bytes:
    """A packet of an interface."""
    head = struct.pack(f"{order}IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(packet), len(packet))
    return block(6, head + packet + bytes(-len(packet) % 4) + options, order)
