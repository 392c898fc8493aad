"""A small HTTP server in threads of its own: where it listens, whom it answers, and how long it waits for a client.

Rule: while it listens on a loopback address, it answers only requests whose Host header names this machine. So a page of another site
cannot read the answers through a name of its own that resolves to this machine.
"""

from __future__ import annotations

import io
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, make_server
from wsgiref.types import WSGIApplication

from prometheus_client.exposition import ThreadingWSGIServer

from pipeline.files.output_file import OutputError

LOCALHOST: Final = "127.0.0.1"
_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9a-fA-F:.]+\]|[^\[\]:/\s]+):)?(?P<port>[0-9]{1,10})")
# seconds in which a client must send its request, and take each piece of the answer
_CLIENT_SECONDS: Final = 10.0
# most requests that are answered at the same time; the connections of further ones are closed
_AT_ONCE = 64


class _Server(ThreadingWSGIServer):
    """Answers requests, each in a thread, of which there are at most _AT_ONCE.

    Attributes:
        request_seconds: time in which a client must have sent all of its request.
    """

    request_seconds = _CLIENT_SECONDS

    def __init__(self, *address: Any) -> None:
        self._free = threading.BoundedSemaphore(_AT_ONCE)
        super().__init__(*address)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            try:
                super().process_request(request, client_address)
            except RuntimeError:  # no thread can be started
                self._free.release()
                raise
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: a client that disconnects, or is too slow, is no fault of the command."""


class _ServerV6(_Server):
    address_family = socket.AF_INET6


class _UntilDeadline(io.RawIOBase):
    """Reads from a client until a deadline: the timeout of a socket would begin again with each byte."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection, self._end = connection, time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what is there into a buffer; returns the number of bytes.

        Raises:
            TimeoutError: the time is over.
        """
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(_CLIENT_SECONDS)


class _Handler(WSGIRequestHandler):
    """Reads a request, within the server's request_seconds."""

    timeout = _CLIENT_SECONDS

    def setup(self) -> None:
        """Read from the client until the deadline."""
        super().setup()
        self.rfile.close()
        assert isinstance(self.server, _Server)
        self.rfile = io.BufferedReader(_UntilDeadline(self.connection, self.server.request_seconds))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the server's name)
        """Print nothing: Prometheus sends a request every few seconds."""


def is_address(target: str) -> bool:
    """Whether a target is PORT or HOST:PORT, and no file."""
    return _ADDRESS.fullmatch(target) is not None


def _for_this_machine(application: WSGIApplication) -> WSGIApplication:
    """Return an application that answers only requests whose Host header names this machine."""

    def guarded(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if _is_this_machine(environ.get("HTTP_HOST", "")):
            return application(environ, start_response)
        start_response("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff")])
        return [b"this is for this machine alone: ask for it as localhost\n"]

    return guarded


def _is_this_machine(host: str) -> bool:
    name = host.rpartition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    return name.lower() == "localhost" or _is_loopback(name)


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


@contextmanager
def serving(target: str, application: WSGIApplication, what: str, *, request_seconds: float = _CLIENT_SECONDS) -> Iterator[str]:
    """Serve an application until the context ends; yields `host:port` as URLs have it.

    Args:
        target: PORT or HOST:PORT; PORT alone listens only to this machine; port 0 means any free port.
        application: answers the requests, several at once; on a loopback address, only requests that name this machine.
        what: what is served, for the error.
        request_seconds: time in which a client must have sent all of its request; else it is cut off.

    Raises:
        OutputError: the target is no address, or the port is in use.
    """
    found = _ADDRESS.fullmatch(target)
    if found is None:
        raise OutputError(f"{target}: expected PORT or HOST:PORT to serve {what} from, as in 8099 or 0.0.0.0:8099")
    host = LOCALHOST if found["host"] is None else str(found["host"]).strip("[]")
    try:
        server = make_server(host, int(found["port"]), application, _ServerV6 if ":" in host else _Server, _Handler)
    except (OSError, OverflowError) as error:
        raise OutputError(f"{target}: expected a port that is free, to serve {what} from, found {error}") from error
    server.request_seconds = request_seconds
    if _is_loopback(str(server.server_address[0])):
        server.set_app(_for_this_machine(application))
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"{found['host'] or LOCALHOST}:{server.server_port}"
        finally:
            server.shutdown()
