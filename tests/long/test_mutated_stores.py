"""Stores with mutated bytes, recovered by the real broker and here: the same, to the last byte of every file.

PULLSIM_MUTATED is the number of stores of each profile and version, 100 by default; PULLSIM_SEED is the first seed.
Run it on a quiet machine: a broker whose start takes longer than START_LIMIT counts as one whose start never ends, and differs then.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.runs.mutated_recoveries import check_recoveries
from tests.truth.oracle import needs_oracle, oracle

pytestmark = needs_oracle()
STORES = int(os.environ.get("PULLSIM_MUTATED", "100"))
SEED = int(os.environ.get("PULLSIM_SEED", "0")) or random.SystemRandom().randrange(2**31)
# profile -> number of messages
PROFILES = {"small": 60, "ext": 60, "cleaned": 300, "lmq": 80, "preblank0": 100, "extmix": 90}
CASES = [(version, profile) for version in ("4.9.3", "4.9.8", "5.5.0") for profile in PROFILES]


@pytest.mark.parametrize(("version", "profile"), CASES)
def test_a_mutated_store_recovers_as_in_the_broker(tmp_path: Path, version: str, profile: str) -> None:
    whole, count = tmp_path / "whole", str(PROFILES[profile])
    oracle("generate", "--profile", profile, "--seed", str(SEED % 1000), "--n", count, "--out", whole, version=version)
    check_recoveries(whole, tmp_path, version, range(SEED, SEED + STORES))
