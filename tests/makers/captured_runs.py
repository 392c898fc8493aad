"""Runs `pullsim capture` on a store with topics."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.makers.recorded_pulls import recorded
from tests.runs.replaying import demo_data

STORE, TRACE = "cleaned", "cleaned-default.jsonl"


def store_with_topics(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store with a file of topics, and recorded pulls from it."""
    data = demo_data(tmp_path_factory)
    store = tmp_path_factory.mktemp("answered") / STORE
    shutil.copytree(data / STORE, store)
    topics = {line["request"]["topic"] for line in recorded(data / TRACE)}
    table = {name: {"topicName": name, "readQueueNums": 1024, "writeQueueNums": 1024, "perm": 6} for name in topics}
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}), "utf-8")
    return store, data / TRACE


def ok(result: tuple[int, str, str]) -> str:
    code, out, err = result
    assert code == 0, err
    return out
