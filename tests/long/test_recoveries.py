"""Damaged stores of seeds of our choice, recovered by the real broker and here: the same, to the last byte of every file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from oracle import needs_oracle, oracle

from pipeline.recover import run_recover
from pipeline.settings import BrokerSettings

pytestmark = needs_oracle()

ASKED = {
    ("small", "mappedFileSizeCommitLog=40003,mappedFileSizeConsumeQueue=333"): (
        "tail-garbage",
        "bad-size",
        "bad-crc",
        "cq-topic-missing-abort",
    ),
    ("small", ""): ("cq-all-missing", "checkpoint-missing", "zero-middle", "index-missing-abort", "hole-cq-missing"),
    ("ext", "mappedFileSizeConsumeQueueExt=700"): ("cq-behind-one", "index-short", "cq-file-missing"),
    ("lmq", "mappedFileSizeConsumeQueue=61"): ("cq-all-missing", "checkpoint-missing"),
    ("replica", ""): ("checkpoint-missing", "cq-behind"),
    ("delayreal", ""): ("checkpoint-missing", "cq-truncated-by-crash"),
}
CASES = [(*store, variant) for store, variants in ASKED.items() for variant in variants]


@pytest.mark.parametrize("seed", [31])
@pytest.mark.parametrize(("profile", "config", "variant"), CASES)
def test_a_damaged_store_recovers_as_in_the_broker(tmp_path: Path, profile: str, config: str, variant: str, seed: int) -> None:
    given = ["--config", config] if config else []
    oracle("generate", "--profile", profile, "--seed", str(seed), "--n", "400", "--out", tmp_path / "whole", *given)
    oracle("damage", "--store", tmp_path / "whole", "--variant", variant, "--seed", "3", "--out", tmp_path / "torn")
    oracle("recover", "--store", tmp_path / "torn", "--out", tmp_path / "recorded.json")
    recorded = json.loads((tmp_path / "recorded.json").read_text(encoding="utf-8"))
    settings = BrokerSettings.from_sources(header=recorded["config"])
    assert json.loads(json.dumps(run_recover(str(tmp_path / "torn"), settings=settings))) == recorded
