"""Stores with mutated bytes, recovered by the real broker and here: the same, to the last byte of every file.

PULLSIM_MUTATED is the number of stores of each profile and version, 100 by default; PULLSIM_SEED is the first seed.
Run it on a quiet machine: a broker whose start takes longer than START_LIMIT counts as one whose start never ends, and differs then.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from pipeline.settings.settings import BrokerSettings
from pipeline.store.recover import run_recover
from store_format.errors import StoreError
from tests.makers.mutated_stores import mutated_store
from tests.truth.golden5 import without_own_files
from tests.truth.oracle import needs_oracle, oracle
from tests.truth.recovering import RecoveringBroker

pytestmark = needs_oracle()
STORES = int(os.environ.get("PULLSIM_MUTATED", "100"))
SEED = int(os.environ.get("PULLSIM_SEED", "0")) or random.SystemRandom().randrange(2**31)
# profile -> number of messages
PROFILES = {"small": 60, "ext": 60, "cleaned": 300, "lmq": 80, "preblank0": 100, "extmix": 90}
CASES = [(version, profile) for version in ("4.9.3", "4.9.8", "5.5.0") for profile in PROFILES]


def recovered(store: Path, config: dict[str, Any], version: str) -> dict[str, Any] | str:
    settings = BrokerSettings.from_sources(header={"rulesVersion": version} | config)
    try:
        told: dict[str, Any] = json.loads(json.dumps(run_recover(str(store), settings=settings)))
    except StoreError as error:
        return str(error)
    return told


@pytest.mark.parametrize(("version", "profile"), CASES)
def test_a_mutated_store_recovers_as_in_the_broker(tmp_path: Path, version: str, profile: str) -> None:
    whole, count = tmp_path / "whole", str(PROFILES[profile])
    oracle("generate", "--profile", profile, "--seed", str(SEED % 1000), "--n", count, "--out", whole, version=version)
    classes = tmp_path / "classes"
    classes.mkdir()
    differ, compared = [], 0
    with RecoveringBroker(classes, version) as broker:
        for seed in range(SEED, SEED + STORES):
            store = tmp_path / f"store-{seed}"
            mutations = mutated_store(whole, store, seed)
            recorded = broker.recovered(store)
            if recorded is not None:
                compared += 1
                ours = recovered(store, recorded["config"], version)
                if isinstance(ours, str) or without_own_files(ours) != without_own_files(recorded):
                    differ.append((seed, mutations))
            shutil.rmtree(store)
            store.with_name(f"{store.name}.meta.json").unlink()
    assert differ == []
    assert compared > STORES * 0.9
