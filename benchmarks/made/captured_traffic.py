"""A capture file for benchmarks: clients that pull 32 KiB at a time, on connections of an MTU of 1500, packets of all connections mixed."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from store_format.remoting.command import RemotingCommand
from store_format.remoting.frame import encode_frame

_SEGMENT = 1448
_BODY = 32 << 10
_REQUEST: dict[str, str | None] = {
    "consumerGroup": "CID_orders_consumer",
    "topic": "OrdersTopic",
    "queueId": "3",
    "queueOffset": "104404",
    "maxMsgNums": "32",
    "sysFlag": "3",
    "commitOffset": "104400",
    "suspendTimeoutMillis": "15000",
    "subVersion": "1599870612032",
    "expressionType": "TAG",
}
_RESPONSE: dict[str, str | None] = {"suggestWhichBrokerId": "0", "nextBeginOffset": "104436", "minOffset": "0", "maxOffset": "1204436"}
_START = 1_700_000_000
_SYN, _ACK = 2, 16


def write_capture(path: Path, megabytes: int, connections: int) -> int:
    """Write about so many megabytes of packets; gives the number of pulls."""
    rounds = max(megabytes * 1_000_000 // (connections * (_BODY + 2000)), 1)
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1))
        places = [[1, 1] for _ in range(connections)]
        number = 0
        for connection in range(connections):
            for side in (0, 1):
                file.write(_record(connection, side, 0, b"", number, _SYN | _ACK * side))
                number += 1
        for opaque in range(rounds):
            exchange = [(0, _request(opaque)), (1, _response(opaque))]
            streams = [_packets(connection, exchange, places[connection]) for connection in range(connections)]
            for turn in range(max(map(len, streams))):
                for stream in streams:
                    if turn < len(stream):
                        connection, side, seq, payload = stream[turn]
                        file.write(_record(connection, side, seq, payload, number, _ACK))
                        number += 1
    return rounds * connections


def _request(opaque: int) -> bytes:
    return encode_frame(RemotingCommand(code=11, opaque=opaque, version=399, ext_fields=_REQUEST))


def _response(opaque: int) -> bytes:
    told = RemotingCommand(code=0, flag=1, opaque=opaque, version=399, remark="FOUND", ext_fields=_RESPONSE, body=bytes(_BODY))
    return encode_frame(told)


def _packets(connection: int, exchange: list[tuple[int, bytes]], places: list[int]) -> list[tuple[int, int, int, bytes]]:
    return [packet for side, frame in exchange for packet in _segments(connection, side, frame, places)]


def _segments(connection: int, side: int, frame: bytes, places: list[int]) -> Iterator[tuple[int, int, int, bytes]]:
    for start in range(0, len(frame), _SEGMENT):
        payload = frame[start : start + _SEGMENT]
        yield connection, side, places[side], payload
        places[side] = (places[side] + len(payload)) % 2**32


def _record(connection: int, side: int, seq: int, payload: bytes, number: int, flags: int) -> bytes:
    ports = (40_000 + connection, 10_911)
    hosts = (b"\x0a\x00\x00\x01", b"\x0a\x00\x00\x02")
    tcp = struct.pack(">HHIIBBHHH", ports[side], ports[1 - side], seq, 0, 5 << 4, flags, 512, 0, 0) + payload
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 1, 0x4000, 64, 6, 0) + hosts[side] + hosts[1 - side]
    packet = bytes(12) + b"\x08\x00" + ip + tcp
    return struct.pack("<IIII", _START + number // 1_000_000, number % 1_000_000, len(packet), len(packet)) + packet
