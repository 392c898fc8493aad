"""Lets the real broker recover many stores in one process, through a program of ours (data/java/RecoverStores.java)."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Self

from tests.truth.oracle import harness
from tests.truth.places import DATA

# a start that has not caught up after this many ms counts as one that never ends
START_LIMIT = "2000"
# a broker with too little memory; queues that the harness, which lists them as paths, cannot record; and, on a busy machine, a thread of
# the broker that makes a file while the harness deletes the store
NOT_RECORDED = ("java.lang.OutOfMemoryError", "InvalidPathException: Nul character", "DirectoryNotEmptyException")
# stores that one process recovers, and no more: the threads of a store that did not start never end
STORES_A_PROCESS = 40


class RecoveringBroker:
    """The real broker; `with` ends its process."""

    def __init__(self, folder: Path, version: str = "4.9.3") -> None:
        """Compile the program into a folder."""
        asked = os.environ | {"ORACLE_VERSION": version}
        told = subprocess.run([harness(), "jars"], check=True, capture_output=True, text=True, timeout=600, env=asked).stdout.split()
        cache = Path(told[-1])
        lib = os.environ.get("ORACLE_LIB") or f"{cache}/lib-{version}"
        newest = max(cache.glob(f"classes-{version}-*"), key=lambda path: path.stat().st_mtime)
        source = DATA / "java" / "RecoverStores.java"
        subprocess.run(["javac", "-nowarn", "-d", folder, source], check=True, capture_output=True, timeout=120)
        packages = ("java.nio", "sun.nio.ch", "jdk.internal.ref", "java.util", "java.lang")
        work = folder / "work"
        self._command = [
            "java",
            *("-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-OmitStackTraceInFastThrow"),
            *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in packages),
            *(f"-Drocketmq.broker.diskSpace{name}Ratio=0.99" for name in ("WarningLevel", "CleanForcibly")),
            *("-Duser.timezone=UTC", "-Dfile.encoding=UTF-8", "-Dsun.jnu.encoding=UTF-8"),
            *(f"-Duser.home={folder}", f"-Djava.io.tmpdir={folder}", f"-Doracle.tmp={work}"),
            *(f"-Doracle.version={version}", "-Doracle.log=OFF"),
            *("-cp", f"{folder}:{newest}:{lib}/*", "RecoverStores", START_LIMIT),
        ]
        self._process: subprocess.Popen[str] | None = None
        self._recovered = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def recovered(self, store: Path) -> dict[str, Any] | None:
        """The recovery as `store recover` of the harness records it; None if it cannot (NOT_RECORDED)."""
        if self._process is None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "recorded.json"
            process.stdin.write(f"{store}\t{out}\n")
            process.stdin.flush()
            told = next((line for line in process.stdout if line.startswith("=")), "=the process ended").removeprefix("=").strip()
            assert told == "done" or any(cause in told for cause in NOT_RECORDED), f"{store}: {told}"
            recorded: dict[str, Any] | None = json.loads(out.read_text(encoding="utf-8")) if told == "done" else None
        self._recovered += 1
        if recorded is None or recorded.get("start") != "ok" or self._recovered >= STORES_A_PROCESS:
            self._end()
        return recorded

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self._process, self._recovered = None, 0
