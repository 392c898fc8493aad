"""Files of packets: every form that tcpdump and Wireshark write, and files that are no capture."""

from __future__ import annotations

import io
import random
import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.capture.packets import Bad, Packet, read_packets, with_a_packet
from pipeline.capture.segments import PackedSegments, Segment, SegmentCol, any_segment, pack_segments, plain_segment, segment_of
from store_format.errors import StoreError
from tests.makers.captures import (
    CLIENT,
    COOKED,
    COOKED2,
    ETHERNET,
    IPV4_LINK,
    IPV6_LINK,
    NULL,
    RAW,
    SERVER,
    START,
    Sent,
    block,
    enhanced,
    interface,
    ip,
    link,
    option,
    pcap,
    section,
    tcp,
)

PAYLOAD = b"a frame, or a part of one"


def packets_of(raw: bytes) -> list[Packet | Bad]:
    return list(read_packets(io.BytesIO(raw), "traffic.pcap"))


def good(raw: bytes) -> list[tuple[int, bytes]]:
    found = packets_of(raw)
    assert not [one for one in found if isinstance(one, Bad)]
    return [(one.micros, one.data) for one in found if isinstance(one, Packet)]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("nano", [False, True])
def test_a_pcap_file_of_either_byte_order_and_resolution_gives_its_packets(order: str, nano: bool) -> None:
    expected = [(START + index, bytes([index]) * (20 + index)) for index in range(5)]
    assert good(pcap(expected, order=order, nano=nano)) == expected


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_pcapng_packet_has_the_link_type_and_the_clock_of_its_own_interface(order: str) -> None:
    nanos = option(9, b"\x09", order) + option(14, struct.pack(f"{order}q", 3), order) + option(0, b"", order)
    halves = option(9, b"\x8a", order) + option(0, b"", order)
    raw = b"".join(
        [
            section(order),
            interface(ETHERNET, order=order),
            interface(RAW, nanos, order),
            interface(COOKED, halves, order),
            block(5, bytes(12), order),
            enhanced(0, START, b"micros", order),
            enhanced(1, START * 1000 + 999, b"nanos", order),
            enhanced(2, 1024 * 1_700_000_000 + 512, b"halves", order, option(1, b"a comment", order) + option(0, b"", order)),
            section("<"),
            interface(COOKED2),
            enhanced(0, START, b"another section"),
            block(3, struct.pack("<I", 6) + b"simple"),
        ]
    )
    found = packets_of(raw)
    assert [(one.micros, one.link_type, one.data) for one in found if isinstance(one, Packet)] == [
        (START, ETHERNET, b"micros"),
        (START + 3_000_000, RAW, b"nanos"),
        (1_700_000_000_500_000, COOKED, b"halves"),
        (START, COOKED2, b"another section"),
        (START, COOKED2, b"simple"),
    ]
    assert len(found) == 5


def test_a_packet_knows_its_number_and_where_its_record_stands() -> None:
    found = packets_of(pcap([(START, b"x" * 10), (START, b"y" * 20), (START, b"z")]))
    assert [(one.number, one.position) for one in found if isinstance(one, Packet)] == [(0, 24), (1, 50), (2, 86)]


@pytest.mark.parametrize("raw", [b"", b"PK\x03\x04", b"\xd4\xc3\xb2\xa1", b'{"request": {}}\n' * 10, bytes(100)])
def test_what_is_no_capture_is_refused_with_its_name(raw: bytes) -> None:
    with pytest.raises(StoreError, match=r"traffic\.pcap, byte 0.*pcap"):
        packets_of(raw)


SILENT = {"pcap": pcap([]), "pcapng": section() + interface()}


@pytest.mark.parametrize("header", SILENT.values(), ids=SILENT)
def test_garbage_behind_a_valid_header_is_no_capture(header: bytes) -> None:
    assert list(with_a_packet(packets_of(header), "traffic.pcap")) == []
    for garbage in (b"\x1b", b"\xff" * 5000, bytes(range(256)) * 40):
        with pytest.raises(StoreError) as refused:
            list(with_a_packet(packets_of(header + garbage), "traffic.pcap"))
        said = str(refused.value)
        assert said.startswith(f"traffic.pcap, byte {len(header)}: expected one packet that can be read, or more, found none after ")
        assert said.isprintable()
    damaged = pcap([(START, b"x" * 40)]) + b"\xff" * 5000
    assert list(with_a_packet(packets_of(damaged), "traffic.pcap")) == packets_of(damaged)


@pytest.mark.parametrize("cut", [1, 8, 15, 16, 30])
def test_a_capture_that_was_cut_short_gives_the_packets_before_the_cut(cut: int) -> None:
    raw = pcap([(START, b"x" * 40)] * 3)
    found = packets_of(raw[:-cut])
    assert [type(one) for one in found] == [Packet, Packet, Bad]
    assert isinstance(found[2], Bad)
    assert found[2].position == 24 + 2 * 56


def test_a_record_of_an_impossible_length_is_skipped_to_the_next_one() -> None:
    raw = bytearray(pcap([(START + index, bytes([index]) * 100) for index in range(6)]))
    struct.pack_into("<I", raw, 24 + 2 * 116 + 8, 0xFFFFFFF0)
    found = packets_of(bytes(raw))
    assert [one.data[0] for one in found if isinstance(one, Packet)] == [0, 1, 3, 4, 5]
    (bad,) = [one for one in found if isinstance(one, Bad)]
    assert (bad.position, len(bad.raw) > 0) == (24 + 2 * 116, True)


def test_damaged_records_and_garbage_cost_one_pass() -> None:
    raw = bytearray(pcap([(START + index, bytes([index % 251]) * 100) for index in range(30_000)]))
    damaged = range(2, 30_000, 3)
    for index in damaged:
        struct.pack_into("<I", raw, 24 + index * 116 + 8, 0xFFFFFFF0)
    began = time.process_time()
    found = packets_of(bytes(raw))
    assert [one.position for one in found if isinstance(one, Bad)] == [24 + index * 116 for index in damaged]
    assert sum(isinstance(one, Packet) for one in found) == 20_000
    garbage = pcap([(START, b"x" * 40)]) + b"\xfe" * 30_000_000
    (_, bad) = packets_of(garbage)
    assert isinstance(bad, Bad)
    assert bad.error.endswith("none up to the end of the file, 30000000 bytes")
    # each of these numbers is a size that can be
    (_, bad) = packets_of(pcap([(START, b"x" * 40)]) + b"\xff" * 16 + struct.pack("<I", 1) * 1_000_000)
    assert isinstance(bad, Bad)
    bad, *_ = packets_of(pcap([]) + b"\xff" * 16 + struct.pack("<I", 1) * 1_000_000)
    assert isinstance(bad, Bad)
    # one position after the other, and a copy of the search's bytes for each record, took 15 s
    assert time.process_time() - began < 5


def test_a_block_of_an_unknown_interface_is_bad_and_the_next_is_not() -> None:
    found = packets_of(section() + interface() + enhanced(7, START, b"?") + enhanced(0, START, b"fine"))
    assert [type(one) for one in found] == [Bad, Packet]


V4 = (CLIENT[0], SERVER[0])
V6 = ("2001:db8::1", "2001:db8::2")


@pytest.mark.parametrize("kind", [ETHERNET, NULL, RAW, COOKED, COOKED2, IPV4_LINK, IPV6_LINK])
@pytest.mark.parametrize("ends", [V4, V6])
def test_a_segment_is_found_behind_every_link_layer(kind: int, ends: tuple[str, str]) -> None:
    if kind == (IPV4_LINK if ends == V6 else IPV6_LINK):
        pytest.skip("a link layer of the other version only")
    packet = link(kind, ip(*ends, tcp((ends[0], 40001), (ends[1], 10911), 7, PAYLOAD, ack=9)))
    found = segment_of(Packet(0, 24, START, kind, packet), {})
    assert isinstance(found, Segment)
    first, second = (f"[{end}]" if ":" in end else end for end in ends)
    assert found.connection == (f"{first}:40001", f"{second}:10911")
    assert found.payload == PAYLOAD
    assert (found.numbers[SegmentCol.SEQ], found.numbers[SegmentCol.ACK], found.numbers[SegmentCol.LENGTH]) == (7, 9, len(PAYLOAD))


@pytest.mark.parametrize("vlans", [(5,), (5, 6)])
def test_vlan_tags_are_looked_through(vlans: tuple[int, ...]) -> None:
    packet = link(ETHERNET, ip(*V4, tcp(CLIENT, SERVER, 7, PAYLOAD)), vlans=vlans)
    found = segment_of(Packet(0, 24, START, ETHERNET, packet), {})
    assert isinstance(found, Segment)
    assert found.payload == PAYLOAD


def test_an_extension_header_of_ipv6_is_no_payload() -> None:
    extension = bytes([0, 1, 4, 0, 0, 0, 0])
    packet = link(ETHERNET, ip(*V6, tcp((V6[0], 1), (V6[1], 2), 7, PAYLOAD), extension=extension))
    found = segment_of(Packet(0, 24, START, ETHERNET, packet), {})
    assert isinstance(found, Segment)
    assert (found.payload, found.numbers[SegmentCol.LENGTH]) == (PAYLOAD, len(PAYLOAD))


def test_a_packet_that_ipv6_encrypts_is_no_segment() -> None:
    esp = 50
    packet = bytearray(link(ETHERNET, ip(*V6, tcp((V6[0], 1), (V6[1], 2), 7, PAYLOAD))))
    packet[20] = esp
    assert segment_of(Packet(0, 24, START, ETHERNET, bytes(packet)), {}) is None


HOP_BY_HOP, FRAGMENT, DESTINATION = (0, bytes([0, 1, 4, 0, 0, 0, 0])), 44, (60, bytes([0, 1, 4, 0, 0, 0, 0]))
FIRST, LATER = (FRAGMENT, struct.pack(">BHI", 0, 1, 7)), (FRAGMENT, struct.pack(">BHI", 0, 8 << 3, 7))


@pytest.mark.parametrize(
    ("extensions", "found"),
    [
        ((FIRST, DESTINATION), "expected the fragment header as the last extension header"),
        ((LATER, DESTINATION), "expected the fragment header as the last extension header"),
        ((LATER,), "or a fragment"),
        ((HOP_BY_HOP, LATER), "or a fragment"),
    ],
)
def test_what_is_no_first_fragment_of_ipv6_is_bad(extensions: tuple[tuple[int, bytes], ...], found: str) -> None:
    kinds = [kind for kind, _ in extensions]
    headers = b"".join(bytes([following]) + rest for following, (_, rest) in zip([*kinds[1:], 6], extensions, strict=True))
    content = headers + tcp((V6[0], 1), (V6[1], 2), 7, PAYLOAD)
    packet = struct.pack(">IHBB32x", 6 << 28, len(content), kinds[0], 64) + content
    bad = segment_of(Packet(0, 24, START, RAW, packet), {})
    assert isinstance(bad, Bad)
    assert found in bad.error


def test_the_padding_of_a_short_ethernet_frame_is_no_payload() -> None:
    packet = link(ETHERNET, ip(*V4, tcp(CLIENT, SERVER, 7, b"x"))) + bytes(20)
    found = segment_of(Packet(0, 24, START, ETHERNET, packet), {})
    assert isinstance(found, Segment)
    assert found.payload == b"x"


def test_a_packet_without_a_length_of_its_own_is_as_long_as_what_was_captured() -> None:
    packet = bytearray(link(ETHERNET, ip(*V4, tcp(CLIENT, SERVER, 7, PAYLOAD))))
    packet[16:18] = bytes(2)
    found = segment_of(Packet(0, 24, START, ETHERNET, bytes(packet)), {})
    assert isinstance(found, Segment)
    assert (found.payload, found.numbers[SegmentCol.LENGTH]) == (PAYLOAD, len(PAYLOAD))


def test_a_packet_cut_by_the_snap_length_says_how_much_was_sent() -> None:
    packet = Sent(True, 7, PAYLOAD).packet()
    found = segment_of(Packet(0, 24, START, ETHERNET, packet[:-5]), {})
    assert isinstance(found, Segment)
    assert (found.payload, found.numbers[SegmentCol.LENGTH]) == (PAYLOAD[:-5], len(PAYLOAD))


@pytest.mark.parametrize("kept", [14, 20, 33, 40, 53])
def test_a_packet_without_whole_headers_is_bad(kept: int) -> None:
    assert isinstance(segment_of(Packet(0, 24, START, ETHERNET, Sent(True, 7, PAYLOAD).packet()[:kept]), {}), Bad)


def test_what_is_no_tcp_is_left_out_without_a_word() -> None:
    udp = bytearray(ip(*V4, struct.pack(">HHHH", 1, 2, 8, 0)))
    udp[9] = 17
    arp = bytes(12) + b"\x08\x06" + bytes(28)
    packets = [Packet(0, 24, START, ETHERNET, link(ETHERNET, bytes(udp))), Packet(1, 90, START, ETHERNET, arp)]
    assert list(pack_segments(packets)) == []


def test_a_link_type_without_ip_is_told_once() -> None:
    found = list(pack_segments([Packet(number, 24, START, 105, b"wireless") for number in range(5)]))
    assert [type(one) for one in found] == [Bad]


def test_both_directions_of_a_connection_are_packed_in_the_order_of_the_file() -> None:
    sent = [Sent(index % 3 > 0, index, bytes([index]) * 3, micros=START + index) for index in range(9)]
    packets = read_packets(io.BytesIO(pcap([(one.micros, one.packet()) for one in sent])), "x")
    (packed,) = pack_segments(packets)
    assert isinstance(packed, PackedSegments)
    assert packed.connection == ("10.0.0.1:40001", "10.0.0.2:10911")
    assert packed.matrix[:, SegmentCol.NUMBER].tolist() == list(range(9))
    assert packed.matrix[:, SegmentCol.DIRECTION].tolist() == [int(not one.from_client) for one in sent]
    assert packed.payload == b"".join(one.payload for one in sent)


@given(st.binary(max_size=40), st.lists(st.tuples(st.integers(0, 90), st.integers(0, 255)), max_size=3), st.integers(0, 20), st.booleans())
def test_the_quick_way_says_what_the_careful_one_says(payload: bytes, changes: list[tuple[int, int]], cut: int, longer: bool) -> None:
    raw = bytearray(Sent(True, 7, payload, ack=9).packet() + bytes(6 * longer))
    for at, value in changes:
        raw[at % len(raw)] = value
    packet = Packet(3, 24, START, ETHERNET, bytes(raw[: len(raw) - cut]))
    quick = plain_segment(packet, {})
    assert quick is None or quick == any_segment(packet, {})


def test_the_usual_packet_goes_the_quick_way() -> None:
    packet = Packet(3, 24, START, ETHERNET, Sent(True, 7, PAYLOAD).packet())
    assert plain_segment(packet, {}) == any_segment(packet, {}) != None  # noqa: E711


@given(st.binary(max_size=400), st.sampled_from([ETHERNET, NULL, RAW, COOKED, COOKED2, IPV4_LINK, IPV6_LINK, 147]))
def test_no_packet_stops_the_reader(packet: bytes, kind: int) -> None:
    for found in pack_segments(read_packets(io.BytesIO(pcap([(START, packet), (START, b"")], kind=kind)), "x")):
        assert isinstance(found, Bad | PackedSegments)


WHOLE = pcap([(START + index, Sent(True, index, bytes(index)).packet()) for index in range(8)])
WHOLE_NG = section() + interface() + b"".join(enhanced(0, START, Sent(True, index, bytes(index)).packet()) for index in range(8))


@given(st.sampled_from([WHOLE, WHOLE_NG]), st.randoms(use_true_random=False), st.integers(1, 6))
def test_a_damaged_file_is_read_as_far_as_it_can_be(raw: bytes, chance: random.Random, damages: int) -> None:
    damaged, begin = bytearray(raw), len(raw)
    for _ in range(damages):
        at = chance.randrange(24, len(damaged))
        begin = min(begin, at)
        match chance.randrange(3):
            case 0:
                damaged[at] = chance.randrange(256)
            case 1:
                del damaged[at : at + chance.randrange(40)]
            case _:
                damaged[at:at] = chance.randbytes(chance.randrange(40))
        if len(damaged) <= 25:
            break
    end, came = 0, list(read_packets(io.BytesIO(bytes(damaged)), "x"))
    for found in came:
        assert end <= found.position <= len(damaged)
        end = found.position
    whole = list(read_packets(io.BytesIO(raw), "x"))
    before = sum(following.position <= begin for following in whole[1:])
    assert len(whole) == 8
    assert came[:before] == whole[:before], "packets before the first damage"


def test_a_length_is_not_believed_before_the_bytes_are_there() -> None:
    class Watched(io.BytesIO):
        longest = 0

        def read(self, size: int | None = -1, /) -> bytes:
            self.longest = max(self.longest, size or 0)
            return super().read(size)

    for raw in (
        WHOLE[:24] + struct.pack("<IIII", 1, 1, 0xFFFFFF00, 0xFFFFFF00) + bytes(100),
        section() + struct.pack("<II", 6, 0xFFFFFF00) + bytes(100),
    ):
        watched = Watched(raw)
        found = list(read_packets(watched, "x"))
        assert any(isinstance(one, Bad) for one in found)
        assert watched.longest < 4 << 20
