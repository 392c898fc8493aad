"""Counts the requests to an S3 server and the bytes on the wire: a proxy on loopback in front of the server.

The server's own access log has neither ranges nor the bytes of a PUT. The proxy leaves the header Host as it is, because a signature
covers it. It changes Connection, which no signature covers, so that the server closes the connection after one answer.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

_CHUNK = 1 << 16
_HEAD_MOST = 1 << 16


@dataclass(frozen=True, slots=True)
class Request:
    """One request, and its answer.

    Attributes:
        kind: list, head, range, get (a whole object), put, part (of an upload in parts), upload (its begin or end), delete.
        path: bucket and key of the object, or of the folder that is listed.
        sent: bytes of the request's body.
        received: bytes of the answer's body.
        status: HTTP status of the answer.
    """

    kind: str
    path: str
    sent: int
    received: int
    status: int


@dataclass
class CountingProxy:
    """A running proxy.

    Attributes:
        endpoint: its URL.
        requests: the requests since `clear`, in the order of their ends.
    """

    endpoint: str
    requests: list[Request] = field(default_factory=list)

    def clear(self) -> None:
        self.requests.clear()

    def counts(self) -> Counter[str]:
        """The number of requests of each kind."""
        return Counter(request.kind for request in self.requests)

    def received(self) -> int:
        """Bytes of the contents of objects that were read; answers to lists do not count."""
        return sum(request.received for request in self.requests if request.kind in {"range", "get"})

    def sent(self) -> int:
        """Bytes of the contents of objects that were written."""
        return sum(request.sent for request in self.requests if request.kind in {"put", "part"})


@contextmanager
def counting_proxy(server: str) -> Iterator[CountingProxy]:
    """A proxy in front of the server at the URL `server`; it ends with the block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    place = urlsplit(server)
    proxy = CountingProxy("")

    serving: set[asyncio.Task[None] | None] = set()  # asyncio keeps only weak references to tasks

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.current_task())
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await _forward(proxy.requests, reader, writer, place.hostname or "", place.port or 80)
        writer.close()

    listening = asyncio.run_coroutine_threadsafe(asyncio.start_server(serve, "127.0.0.1", 0, limit=_HEAD_MOST), loop).result()
    proxy.endpoint = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        asyncio.run_coroutine_threadsafe(_end(listening), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


async def _end(listening: asyncio.Server) -> None:
    """End the tasks of all connections, also of those without a request yet."""
    listening.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _forward(found: list[Request], client: asyncio.StreamReader, back: asyncio.StreamWriter, host: str, port: int) -> None:
    """Forward one request and its answer, and remember them."""
    head = await client.readuntil(b"\r\n\r\n")
    server, there = await asyncio.open_connection(host, port, limit=_HEAD_MOST)
    lines = [line for line in head.split(b"\r\n")[:-2] if not line.lower().startswith(b"connection:")]
    there.write(b"\r\n".join([*lines, b"Connection: close", b"", b""]))
    sent, received = [0], 0
    sending = asyncio.create_task(_pump(client, there, sent))
    try:
        answer = await server.readuntil(b"\r\n\r\n")
        while answer.split(b" ", 2)[1] == b"100":  # the client waits for it before it sends the body
            back.write(answer)
            answer = await server.readuntil(b"\r\n\r\n")
        status, length = int(answer.split(b" ", 2)[1]), _body_length(head, answer)
        while length is None or received < length:
            chunk = await server.read(_CHUNK)
            received += len(chunk)
            if not chunk or (length is not None and received >= length):
                answer += chunk
                break
            back.write(answer + chunk)
            await back.drain()
            answer = b""
        # before the client gets the last bytes: it may then read the counts
        found.append(_request(head.decode("latin-1"), sent[0], received, status))
        back.write(answer)
        await back.drain()
    finally:
        sending.cancel()
        there.close()


def _body_length(head: bytes, answer: bytes) -> int | None:
    """The number of bytes of the answer's body; None if the body ends with the connection."""
    if head.startswith(b"HEAD "):
        return 0
    lines = answer.lower().split(b"\r\n")
    return next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")), None)


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter, size: list[int]) -> None:
    """Forward bytes until the source ends; `size` gets their number."""
    while chunk := await source.read(_CHUNK):
        size[0] += len(chunk)
        target.write(chunk)
        await target.drain()


def _request(head: str, sent: int, received: int, status: int) -> Request:
    method, target, _ = head.split(" ", 2)
    place = urlsplit(target)
    query = parse_qs(place.query, keep_blank_values=True)
    path = unquote(place.path).strip("/")
    if method == "GET" and "/" not in path:
        return Request("list", f"{path}/{query.get('prefix', [''])[0]}", sent, received, status)
    if method == "GET":
        kind = "range" if "\r\nrange:" in head.lower() else "get"
    elif method == "PUT":
        kind = "part" if "uploadId" in query else "put"
    elif method == "POST":
        kind = "delete" if "delete" in query else "upload"
    else:
        kind = method.lower()
    return Request(kind, path, sent, received, status)


def repeated(requests: Sequence[Request], kinds: Sequence[str]) -> dict[tuple[str, str], int]:
    """The kind and path of requests that were made more than once, with their number."""
    found = Counter((request.kind, request.path) for request in requests if request.kind in kinds)
    return {one: count for one, count in found.most_common() if count > 1}
