"""Measures the memory of Spark's Python workers while a block runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.figures import Figure, Peer, held_against

# what a worker may take, MiB, by whatever it is asked for
LIMIT = 2048.0


def memory_figure(name: str, peak: float) -> list[Figure]:
    """The figure of the largest worker that was seen."""
    return held_against(f"{name} memory", [peak], "MiB, largest worker", Peer("the limit", "limit", LIMIT), target="ratio < 1")


@contextmanager
def peak_worker_memory() -> Iterator[Callable[[], float]]:
    """Greatest memory of its own (mapped files aside), in MiB, of any Python worker that was seen while the block ran."""
    stop, peak = threading.Event(), [0.0]

    def watch() -> None:
        while not stop.wait(0.2):
            for process in _own_workers():
                with suppress(OSError, IndexError):
                    if b"pyspark" in (process / "cmdline").read_bytes().split(b"java")[0]:
                        status = (process / "status").read_text("ascii")
                        peak[0] = max(peak[0], int(status.split("RssAnon:")[1].split()[0]) / 1024)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield lambda: peak[0]
    finally:
        stop.set()
        watcher.join()


def _own_workers() -> Iterator[Path]:
    """The processes below this one that may be Python workers of Spark."""
    parents: dict[str, str] = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError, IndexError):
            parents[pid] = Path(f"/proc/{pid}/stat").read_text("utf-8").rsplit(")", 1)[1].split()[1]
    for pid in parents:
        above = pid
        while above in parents and above != str(os.getpid()):
            above = parents[above]
        if above == str(os.getpid()) and pid != above:
            yield Path(f"/proc/{pid}")
