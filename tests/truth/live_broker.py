"""Runs a real broker on a store of its own, and its clients."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.truth.oracle import harness

TOPIC, GROUP = "FollowedTopic", "FollowedGroup"
PORT = 23461
# small files, so that the log soon begins its next one
PROPERTIES = "mappedFileSizeCommitLog=300000\nmappedFileSizeConsumeQueue=2000\nmaxHashSlotNum=1000\nmaxIndexNum=4000\n"


class LiveBroker:
    """A broker of a version, and its clients. The broker may start and end many times on its one store; `options` are its settings."""

    def __init__(self, folder: Path, version: str = "4.9.3", properties: str = PROPERTIES) -> None:
        self.version = version
        self.store = folder / "store"
        self.store.mkdir()
        self.properties = folder / "broker.conf"
        self.properties.write_text(properties, encoding="utf-8")
        self.options = properties.splitlines()

    @contextmanager
    def broker(self, *, ends_by: signal.Signals = signal.SIGTERM) -> Iterator[None]:
        command: list[str | Path] = [harness(), "serve", "--store", self.store, "--in-place", "--port", str(PORT)]
        command += ["--properties", self.properties]
        asked = os.environ | {"ORACLE_VERSION": self.version}
        running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True, env=asked)
        try:
            assert running.stdout is not None
            told = running.stdout.readline()
            assert told.startswith("READY"), told
            yield
        finally:
            os.killpg(running.pid, ends_by)
            running.communicate(timeout=60)

    def produce(self, messages: int, rate: int = 400) -> None:
        numbers = ("--messages", str(messages), "--rate", str(rate), "--size", "200", "--tags", "TagA,TagB")
        self._client("produce", *numbers)

    def consume(self, messages: int) -> None:
        self._client("consume", "--group", GROUP, "--messages", str(messages), "--seconds", "60")

    @staticmethod
    def _client(what: str, *arguments: str) -> None:
        command: list[str | Path] = [harness(), what, "--port", str(PORT), "--topic", TOPIC, *arguments]
        subprocess.run(command, check=True, capture_output=True, timeout=200)
