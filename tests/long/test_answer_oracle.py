"""Runs new, made-up scenarios on the real broker and on ours, and compares the results.

PULLSIM_ORACLE_ROUNDS multiplies the number of scenarios (default 1), PULLSIM_ORACLE_SEED is the seed of the first ones (default 0).
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from store_format.broker_version import BrokerVersion
from tests.makers.changed_settings import changed_setting, changes
from tests.makers.made_scenarios import BASES, checks, holds, others
from tests.makers.made_scenarios import answered as without_the_unanswered
from tests.runs.scenario_answers import answered_together, compared
from tests.truth.oracle import harness, needs_oracle

pytestmark = needs_oracle()
ROUNDS = int(os.environ.get("PULLSIM_ORACLE_ROUNDS", "1"))
FIRST_SEED = int(os.environ.get("PULLSIM_ORACLE_SEED", "0"))
# the real broker's clock runs, ours stands still: times are compared in the recorded scenarios instead
TIMES = ("timing", "heldSeconds")
# ids that a broker 5.5.0 makes of its address and the time
IDS = ("UNIQ_KEY",)


IN_VERSIONS = [(base, version) for version in ("4.9.3", "4.9.8", "5.5.0") for base in BASES]


def ask_the_broker(cases: list[dict[str, Any]], folder: Path, version: str, *, fails: bool = False) -> list[dict[str, Any]]:
    """The scenarios with the broker's results; `fails` tells that it cannot run some of them, which then have an oracleError."""
    (folder / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases), "utf-8")
    command: list[str | Path] = [harness(), "broker", "--cases", folder / "cases.jsonl", "--out", folder / "out.jsonl"]
    subprocess.run(command, check=not fails, capture_output=True, timeout=3600, env=os.environ | {"ORACLE_VERSION": version})
    return [json.loads(line) for line in (folder / "out.jsonl").read_text("utf-8").splitlines()]


def check(cases: list[dict[str, Any]], folder: Path, version: str) -> None:
    compare(ask_the_broker(cases, folder, version), version)


def compare(recorded: list[dict[str, Any]], version: str) -> None:
    told = answered_together(recorded, BrokerVersion(version))
    differing = {old["name"]: found for old, new in zip(recorded, told, strict=True) if (found := compared(old, new, TIMES + IDS))}
    assert differing == {}


@pytest.mark.parametrize(("base", "version"), IN_VERSIONS)
def test_scenarios_without_waits(base: str, version: str, tmp_path: Path) -> None:
    seeds = range(FIRST_SEED, FIRST_SEED + 50 * ROUNDS)
    check([checks(f"C{seed}{base}x", base, seed) for seed in seeds], tmp_path, version)


@pytest.mark.parametrize(("base", "version"), [one for one in IN_VERSIONS if one[0] != "D"])
def test_scenarios_of_held_pulls(base: str, version: str, tmp_path: Path) -> None:
    made = [holds(f"H{seed}{base}x", base, seed) for seed in range(FIRST_SEED, FIRST_SEED + 20 * ROUNDS)]
    told = answered_together(made, BrokerVersion(version))
    check([without_the_unanswered(case, ours["steps"]) for case, ours in zip(made, told, strict=True)], tmp_path, version)


@pytest.mark.parametrize(("base", "version"), IN_VERSIONS)
def test_scenarios_of_what_is_rarer(base: str, version: str, tmp_path: Path) -> None:
    check([others(f"O{seed}{base}x", base, seed) for seed in range(FIRST_SEED, FIRST_SEED + 20 * ROUNDS)], tmp_path, version)


@pytest.mark.parametrize("version", ["4.9.3", "4.9.8", "5.5.0"])
def test_each_setting_changed_while_the_broker_runs(version: str, tmp_path: Path) -> None:
    """Most settings of later versions may be those of the store or of the broker: both are tried, and one is refused."""
    found = changes(BrokerVersion(version))
    random.Random(FIRST_SEED).shuffle(found)
    asked = list(enumerate(product(found[: 40 * ROUNDS], ("storeConfig", "brokerConfig"))))
    recorded = ask_the_broker([changed_setting(number, op, *change) for number, (change, op) in asked], tmp_path, version, fails=True)
    answered = [one for one in recorded if "has no field" not in one.get("oracleError", "")]
    assert [one["name"] for one in answered if "oracleError" in one] == []
    assert len(answered) > len(recorded) / 3
    compare(answered, version)
