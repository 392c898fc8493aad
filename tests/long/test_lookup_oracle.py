"""Look-ups that the real broker answers now, in stores of odd sizes and in stores whose old files are damaged, byte for byte."""

from __future__ import annotations

import json
import os
import random
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipeline.settings.settings import BrokerSettings
from pipeline.store.lookup import run_lookup
from store_format.log.commit_log import walk
from tests.truth.golden import meta_of
from tests.truth.oracle import generate, needs_oracle, oracle

pytestmark = needs_oracle()

SLOTS, ENTRIES = 100, 600  # of the profile small
Damage = Callable[[Path, random.Random], None]


def nothing(_store: Path, _digits: random.Random) -> None:
    """Leave the store as it is."""


def rewritten(path: Path, raw: bytearray) -> None:
    stat = path.stat()
    path.write_bytes(raw)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def records_and_entries(store: Path, digits: random.Random) -> None:
    """Damage the files of log and queues that load does not read: any sizes and offsets, properties of length 0."""
    for path in sorted((store / "commitlog").iterdir())[:-3]:
        raw = bytearray(path.read_bytes())
        for at in walk(np.frombuffer(bytes(raw), np.uint8), 0, len(raw), 100_000).positions.tolist():
            chosen = digits.randrange(3)
            if chosen == 0:
                rest = len(raw) - at
                sizes = [-1, 2**31 - 1, 0, 3, 4, 40, 60, 91, rest, rest + 1, 2**31 - at - 1, 2**31 - at, -(2**31)]
                struct.pack_into(">i", raw, at, digits.choice(sizes))
            elif chosen == 1 and not raw[at + 39] & 0x30:
                (body,) = struct.unpack_from(">i", raw, at + 84)
                struct.pack_into(">h", raw, at + 89 + body + raw[at + 88 + body], 0)
        rewritten(path, raw)
    for queue in sorted((store / "consumequeue").glob("*/*")):
        for path in sorted(queue.iterdir())[:-3]:
            raw = bytearray(path.read_bytes())
            for at in range(20, len(raw), 20):
                if digits.random() < 0.15:
                    struct.pack_into(">q", raw, at, digits.choice([0, 10**12, 5, 2**62]))
                elif digits.random() < 0.15:
                    struct.pack_into(">i", raw, at + 8, digits.choice([2**31 - 1, 64, 100, 70_000]))
            rewritten(path, raw)


def index_entries(store: Path, digits: random.Random) -> None:
    """Damage the index: chains that lead anywhere but form no circle, any offsets and times, an index count that is too great."""
    for number, path in enumerate(sorted((store / "index").iterdir())):
        raw = bytearray(path.read_bytes())
        for entry in range(1, ENTRIES):
            at = 40 + 4 * SLOTS + 20 * entry
            chosen = digits.random()
            if chosen < 0.05:
                struct.pack_into(">q", raw, at + 4, digits.choice([0, -1, 5, 10**12, 421_424, 421_423, 300_000]))
            elif chosen < 0.09:
                struct.pack_into(">i", raw, at + 12, digits.choice([-1, 0, 2**31 - 1, 10**6, -(2**31)]))
            elif chosen < 0.13:
                struct.pack_into(">i", raw, at + 16, digits.choice([0, -1, entry, entry - 1, digits.randrange(entry), 10**6, ENTRIES + 1]))
        if number == 1:
            struct.pack_into(">i", raw, 36, 2**31 - 1)
        for slot in range(SLOTS):
            if digits.random() < 0.1:
                struct.pack_into(">i", raw, 40 + 4 * slot, digits.choice([0, -5, ENTRIES - 1, ENTRIES, ENTRIES + 1, 10**6, 2**31 - 1]))
        rewritten(path, raw)


def both(store: Path, digits: random.Random) -> None:
    """Damage log, queues and index."""
    records_and_entries(store, digits)
    index_entries(store, digits)


CASES: list[tuple[str, int, str, Damage]] = [
    ("basic", 31, "mappedFileSizeConsumeQueue=41,maxHashSlotNum=3,maxIndexNum=700", nothing),
    ("window", 32, "mappedFileSizeConsumeQueue=15981,maxHashSlotNum=7,maxIndexNum=1500", nothing),
    ("cleaned", 33, "mappedFileSizeConsumeQueue=777,maxMsgsNumBatch=3", nothing),
    ("holes", 34, "mappedFileSizeConsumeQueue=402", nothing),
    ("preblank0", 35, "mappedFileSizeConsumeQueue=333", nothing),
    ("preblank1", 36, "maxHashSlotNum=1,maxIndexNum=300", nothing),
    ("lmq", 37, "", nothing),
    ("replica", 38, "", nothing),
    ("extmix", 39, "", nothing),
    ("ext", 43, "mappedFileSizeConsumeQueueExt=333", nothing),
    ("delayreal", 44, "", nothing),
    ("small", 40, "", records_and_entries),
    ("small", 41, "", index_entries),
    ("small", 42, "", both),
]


@pytest.mark.parametrize(("profile", "seed", "config", "damage"), CASES)
def test_look_ups_are_answered_as_the_broker_answers_them_now(tmp_path: Path, profile: str, seed: int, config: str, damage: Damage) -> None:
    store = generate(tmp_path / "store", profile, seed, config)
    for name, mtime_ms in meta_of(store)["mtimesMs"].items():
        if (store / name).exists():
            os.utime(store / name, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))
    damage(store, random.Random(seed))
    recorded, out = tmp_path / "recorded.jsonl", tmp_path / "out.jsonl"
    oracle("lookup", "--store", store, "--n", "500", "--seed", str(seed), "--out", recorded)

    def settings_of(header: dict[str, object] | None) -> BrokerSettings:
        return BrokerSettings.from_sources(header=(header or {}).get("config"))

    run_lookup(str(store), str(recorded), str(out), settings_of=settings_of, progress=lambda _: None)
    lines = recorded.read_text(encoding="utf-8").splitlines()
    assert out.read_text(encoding="utf-8").splitlines() == lines
    kinds = Counter(json.loads(line).get("op") for line in lines)
    assert len(kinds) == 7
    if damage in {records_and_entries, both}:
        assert sum("xception" in line for line in lines) > 10
