"""The real broker answers new pulls with filters of every kind, on whole and on damaged stores. Our answers are made without Spark.

PULLSIM_ORACLE_ROUNDS is the number of stores of each profile (default 1), PULLSIM_ORACLE_SEED the seed of the first ones (default 0).
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.models.without_spark import Tables, answers, tables_of, unequal
from tests.runs.replaying import all_lines
from tests.truth.golden import meta_of
from tests.truth.oracle import PROFILES, ask, generate, needs_oracle, oracle, thought_up, trace_config

pytestmark = needs_oracle()
ROUNDS = int(os.environ.get("PULLSIM_ORACLE_ROUNDS", "1"))
FIRST_SEED = int(os.environ.get("PULLSIM_ORACLE_SEED", "0"))
# damages that a start repairs or leaves
DAMAGES = (
    *("tail-garbage", "half-message", "half-message-clean", "zero-middle", "bad-magic", "bad-crc", "cq-ahead", "cq-behind"),
    *("cq-behind-one-abort", "cq-file-missing", "cq-last-file-missing", "cq-topic-missing", "cq-topic-missing-abort", "cq-all-missing"),
    *("checkpoint-missing", "checkpoint-old", "last-file-empty-abort", "last-file-zeroed", "cq-truncated-by-crash"),
)
# whether a pull of a light message queue is answered depends on earlier pulls, which only a replay as a job knows
OF_THE_JOB = ("enableLmq", "enableMultiDispatch", "maxLmqConsumeQueueNum", "readable")


def check(tables: Tables, trace: Path) -> None:
    header, *lines = all_lines(trace)
    assert unequal(lines, answers(tables, lines, header["config"]))[:3] == [], header["config"]


def options_of(trace: Path) -> Sequence[str] | None:
    """The settings of the broker that answered; None if its load or its start failed."""
    header = all_lines(trace)[0]
    if not header["loaded"] or header["started"] != "ok":
        return None
    texts = {name: str(value).lower() if isinstance(value, bool) else value for name, value in header["config"].items() if name != "bloom"}
    return [f"{name}={text}" for name, text in texts.items()]


@pytest.mark.parametrize("profile", ["ext", "extmix", "basic", "holes", "cleaned"])
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + ROUNDS))
def test_filters_give_what_the_broker_gives(profile: str, seed: int, tmp_path: Path) -> None:
    digits = random.Random(f"filters {profile} {seed}")
    store = generate(tmp_path / profile, profile, seed, digits.choice(PROFILES[profile]))
    plain = ask(store, tmp_path / "plain.jsonl", {}, seed=seed)
    tables, meta, log_end = tables_of(store), meta_of(store), all_lines(plain)[0]["maxPhyOffset"]
    check(tables, plain)
    for number in range(1, 4):
        config = {name: value for name, value in trace_config(digits, log_end).items() if name not in OF_THE_JOB}
        asked = thought_up(plain, meta, digits, 500)
        check(tables, ask(store, tmp_path / f"{number}.jsonl", config, requests=asked, seed=seed + number))


@pytest.mark.parametrize("profile", ["ext", "extmix"])
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + ROUNDS))
def test_a_damaged_extension_is_started_and_answers_as_the_brokers(profile: str, seed: int, tmp_path: Path) -> None:
    digits = random.Random(f"damages {profile} {seed}")
    store = generate(tmp_path / profile, profile, seed, digits.choice(PROFILES[profile]))
    plain, meta = ask(store, tmp_path / "plain.jsonl", {}, seed=seed), meta_of(store)
    started = 0
    for damage in digits.sample(DAMAGES, 5):
        oracle("damage", "--store", store, "--variant", damage, "--seed", str(seed), "--out", tmp_path / damage)
        trace = ask(tmp_path / damage, tmp_path / f"{damage}.jsonl", {}, requests=thought_up(plain, meta, digits, 200), seed=seed)
        options = options_of(trace)
        if options is not None:
            check(tables_of(tmp_path / damage, options), trace)
            started += 1
    assert started
