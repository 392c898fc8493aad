"""Recovers damaged copies of a store by the real broker and here, and compares every byte of every file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from pipeline.settings.settings import BrokerSettings
from pipeline.store.recover import run_recover
from store_format.errors import StoreError
from tests.makers.mutated_stores import mutated_store
from tests.truth.golden5 import without_own_files
from tests.truth.recovering import RecoveringBroker


def recovered(store: Path, config: dict[str, Any], version: str) -> dict[str, Any] | str:
    """What `recover` tells by the rules of a version, without the files of pullsim's own; or its error."""
    settings = BrokerSettings.from_sources(header={"rulesVersion": version} | config)
    try:
        return without_own_files(json.loads(json.dumps(run_recover(str(store), settings=settings))))
    except StoreError as error:
        return str(error)


def check_recoveries(whole: Path, folder: Path, version: str, seeds: range) -> None:
    """Check a copy for each seed; the broker has to start with nine of ten."""
    classes = folder / "classes"
    classes.mkdir()
    differ, compared = [], 0
    with RecoveringBroker(classes, version) as broker:
        for seed in seeds:
            store = folder / f"store-{seed}"
            mutations = mutated_store(whole, store, seed)
            recorded = broker.recovered(store)
            if recorded is not None:
                compared += 1
                if recovered(store, recorded["config"], version) != without_own_files(recorded):
                    differ.append((seed, mutations))
            shutil.rmtree(store)
            store.with_name(f"{store.name}.meta.json").unlink()
    assert differ == []
    assert compared > len(seeds) * 0.9
