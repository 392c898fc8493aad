"""A command of the wire protocol: a request or a response.

Broker source (4.9.3): RemotingCommand, LanguageCode, SerializeType, RemotingCommandType.
Rule: bit 0 of the flag marks a response, bit 1 a one-way command. The frame gives the header's serialize type; a type in the header is
ignored.
Surprise: a command whose JSON header has no opaque gets the next number of the receiver's own counter, which only the receiver knows.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from enum import IntEnum

RPC_TYPE_FLAG = 1
RPC_ONEWAY_FLAG = 2
OPAQUE_OF_RECEIVER = "<next value of the process-wide request counter>"


class SerializeType(IntEnum):
    """The form of a header: the first byte after a frame's length."""

    JSON = 0
    ROCKETMQ = 1


class LanguageCode(IntEnum):
    """The programming language of a client; ROCKETMQ headers have the number, JSON headers the name."""

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

    None stands for: an `opaque` that a JSON header does not have (see the module); a `language` that the broker does not know; a null value
    in `ext_fields`; an empty body.
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
        return replace(self, body=body)

    @property
    def is_response(self) -> bool:
        """RemotingCommand.isResponseType."""
        return bool(self.flag & RPC_TYPE_FLAG)

    @property
    def is_oneway(self) -> bool:
        """RemotingCommand.isOnewayRPC: the sender waits for no answer."""
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
