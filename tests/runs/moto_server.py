"""Starts moto's S3 server (Apache License 2.0) on loopback, as a process of its own: in a second, with what `.[dev]` installs.

It refuses a PUT with 412 if its `If-None-Match` or `If-Match` does not hold; writers of a lake on S3 rely on this. It takes any
credentials, and keeps its objects in memory. Wrong credentials, and several drivers at once, are tested with versitygw (s3_server.py).
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.runs.s3_server import BUCKET, S3Server, await_server

_START_SECONDS = 60


@contextmanager
def moto_server(folder: Path) -> Iterator[S3Server]:
    """A server with an empty bucket; its log is in the folder `folder`. It ends with the block. Skips the calling test without moto."""
    for package in ("moto", "flask_cors"):
        pytest.importorskip(package, reason="moto's S3 server is not installed: pip install '.[dev]'")
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = S3Server(f"http://127.0.0.1:{port}", f"KEY{secrets.token_hex(8)}", secrets.token_hex(20), folder)
    others = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "MOTO_", "S3_"))}
    call = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(call, env=others, stdout=log, stderr=log)
    try:
        await_server(process, lambda: socket.create_connection(("127.0.0.1", port), timeout=1).close(), _START_SECONDS)
        server.filesystem().create_dir(BUCKET)
        yield server
    finally:
        process.terminate()
        process.wait(30)
