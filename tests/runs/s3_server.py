"""Starts a real S3 server on loopback, as a process of its own with random credentials.

The server is versitygw 1.8.0 (Apache License 2.0). It checks signatures. Its PUT with `If-None-Match` is atomic; commits of Delta rely on
this. moto's server checks no signatures. MinIO is under the AGPL. The server runs without --keep-alive, with which it answers some of
pyarrow's uploads with 400. Go's tool builds it once, in minutes, into a folder of the user's cache.

    python -m tests.runs.s3_server COMMAND...

runs a command beside a server, with the server's endpoint and credentials in the environment; its bucket is s3://lakes.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow.fs as pafs
import pytest

_MODULE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
_BUILD_SECONDS, _START_SECONDS = 1200, 20
BUCKET = "lakes"


@dataclass(frozen=True)
class S3Server:
    """A running server, whose bucket BUCKET is empty at first.

    Attributes:
        endpoint: its URL.
        key: id of the one access key.
        secret: secret of the key.
        folder: the folder in which the server keeps its objects as files.
    """

    endpoint: str
    key: str
    secret: str
    folder: Path

    def environment(self) -> dict[str, str]:
        """This process's environment with the server's endpoint and credentials, and no other ones."""
        others = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        own = {"AWS_ACCESS_KEY_ID": self.key, "AWS_SECRET_ACCESS_KEY": self.secret, "AWS_ENDPOINT_URL": self.endpoint}
        return others | own | {"AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}

    def filesystem(self) -> pafs.S3FileSystem:
        host = self.endpoint.removeprefix("http://")
        return pafs.S3FileSystem(
            access_key=self.key,
            secret_key=self.secret,
            region="us-east-1",
            endpoint_override=host,
            scheme="http",
            allow_bucket_creation=True,
        )


def server_binary(*, build: bool) -> Path:
    """The path of the server's program. If it is missing, `build` builds it. Without a program the calling test is skipped."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pullsim-s3-server"
    binary = cache / "versitygw"
    if not binary.exists() and not build:
        pytest.skip("the S3 server is not built here: `./run long -k test_s3` builds it, in minutes")
    if not binary.exists():
        go = shutil.which("go")
        if go is None:
            pytest.skip("the S3 server is not here, and no Go to build it with")
        environment = os.environ | {"GOBIN": str(cache)}
        built = subprocess.run([go, "install", _MODULE], env=environment, capture_output=True, timeout=_BUILD_SECONDS, check=False)
        if built.returncode:
            pytest.skip(f"the S3 server cannot be built: {built.stderr.decode()[-300:]}")
    return binary


@contextmanager
def s3_server(folder: Path, *, build: bool = True) -> Iterator[S3Server]:
    """A server that keeps its objects in a new folder `folder`; it ends with the block."""
    binary = server_binary(build=build)
    objects = folder / "objects"
    objects.mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = S3Server(f"http://127.0.0.1:{port}", f"KEY{secrets.token_hex(8)}", secrets.token_hex(20), objects)
    credentials = {"ROOT_ACCESS_KEY": server.key, "ROOT_SECRET_KEY": server.secret}
    command: list[str | Path] = [binary, "--port", f"127.0.0.1:{port}", "--quiet", "posix", objects]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, env=os.environ | credentials, stdout=log, stderr=log)
    try:
        await_server(process, lambda: server.filesystem().create_dir(BUCKET), _START_SECONDS)
        yield server
    finally:
        process.terminate()
        process.wait(30)


def await_server(process: subprocess.Popen[bytes], ask: Callable[[], object], seconds: float) -> None:
    """Call `ask` again and again, for some seconds at most, until it raises no OSError."""
    until = time.monotonic() + seconds
    while True:
        try:
            ask()
        except OSError:
            assert process.poll() is None, "the server has ended"
            assert time.monotonic() < until, "the server does not answer"
            time.sleep(0.05)
        else:
            return


def main() -> int:
    """Run the command of the command line beside a server; returns its exit code."""
    with tempfile.TemporaryDirectory(prefix="pullsim-s3-") as folder, s3_server(Path(folder)) as server:
        return subprocess.run(sys.argv[1:], env=server.environment(), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
