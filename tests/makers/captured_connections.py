"""Makes pulls and answers in the form that they have in a captured connection."""

from __future__ import annotations

from store_format.remoting.command import RemotingCommand, SerializeType
from store_format.remoting.frame import encode_frame


def pull(opaque: int, *, kind: SerializeType = SerializeType.JSON, code: int = 11, **fields: str) -> bytes:
    ext: dict[str, str | None] = {"consumerGroup": "g", "topic": "T", "queueId": "3", "queueOffset": str(opaque), "maxMsgNums": "32"}
    ext |= {"sysFlag": "2", **fields}
    return encode_frame(RemotingCommand(code=code, opaque=opaque, version=399, ext_fields=ext, serialize_type=kind))


def answer(opaque: int, body: bytes = b"", *, code: int = 0, kind: SerializeType = SerializeType.JSON) -> bytes:
    ext: dict[str, str | None] = {"suggestWhichBrokerId": "0", "nextBeginOffset": "5", "minOffset": "0", "maxOffset": "9"}
    return encode_frame(
        RemotingCommand(code=code, flag=1, opaque=opaque, remark="FOUND", ext_fields=ext, body=body or None, serialize_type=kind)
    )
