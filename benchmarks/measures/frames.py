"""The measure of decoding frames, which needs no Spark."""

from __future__ import annotations

import json
import struct

import numpy as np

from benchmarks.figures import Figure, Peer, held_against, rates, timed, timed_runs
from benchmarks.stand import Stand
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
MEGABYTES = 400
_WORDS = struct.Struct(">II")


def measure_frames(stand: Stand) -> list[Figure]:
    """Frames of one connection to columns on one core, against the standard library's JSON decoder over the same headers."""
    request = [encode_frame(RemotingCommand(code=11, opaque=number, version=399, ext_fields=_REQUEST)) for number in range(1000)]
    response = [
        encode_frame(RemotingCommand(code=0, flag=1, opaque=number, version=399, remark="FOUND", ext_fields=_RESPONSE, body=bytes(_BODY)))
        for number in range(100)
    ]
    return _figures("frames pull requests", request, stand) + _figures("frames pull responses", response, stand)


def _figures(name: str, frames: list[bytes], stand: Stand) -> list[Figure]:
    part = b"".join(frames)
    stream = part * (MEGABYTES * 1_000_000 // stand.scale // len(part) + 1)
    buffer = np.frombuffer(stream, np.uint8)

    def decode() -> None:
        for columns in stream_columns(buffer):
            columns.numbers("queueOffset")
            columns.numbers("nextBeginOffset")

    decode()  # what is compiled is compiled
    megabytes = len(stream) / 1e6
    peer = Peer("json.loads", "json.loads of the headers", megabytes / timed(lambda: _json_of(stream)))
    return held_against(name, rates(megabytes, timed_runs(decode, stand.repeats)), "MB/s, one core", peer, target="200 MB/s")


def _json_of(stream: bytes) -> int:
    at = count = 0
    while at < len(stream):
        length, word = _WORDS.unpack_from(stream, at)
        json.loads(stream[at + 8 : at + 8 + (word & 0xFFFFFF)])
        at += 4 + length
        count += 1
    return count
