"""One store and one trace of the real broker, made for this run; tests/long has many."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

from tests.runs.replaying import differences, import_into, read_lines, run
from tests.truth.golden import meta_of
from tests.truth.oracle import ask, generate, needs_oracle, thought_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = needs_oracle()


def test_the_replay_answers_as_the_broker_does_now(spark: SparkSession, tmp_path: Path) -> None:
    store = generate(tmp_path / "store", "lmq", 20, "mappedFileSizeConsumeQueue=1999")
    first = ask(store, tmp_path / "first.jsonl", {})
    asked = thought_up(first, meta_of(store), random.Random(20), 300)
    settings = {"memory": 300_000, "maxTransferCountOnMessageInDisk": 3, "maxLmqConsumeQueueNum": 6}
    trace = ask(store, tmp_path / "trace.jsonl", settings, requests=asked)
    lake = import_into(spark, tmp_path / "lake", store)
    run(lake, trace, out=str(tmp_path / "out"))
    recorded = read_lines(trace)
    assert differences(recorded, read_lines(tmp_path / "out")) == []
    assert None in [line["response"] for line in recorded], "the limit on light queues was to be passed"
