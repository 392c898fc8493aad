"""The real broker answers pulls that no recorded answer covers, on new stores with new settings; import and replay answer the same.

PULLSIM_ORACLE_ROUNDS is the number of stores of each profile (default 1), PULLSIM_ORACLE_SEED the seed of the first ones (default 0).
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from store_format.errors import CorruptStoreError
from tests.makers.made_store import Record, make_store
from tests.runs.replaying import Line, all_lines, differences, import_into, read_lines, run
from tests.truth.golden import meta_of
from tests.truth.oracle import PROFILES, ask, generate, needs_oracle, thought_up, trace_config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.lake.lake import Lake

pytestmark = needs_oracle()
ROUNDS = int(os.environ.get("PULLSIM_ORACLE_ROUNDS", "1"))
FIRST_SEED = int(os.environ.get("PULLSIM_ORACLE_SEED", "0"))
TRACES = 3


def check(lake: Lake, trace: Path) -> None:
    """Check that the replay's file has the broker's answer to every pull of the trace, and that the replay's own comparison agrees."""
    out = trace.with_suffix(".out")
    done = run(lake, trace, out=str(out), compare=True)
    recorded = read_lines(trace)
    assert differences(recorded, read_lines(out))[:3] == [], all_lines(trace)[0]["config"]
    assert done.comparison is not None
    assert (done.comparison.compared, done.comparison.differ) == (len(recorded), 0)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + ROUNDS))
def test_the_replay_answers_as_the_broker_does(profile: str, seed: int, spark: SparkSession, tmp_path: Path) -> None:
    digits = random.Random(f"{profile} {seed}")
    store = generate(tmp_path / profile, profile, seed, digits.choice(PROFILES[profile]))
    layout = digits.choice(["partitioned", "clustered"])
    try:
        lake = import_into(spark, tmp_path / "lake", store, layout=layout)  # type: ignore[arg-type]
    except CorruptStoreError as error:
        assert profile == "holes"  # the hole took what start dispatches again
        pytest.skip(str(error))
    plain = ask(store, tmp_path / "plain.jsonl", {}, seed=seed)
    check(lake, plain)
    meta, log_end = meta_of(store), all_lines(plain)[0]["maxPhyOffset"]
    for number in range(1, TRACES):
        asked = thought_up(plain, meta, digits, 500)
        check(lake, ask(store, tmp_path / f"{number}.jsonl", trace_config(digits, log_end), requests=asked, seed=seed + number))


def test_the_broker_takes_made_stores_as_the_replay_does(spark: SparkSession, tmp_path: Path) -> None:
    digits = random.Random(5)
    records = [
        Record(
            topic=digits.choice("TTTTTTU"),
            tag=digits.choice(["TagA", "TagB", None]),
            stamp=digits.randint(0, 10**6),
            body=bytes(digits.randint(0, 30)),
        )
        for _ in range(30_000)
    ]
    made = make_store(tmp_path / "made", records, log_file=1 << 20, queue_file=400_000)
    lake = import_into(spark, tmp_path / "lake", made.path)
    uncapped: dict[str, int] = {f"maxTransfer{what}OnMessageInMemory": 2**31 - 1 for what in ("Bytes", "Count")}
    request = {"group": "g", "topic": "T", "queueId": 0, "filter": None}
    for name, config in {"plain": {}, "uncapped": uncapped, "mixed": uncapped | {"memory": made.log_end // 2}}.items():
        asked: list[Line] = [
            {"request": request | {"offset": digits.choice([0, 7000, 8191, 8192, 19_000, 20_000]), "maxMsgNums": wanted, "filter": chosen}}
            for wanted in (32, 800, 801, 5000, 20_000, 107_374_183)
            for chosen in (None, {"type": "TAG", "expression": "TagA"})
        ]
        check(lake, ask(made.path, tmp_path / f"{name}.jsonl", config | made.sizes, requests=asked))
