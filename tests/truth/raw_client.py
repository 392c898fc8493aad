"""Sends requests to a real broker as they are: what its clients refuse to send, for example messages to long retry topics."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

SEND_MESSAGE, CONSUMER_SEND_MSG_BACK, UPDATE_AND_CREATE_TOPIC = 10, 36, 17
_VERSION = 477  # of the client, 5.5.0


class RawClient:
    """A connection to the broker at a port of this machine; `with` closes it."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._opaque = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._socket.close()

    def code_of(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> int:
        """Send a request; return the code of its answer."""
        self._opaque += 1
        head = {
            "code": code,
            "language": "JAVA",
            "version": _VERSION,
            "opaque": self._opaque,
            "flag": 0,
            "extFields": {name: str(value) for name, value in fields.items()},
            "serializeTypeCurrentRPC": "JSON",
        }
        header = json.dumps(head).encode()
        self._socket.sendall(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)
        (length,) = struct.unpack(">i", self._received(4))
        raw = self._received(length)
        answer: dict[str, Any] = json.loads(raw[4 : 4 + (struct.unpack_from(">i", raw)[0] & 0xFFFFFF)])
        return int(answer["code"])

    def _received(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            part = self._socket.recv(count - len(found))
            assert part, "the broker closed the connection"
            found += part
        return found
