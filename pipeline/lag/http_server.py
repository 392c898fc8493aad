"""A small HTTP server in threads of its own: where it listens, and how long it waits for a client."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, make_server
from wsgiref.types import WSGIApplication

from prometheus_client.exposition import ThreadingWSGIServer

from pipeline.files.output_file import OutputError

LOCALHOST: Final = "127.0.0.1"
_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9a-fA-F:.]+\]|[^\[\]:/\s]+):)?(?P<port>[0-9]{1,5})")
_CLIENT_SECONDS = 10


class _Server(ThreadingWSGIServer):
    """Answers requests, each in a thread."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: a client that disconnects, or sends nothing for _CLIENT_SECONDS, is no fault of the command."""


class _ServerV6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    """Reads a request."""

    timeout = _CLIENT_SECONDS

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the server's name)
        """Print nothing: Prometheus sends a request every few seconds."""


def is_address(target: str) -> bool:
    """Whether a target is PORT or HOST:PORT, and no file."""
    return _ADDRESS.fullmatch(target) is not None


def host_of(target: str) -> str:
    """The host of PORT or HOST:PORT, without the brackets of IPv6; LOCALHOST for a port alone."""
    found = _ADDRESS.fullmatch(target)
    return LOCALHOST if found is None or found["host"] is None else str(found["host"]).strip("[]")


@contextmanager
def serving(target: str, application: WSGIApplication, what: str) -> Iterator[str]:
    """Serve an application until the context ends; yields `host:port` as URLs have it.

    Args:
        target: PORT or HOST:PORT; PORT alone listens only to this machine, and port 0 is any that is free.
        application: answers the requests, several at once.
        what: what is served, for the error.

    Raises:
        OutputError: the target is no address, or the port is in use.
    """
    found = _ADDRESS.fullmatch(target)
    if found is None:
        raise OutputError(f"{target}: expected PORT or HOST:PORT to serve {what} from")
    host = host_of(target)
    try:
        server = make_server(host, int(found["port"]), application, _ServerV6 if ":" in host else _Server, _Handler)
    except (OSError, OverflowError) as error:
        raise OutputError(f"{target}: expected a port that is free, to serve {what} from, found {error}") from error
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"{found['host'] or LOCALHOST}:{server.server_port}"
        finally:
            server.shutdown()
