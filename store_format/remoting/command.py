"""One command of the wire protocol, as an object.

Broker source (4.9.3): RemotingCommand, LanguageCode, SerializeType, RemotingCommandType.
Rule: bit 0 of the flag makes a command a response, bit 1 one-way; the type of the header is told by the frame, never by the header.
Surprise: a JSON header without an opaque gets the next number of the receiver's own counter, so what it was nobody else can say.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from enum import IntEnum

RPC_TYPE_FLAG = 1
RPC_ONEWAY_FLAG = 2
OPAQUE_OF_RECEIVER = "<next value of the process-wide request counter>"


class SerializeType(IntEnum):
    """How a header is written: the first byte behind a frame's length."""

    JSON = 0
    ROCKETMQ = 1


class LanguageCode(IntEnum):
    """What a client is written in; the number stands in ROCKETMQ headers, the name in JSON."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotingCommand:
    """A request or a response.

    `opaque` is None where a JSON header has none (see the module); `language` where it is none that the broker knows; a value of
    `ext_fields` where the header says null. An empty body is None.
    """

    code: int
    opaque: int | None
    flag: int = 0
    version: int = 0
    language: LanguageCode | None = LanguageCode.JAVA
    remark: str | None = None
    ext_fields: dict[str, str | None] | None = None
    body: bytes | None = None
    serialize_type: SerializeType = SerializeType.JSON

    def with_body(self, body: bytes) -> RemotingCommand:
        """The same command with a body."""
        return RemotingCommand(
            code=self.code,
            opaque=self.opaque,
            flag=self.flag,
            version=self.version,
            language=self.language,
            remark=self.remark,
            ext_fields=self.ext_fields,
            body=body,
            serialize_type=self.serialize_type,
        )

    @property
    def is_response(self) -> bool:
        """RemotingCommand.isResponseType."""
        return bool(self.flag & RPC_TYPE_FLAG)

    @property
    def is_oneway(self) -> bool:
        """RemotingCommand.isOnewayRPC: nobody waits for an answer."""
        return bool(self.flag & RPC_ONEWAY_FLAG)

    def decoded_form(self) -> dict[str, object]:
        """The command as plain values under the broker's names, the body in Base64, for a file of JSON lines."""
        return {
            "code": self.code,
            "language": None if self.language is None else self.language.name,
            "version": self.version,
            "opaque": OPAQUE_OF_RECEIVER if self.opaque is None else self.opaque,
            "flag": self.flag,
            "type": "RESPONSE_COMMAND" if self.is_response else "REQUEST_COMMAND",
            "oneway": self.is_oneway,
            "remark": self.remark,
            "extFields": None if self.ext_fields is None else dict(sorted(self.ext_fields.items())),
            "body": None if self.body is None else base64.b64encode(self.body).decode(),
            "serializeType": self.serialize_type.name,
        }
