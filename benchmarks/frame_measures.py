"""The measure of decoding frames, which needs no Spark."""

from __future__ import annotations

import json
import struct

import numpy as np

from benchmarks.measures import Figure, timed
from store_format.remoting.command import RemotingCommand
from store_format.remoting.frame import encode_frame
from store_format.remoting.frame_columns import stream_columns

_REQUEST: dict[str, str | None] = {
    "consumerGroup": "CID_orders_consumer",
    "topic": "OrdersTopic",
    "queueId": "3",
    "queueOffset": "104404",
    "maxMsgNums": "32",
    "sysFlag": "7",
    "commitOffset": "104400",
    "suspendTimeoutMillis": "15000",
    "subscription": "TagA||TagB",
    "subVersion": "1599870612032",
    "expressionType": "TAG",
}
_RESPONSE: dict[str, str | None] = {"suggestWhichBrokerId": "0", "nextBeginOffset": "104436", "minOffset": "0", "maxOffset": "1204436"}
_BODY = 32 << 10
_WORDS = struct.Struct(">II")


def measure_frames(megabytes: int) -> list[Figure]:
    """Frames of one connection to columns on one core, against the standard library's JSON decoder over the same headers."""
    request = [encode_frame(RemotingCommand(code=11, opaque=number, version=399, ext_fields=_REQUEST)) for number in range(1000)]
    response = [
        encode_frame(RemotingCommand(code=0, flag=1, opaque=number, version=399, remark="FOUND", ext_fields=_RESPONSE, body=bytes(_BODY)))
        for number in range(100)
    ]
    return [_figure("frames pull requests", request, megabytes), _figure("frames pull responses", response, megabytes)]


def _figure(name: str, frames: list[bytes], megabytes: int) -> Figure:
    part = b"".join(frames)
    stream = part * (megabytes * 1_000_000 // len(part) + 1)
    buffer = np.frombuffer(stream, np.uint8)

    def decode() -> None:
        for columns in stream_columns(buffer):
            columns.numbers("queueOffset")
            columns.numbers("nextBeginOffset")

    decode()
    rate = len(stream) / min(timed(decode) for _ in range(3)) / 1e6
    peer = len(stream) / timed(lambda: _json_of(stream)) / 1e6
    return Figure(name=name, value=rate, unit="MB/s, one core", peer=f"json.loads: {peer:,.0f}", ratio=rate / peer, target="200 MB/s")


def _json_of(stream: bytes) -> int:
    at = count = 0
    while at < len(stream):
        length, word = _WORDS.unpack_from(stream, at)
        json.loads(stream[at + 8 : at + 8 + (word & 0xFFFFFF)])
        at += 4 + length
        count += 1
    return count
