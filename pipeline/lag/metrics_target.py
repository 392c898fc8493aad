"""Where metrics go: a file that a collector reads, such as node_exporter's textfile collector, or a port that Prometheus asks."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pipeline.files.output_file import OutputError
from pipeline.files.whole_file import whole_file
from pipeline.lag.metrics_text import CONTENT_TYPE

PATH = "/metrics"
_LOCALHOST = "127.0.0.1"
_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9a-fA-F:.]+\]|[^\[\]:/\s]+):)?(?P<port>[0-9]{1,5})")
_CLIENT_SECONDS = 10

# takes the text of all metrics; OutputError where it cannot be put there
Publish = Callable[[str], None]


@contextmanager
def metrics_target(target: str, progress: Callable[[str], None]) -> Iterator[Publish]:
    """What puts the text of metrics where a user wants it.

    Args:
        target: PORT or HOST:PORT to be served from, by default on this machine alone; else a local FILE, written whole each time.
        progress: told where they are served.

    Raises:
        OutputError: the port is not free, or there cannot be such a file.
    """
    address = _ADDRESS.fullmatch(target)
    if address is None:
        yield _file(target)
        return
    host = address["host"] or _LOCALHOST
    with _Server(target, host.strip("[]"), int(address["port"])) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        progress(f"metrics at http://{host}:{server.server_port}{PATH}")
        try:
            yield server.publish
        finally:
            server.shutdown()


def _file(target: str) -> Publish:
    path = os.path.abspath(target)
    if os.path.isdir(path) or not os.path.isdir(os.path.dirname(path)):
        raise OutputError(f"{target}: expected PORT, HOST:PORT, or a file for metrics in a folder that is there, found none")

    def publish(text: str) -> None:
        try:
            with whole_file(path) as file:
                file.write(text.encode())
        except OSError as error:
            raise OutputError(f"{target}: expected a file that can be written, found {error}") from error

    return publish


class _Handler(BaseHTTPRequestHandler):
    """Gives the newest text."""

    timeout = _CLIENT_SECONDS
    server: _Server

    def do_GET(self) -> None:
        found = self.path.partition("?")[0] == PATH
        content = self.server.text.encode() if found else f"metrics are at {PATH}\n".encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", CONTENT_TYPE if found else "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the server's name)
        """Requests are not told."""


class _Server(ThreadingHTTPServer):
    """Serves one text, which is replaced as a whole."""

    daemon_threads = True

    def __init__(self, target: str, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.text = ""
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise OutputError(f"{target}: expected a port that is free, to serve metrics from, found {error}") from error

    def publish(self, text: str) -> None:
        self.text = text
