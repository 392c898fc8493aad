"""A slave that lags: the real broker loads a log that ends at an earlier message, with the queues that it dispatches from it."""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.settings.slave_lag import SlaveLag
from tests.models.slow_broker import SlowBroker
from tests.runs.replaying import all_lines, answers_of, differences, import_into, read_lines
from tests.truth.golden import meta_of
from tests.truth.oracle import ask, generate, needs_oracle, thought_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = needs_oracle()


def slave_of(store: Path, slave: Path, end: int) -> None:
    """Write the store of a slave that has its master's log up to `end`, without queues: the broker dispatches them when it starts."""
    shutil.copytree(store, slave, ignore=shutil.ignore_patterns("consumequeue", "consumequeue_ext", "index", "checkpoint"))
    shutil.copy(store.with_name(f"{store.name}.meta.json"), slave.with_name(f"{slave.name}.meta.json"))
    for file in (slave / "commitlog").iterdir():
        start = int(file.name)
        if start >= end:
            file.unlink()
        else:
            content = file.read_bytes()
            file.write_bytes(content[: end - start] + bytes(max(len(content) - (end - start), 0)))


@pytest.mark.parametrize(("profile", "seed"), [("basic", 5), ("window", 6), ("small", 7)])
def test_a_slave_answers_as_the_broker_does_with_the_log_it_has(profile: str, seed: int, spark: SparkSession, tmp_path: Path) -> None:
    digits = random.Random(seed)
    store = generate(tmp_path / "store", profile, seed, "")
    first = ask(store, tmp_path / "first.jsonl", {})
    log_end = all_lines(first)[0]["maxPhyOffset"]
    lake = import_into(spark, tmp_path / "lake", store)
    ends = [end for end, _ in SlowBroker(store, {}, log_end).records]
    for number, end in enumerate(digits.sample(ends[len(ends) // 3 : -1], 2)):
        slave_of(store, slave := tmp_path / f"slave{number}", end)
        asked = thought_up(first, meta_of(store), digits, 300)
        config = {"brokerRole": "SLAVE", "brokerId": 1, "memory": digits.choice([end // 2, 2**40])}
        trace = ask(slave, tmp_path / f"trace{number}.jsonl", config, requests=asked)
        assert all_lines(trace)[0]["maxPhyOffset"] == end
        ours = answers_of(lake, trace, tmp_path, slave_lag=SlaveLag(bytes=log_end - end))
        assert differences(read_lines(trace), ours) == []


def test_a_log_is_cut_at_a_message(tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    for start, content in ((0, b"aaaa"), (4, b"bbbb"), (8, b"cccc")):
        (tmp_path / "store" / "commitlog" / f"{start:020d}").write_bytes(content)
    (tmp_path / "store.meta.json").write_text("{}")
    slave_of(tmp_path / "store", tmp_path / "slave", 6)
    files = sorted((tmp_path / "slave" / "commitlog").iterdir())
    assert [(int(file.name), file.read_bytes()) for file in files] == [(0, b"aaaa"), (4, struct.pack("4s", b"bb"))]
