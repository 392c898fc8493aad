"""The measure of `pullsim generate`: writing a store, with numpy as peer, which writes as many bytes."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from benchmarks.figures import Figure, Peer, held_against, median_seconds, rates, timed
from benchmarks.stand import Stand
from pipeline.generate.generate import run_generate
from pipeline.generate.workload import workload_of

MESSAGES = 2_000_000
WORKLOAD = {
    "messages": 1,
    "topics": [{"name": "bench", "queues": 16, "rate": 1000, "body": 200, "tags": ["TagA", "TagB", "TagC"], "keys": {}}],
}


def measure_generate(stand: Stand) -> list[Figure]:
    """Messages a second with bodies of 200 bytes: log, queues and index (about 390 and 60 bytes a message)."""
    workload, messages = workload_of(WORKLOAD, "the benchmark's workload"), MESSAGES // stand.scale
    store, peer = stand.folder / "generated", stand.folder / "peer"
    run_generate(str(store), workload, messages=1000)  # compiles
    seconds = []
    for _ in range(stand.repeats):
        shutil.rmtree(store)
        seconds.append(timed(lambda: run_generate(str(store), workload, messages=messages)))
    written = sum(path.stat().st_blocks * 512 for path in store.rglob("*") if path.is_file())
    shutil.rmtree(store)
    block = np.arange(1 << 21)
    writing = Peer("numpy", "numpy writing as many bytes", messages / median_seconds(lambda: _write(peer, block, written), stand.repeats))
    peer.unlink()
    return held_against("generate", rates(messages, seconds), "messages/s", writing, target="300,000/s")


def _write(path: Path, block: np.ndarray, length: int) -> None:
    with path.open("wb") as file:
        for _ in range(length // block.nbytes + 1):
            block.tofile(file)
