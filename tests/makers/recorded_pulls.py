"""Makes traffic of recorded answers: the packets that would have carried the answers of a real broker's store to a client."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from store_format.remoting.command import RemotingCommand, SerializeType
from store_format.remoting.frame import encode_frame
from tests.makers.captures import ACK, START, SYN, Sent, pcap

# the code of PullMessageProcessor for each status, except for an empty queue
CODES = {
    "FOUND": 0,
    "NO_MATCHED_MESSAGE": 20,
    "MESSAGE_WAS_REMOVING": 20,
    "OFFSET_OVERFLOW_ONE": 19,
    "OFFSET_OVERFLOW_BADLY": 21,
    "OFFSET_TOO_SMALL": 21,
}
_SEGMENT = 1448
SUBSCRIPTION = "4"


def recorded(trace: Path) -> Iterator[dict[str, Any]]:
    """Requests of a trace that a client may have sent, with their answers."""
    with trace.open(encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            if "request" in line and "status" in (line["response"] or {}):
                yield line


def code_of(line: dict[str, Any]) -> int:
    """The code that goes with the recorded status."""
    if line["response"]["status"] == "NO_MESSAGE_IN_QUEUE":
        return 19 if line["request"]["offset"] == 0 else 21
    return CODES[line["response"]["status"]]


def request_frame(opaque: int, line: dict[str, Any], kind: SerializeType) -> bytes:
    """PULL_MESSAGE with a subscription of its own and without the suspend bit."""
    asked = line["request"]
    wanted = asked["filter"] or {"type": "TAG", "expression": "*"}
    ext: dict[str, str | None] = {
        "consumerGroup": asked["group"],
        "topic": asked["topic"],
        "queueId": str(asked["queueId"]),
        "queueOffset": str(asked["offset"]),
        "maxMsgNums": str(asked["maxMsgNums"]),
        "sysFlag": SUBSCRIPTION,
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": wanted["expression"],
        "subVersion": "0",
        "expressionType": wanted["type"],
    }
    return encode_frame(RemotingCommand(code=11, opaque=opaque, version=399, ext_fields=ext, serialize_type=kind))


def response_frame(opaque: int, line: dict[str, Any], store: Path, kind: SerializeType) -> bytes:
    """The frame of the answer; its body is cut out of the commit log at the recorded places."""
    told = line["response"]
    names = ("nextBeginOffset", "minOffset", "maxOffset")
    ext: dict[str, str | None] = {"suggestWhichBrokerId": "0", **{name: str(told[name]) for name in names}}
    body = b"".join(bytes_at(store, one["startOffset"], one["storeSize"]) for one in told["messages"])
    answer = RemotingCommand(
        code=code_of(line), flag=1, opaque=opaque, remark=told["status"], ext_fields=ext, body=body or None, serialize_type=kind
    )
    return encode_frame(answer)


def bytes_at(store: Path, offset: int, size: int) -> bytes:
    """Bytes of the commit log."""
    file = max(path for path in (store / "commitlog").iterdir() if int(path.name) <= offset)
    with file.open("rb") as log:
        log.seek(offset - int(file.name))
        return log.read(size)


def conversation(lines: Iterable[dict[str, Any]], store: Path, kind: SerializeType) -> list[Sent]:
    """One connection from its handshake on: each request, then its answer, in segments of an MTU of 1500."""
    sent = [Sent(True, 0, flags=SYN), Sent(False, 0, flags=SYN | ACK)]
    places = {True: 1, False: 1}
    micros = START
    for opaque, line in enumerate(lines):
        for from_client, frame in ((True, request_frame(opaque, line, kind)), (False, response_frame(opaque, line, store, kind))):
            for start in range(0, len(frame), _SEGMENT):
                payload = frame[start : start + _SEGMENT]
                micros += 100
                sent.append(Sent(from_client, places[from_client], payload, ack=places[not from_client], micros=micros))
                places[from_client] += len(payload)
    return sent


def capture_of(sent: list[Sent]) -> bytes:
    """The capture file."""
    return pcap([(one.micros, one.packet()) for one in sent])


DEFAULTS = {
    "brokerRole": "ASYNC_MASTER",
    "offsetCheckInSlave": False,
    "accessMessageInMemoryMaxRatio": 40,
    "maxTransferBytesOnMessageInMemory": 262_144,
    "maxTransferCountOnMessageInMemory": 32,
    "maxTransferBytesOnMessageInDisk": 65_536,
    "maxTransferCountOnMessageInDisk": 8,
    "diskFallRecorded": True,
    "totalPhysicalMemorySize": 8 << 30,
    "filterSupportRetry": False,
    "bloom": {"errorRate": 20, "expectConsumers": 32},
}
