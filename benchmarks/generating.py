"""The measure of `pullsim generate`: writing a store, with as many bytes written by numpy for a peer."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from benchmarks.measures import Figure, timed
from pipeline.generate import run_generate
from pipeline.workload import workload_of

MESSAGES = 3_000_000
WORKLOAD = {
    "messages": 1,
    "topics": [{"name": "bench", "queues": 16, "rate": 1000, "body": 200, "tags": ["TagA", "TagB", "TagC"], "keys": {}}],
}


def measure_generate(folder: Path, messages: int = MESSAGES) -> list[Figure]:
    """Messages a second with bodies of 200 bytes, log, queues and index (about 390 and 60 bytes a message), on an empty `folder`."""
    workload = workload_of(WORKLOAD, "the benchmark's workload")
    store, peer = folder / "generated", folder / "peer"
    run_generate(str(store), workload, messages=1000)  # compiles
    shutil.rmtree(store)
    rate = messages / timed(lambda: run_generate(str(store), workload, messages=messages))
    written = sum(path.stat().st_blocks * 512 for path in store.rglob("*") if path.is_file())
    shutil.rmtree(store)
    block = np.arange(1 << 21)
    peer_rate = messages / timed(lambda: _write(peer, block, written))
    peer.unlink()
    told = f"numpy, same bytes: {peer_rate:,.0f}"
    return [Figure(name="generate", value=rate, unit="messages/s", peer=told, ratio=rate / peer_rate, target="300,000/s")]


def _write(path: Path, block: np.ndarray, length: int) -> None:
    with path.open("wb") as file:
        for _ in range(length // block.nbytes + 1):
            block.tofile(file)
