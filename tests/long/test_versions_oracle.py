"""The real 4.9.8 and 5.5.0 answer pulls that no recorded answer covers, on stores that they wrote. Our answers are made without Spark.

PULLSIM_ORACLE_ROUNDS is the number of stores of each profile (default 1), PULLSIM_ORACLE_SEED the seed of the first ones (default 0).
With PULLSIM_ORACLE_COUNTS=FILE each store adds a line to a file: version, profile, seed, answers compared.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from tests.models.without_spark import answers, tables_of, unequal
from tests.runs.replaying import all_lines
from tests.truth.golden import meta_of
from tests.truth.golden5 import VERSIONS
from tests.truth.oracle import PROFILES, ask, generate, needs_oracle, thought_up, trace_config

pytestmark = needs_oracle()
ROUNDS = int(os.environ.get("PULLSIM_ORACLE_ROUNDS", "1"))
FIRST_SEED = int(os.environ.get("PULLSIM_ORACLE_SEED", "0"))
COUNTS = os.environ.get("PULLSIM_ORACLE_COUNTS")
TRACES = 5
ASKED = 2000
# whether a pull of a light message queue is answered depends on earlier pulls, which only a replay as a job knows
OF_THE_JOB = ("enableLmq", "enableMultiDispatch", "maxLmqConsumeQueueNum", "readable")
# a broker 5.5.0 does not limit the number of light queues
LIGHT = {"enableLmq": True, "enableMultiDispatch": True, "maxLmqConsumeQueueNum": 0}
LATER = {"maxFilterMessageSize": (16, 333, 1600, 40_000), "travelCqFileNumWhenGetMessage": (2, 5)}


def config_of(version: str, digits: random.Random, log_end: int) -> dict[str, Any]:
    """Random settings of a version."""
    config = {name: value for name, value in trace_config(digits, log_end).items() if name not in OF_THE_JOB}
    if version != "5.5.0":
        return config
    return config | LIGHT | {name: digits.choice(values) for name, values in LATER.items() if digits.random() < 0.3}


def compared(store: Path, trace: Path) -> int:
    """Check that all answers of a trace are ours too; returns their number."""
    header, *lines = all_lines(trace)
    config = header["config"] | {"rulesVersion": header["version"]}
    given = [f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in config.items() if name != "bloom"]
    assert unequal(lines, answers(tables_of(store, given), lines, config))[:3] == [], header["config"]
    return len(lines)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("profile", [name for name in PROFILES if name != "delayreal"])
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + ROUNDS))
def test_each_version_answers_new_pulls_as_we_do(version: str, profile: str, seed: int, tmp_path: Path) -> None:
    digits = random.Random(f"{version} {profile} {seed}")
    store = generate(tmp_path / profile, profile, seed, digits.choice(PROFILES[profile]), version=version)
    plain = ask(store, tmp_path / "plain.jsonl", {}, seed=seed, version=version)
    header = all_lines(plain)[0]
    if not header["loaded"] or header["started"] != "ok":
        pytest.skip("the broker does not start the store")
    count = compared(store, plain)
    for number in range(1, TRACES):
        asked = thought_up(plain, meta_of(store), digits, ASKED)
        config = config_of(version, digits, header["maxPhyOffset"])
        trace = ask(store, tmp_path / f"{number}.jsonl", config, requests=asked, seed=seed + number, version=version)
        count += compared(store, trace)
    if COUNTS is not None:
        with Path(COUNTS).open("a", encoding="utf-8") as counts:
            counts.write(f"{version} {profile} {seed} {count}\n")
