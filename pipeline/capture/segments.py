"""Find the TCP segments in captured packets, and pack the segments of each connection, many in one row.

A connection is the unordered pair of its two ends. A packed row has consecutive segments of one connection, in both directions, in the
order of the file: a matrix of numbers, and the concatenated payloads. So Spark sorts thousands of rows instead of millions.
Surprise: a packet of a card that offloads segmentation may have the length 0; then the captured length counts.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from dpkt import UnpackError, ip, ip6, tcp
from dpkt import pcap as dpkt_pcap
from dpkt.ethernet import Ethernet
from dpkt.loopback import Loopback
from dpkt.sll import SLL
from dpkt.sll2 import SLL2
from numpy.typing import NDArray

from pipeline.capture.packets import Bad, Packet
from pipeline.schema.capture_tables import RAW_BYTES_MAX

# LINKTYPE_ number -> class of dpkt that parses its header and all headers after it
_LINKS: dict[int, Any] = {
    dpkt_pcap.DLT_EN10MB: Ethernet,
    dpkt_pcap.DLT_LINUX_SLL: SLL,
    dpkt_pcap.DLT_LINUX_SLL2: SLL2,
    dpkt_pcap.DLT_NULL: Loopback,
    108: Loopback,  # LINKTYPE_LOOP
    dpkt_pcap.DLT_IPV4: ip.IP,
    dpkt_pcap.DLT_IPV6: ip6.IP6,
}
_RAW_IP = {12, 14, 101}  # no link layer; the IP version gives the kind
_KNOWN = {*_LINKS, *_RAW_IP}
_IP_TYPES = {0x0800, 0x86DD}
_IPV6_FIRST = b"\x60"

# Ethernet's type with IPv4's version, header length and service, total length, fragment, protocol, addresses, and TCP up to its flags
_PLAIN = struct.Struct(">12xIHxxHxB2x4s4sHHIIBB6x")
_PLAIN_IP, _PLAIN_TCP = 14, 34
_IPV4_PLAIN = 0x0800_45  # no options
_FRAGMENT = 0x3FFF

ROW_BYTES = 1 << 20  # of a packed row
GATHERED_BYTES = 64 << 20  # in memory, of all connections together


class SegmentCol(IntEnum):
    """Columns of the matrix of a packed row."""

    NUMBER = 0  # number of the packet in the file
    POSITION = 1  # position of the packet in the file, in bytes
    MICROS = 2
    DIRECTION = 3  # 0 sent by the first end of the connection's name, 1 by the other
    SEQ = 4
    ACK = 5
    FLAGS = 6
    CAPTURED = 7  # bytes of payload that were captured
    LENGTH = 8  # bytes of payload that were sent


COLUMNS = len(SegmentCol)


class Segment(NamedTuple):
    """A TCP segment; `connection` is the two ends as `address:port`, sorted; `numbers` are in the order of SegmentCol."""

    connection: tuple[str, str]
    numbers: tuple[int, ...]
    payload: bytes


def segment_of(packet: Packet, names: dict[tuple[bytes, int], str]) -> Segment | Bad | None:
    """The TCP segment in a packet, None if it has another protocol; `names` caches the texts `address:port` by address and port."""
    return plain_segment(packet, names) or any_segment(packet, names)


def plain_segment(packet: Packet, names: dict[tuple[bytes, int], str]) -> Segment | None:
    """A fast `any_segment` for complete TCP segments in plain IPv4 in plain Ethernet; None for all other packets."""
    data = packet.data
    if packet.link_type != dpkt_pcap.DLT_EN10MB or len(data) < _PLAIN.size:
        return None
    kind, length, fragment, protocol, source, target, sport, dport, seq, ack, offset, flags = _PLAIN.unpack_from(data)
    start, end = _PLAIN_TCP + (offset >> 4 << 2), _PLAIN_IP + length
    if kind >> 8 != _IPV4_PLAIN or protocol != ip.IP_PROTO_TCP or fragment & _FRAGMENT or not _PLAIN.size <= start <= end <= len(data):
        return None
    return _segment(packet, _name(names, source, sport), _name(names, target, dport), (seq, ack, flags), data[start:end], end - start)


def any_segment(packet: Packet, names: dict[tuple[bytes, int], str]) -> Segment | Bad | None:
    """The same as `segment_of`, for any packet that dpkt can parse."""
    layer, bad = _internet_layer(packet)
    if not isinstance(layer, ip.IP | ip6.IP6):
        return Bad(packet.position, bad, packet.data[:RAW_BYTES_MAX]) if bad else None
    inner = layer.data
    if getattr(layer, "p", None) != ip.IP_PROTO_TCP:  # dpkt gives no protocol for a packet that IPv6 encrypts
        return None
    if not isinstance(inner, tcp.TCP) or _is_later_fragment(layer):
        return Bad(packet.position, "expected a whole TCP header, found a part of it, or a fragment", packet.data[:RAW_BYTES_MAX])
    source, target = _name(names, layer.src, inner.sport), _name(names, layer.dst, inner.dport)
    payload = bytes(inner.data)
    return _segment(packet, source, target, (inner.seq, inner.ack, inner.flags & 0xFF), payload, _claimed(layer, inner, len(payload)))


def _is_later_fragment(layer: Any) -> bool:
    # of IPv6, dpkt recognizes a fragment only if its fragment header is the first extension header
    return any(getattr(header, "frag_off", 0) > 0 for header in getattr(layer, "all_extension_headers", ()))


def _segment(packet: Packet, source: str, target: str, numbers: tuple[int, int, int], payload: bytes, length: int) -> Segment:
    forth = source <= target
    ends = (source, target) if forth else (target, source)
    return Segment(ends, (packet.number, packet.position, packet.micros, int(not forth), *numbers, len(payload), length), payload)


def _internet_layer(packet: Packet) -> tuple[Any, str]:
    """The IP packet in a packet, or None; and an error text if an IP packet cannot be read, else an empty one."""
    kind = _LINKS.get(packet.link_type)
    if packet.link_type in _RAW_IP:
        kind = ip6.IP6 if packet.data[:1] >= _IPV6_FIRST else ip.IP
    if kind is None:
        return None, ""
    try:
        link = kind(packet.data)
    except (UnpackError, IndexError, ValueError) as error:
        return None, f"expected the headers of a packet, found {type(error).__name__} {error}"
    except AttributeError:  # dpkt takes the last extension header of a fragment for its fragment header
        return None, "expected the fragment header as the last extension header of IPv6, found another one after it"
    if isinstance(link, ip.IP | ip6.IP6):
        return link, ""
    layer = link.data
    if isinstance(layer, bytes) and _ethertype(link) in _IP_TYPES:
        return None, "expected a whole IP header, found a part of it"
    return layer, ""


def _ethertype(link: Any) -> object:
    return getattr(link, "_next_type", None) or getattr(link, "ethtype", None) or getattr(link, "type", 0)


def _name(names: dict[tuple[bytes, int], str], address: bytes, port: int) -> str:
    if (address, port) not in names:
        text = str(ipaddress.ip_address(address))
        names[address, port] = f"[{text}]:{port}" if ":" in text else f"{text}:{port}"
    return names[address, port]


def _claimed(layer: Any, inner: tcp.TCP, captured: int) -> int:
    """The length of the payload on the wire, by the IP header; at least the captured length."""
    if isinstance(layer, ip.IP):
        whole, headers = int(layer.len), int(layer.hl << 2)
    else:
        whole, headers = int(layer.plen), sum(int(header.length) for header in layer.all_extension_headers)
    return max(whole - headers - int(inner.off << 2), captured)


@dataclass(frozen=True, slots=True)
class PackedSegments:
    """Segments of one connection in one row; `number` is the number of the first packet."""

    connection: tuple[str, str]
    number: int
    matrix: NDArray[np.int64]
    payload: bytes


@dataclass(slots=True)
class _Gathered:
    numbers: list[tuple[int, ...]] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    size: int = 0

    def packed(self, connection: tuple[str, str]) -> PackedSegments:
        return PackedSegments(connection, self.numbers[0][SegmentCol.NUMBER], np.array(self.numbers, np.int64), b"".join(self.payloads))


def pack_segments(packets: Iterable[Packet | Bad]) -> Iterator[PackedSegments | Bad]:
    """Pack segments by connection, in the order of the file; gives packed rows and the bad packets.

    At most GATHERED_BYTES of segments are in memory.
    """
    names: dict[tuple[bytes, int], str] = {}
    strange: set[int] = set()
    gathered: dict[tuple[str, str], _Gathered] = {}
    total = 0
    for packet in packets:
        if isinstance(packet, Packet) and packet.link_type not in _KNOWN and packet.link_type not in strange:
            strange.add(packet.link_type)
            what = f"expected a link type that carries IP ({', '.join(map(str, sorted(_KNOWN)))}), found {packet.link_type}; reported once"
            yield Bad(packet.position, what, packet.data[:RAW_BYTES_MAX])
        found = packet if isinstance(packet, Bad) else segment_of(packet, names)
        if isinstance(found, Bad):
            yield found
        if not isinstance(found, Segment):
            continue
        rows = gathered.setdefault(found.connection, _Gathered())
        size = len(found.payload) + COLUMNS * 16
        rows.numbers.append(found.numbers)
        rows.payloads.append(found.payload)
        rows.size += size
        total += size
        if rows.size >= ROW_BYTES:
            total -= rows.size
            yield gathered.pop(found.connection).packed(found.connection)
        elif total >= GATHERED_BYTES:
            for connection, one in gathered.items():
                yield one.packed(connection)
            gathered.clear()
            names.clear()
            total = 0
    for connection, one in gathered.items():
        yield one.packed(connection)
