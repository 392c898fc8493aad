"""Stores of every profile, whole and damaged, recovered by the real broker and here: the same, to the last byte of every file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.settings.settings import BrokerSettings
from pipeline.store.recover import run_recover
from tests.truth.oracle import needs_oracle, oracle

pytestmark = needs_oracle()

WHOLE = "as it is"
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
# the profiles that are missing above: as they are, and without checkpoint
ASKED |= {
    (profile, ""): (WHOLE, "checkpoint-missing") for profile in ("basic", "window", "cleaned", "holes", "preblank0", "preblank1", "extmix")
}
ASKED |= {(profile, "maxHashSlotNum=7"): (WHOLE,) for profile in ("small", "ext", "lmq", "replica", "delayreal")}
CASES = [(*store, variant) for store, variants in ASKED.items() for variant in variants]


@pytest.mark.parametrize("seed", [31])
@pytest.mark.parametrize(("profile", "config", "variant"), CASES)
def test_a_store_recovers_as_in_the_broker(tmp_path: Path, profile: str, config: str, variant: str, seed: int) -> None:
    given = ["--config", config] if config else []
    count = "3000" if profile == "holes" else "400"
    oracle("generate", "--profile", profile, "--seed", str(seed), "--n", count, "--out", tmp_path / "whole", *given)
    torn = tmp_path / "whole"
    if variant != WHOLE:
        torn = tmp_path / "torn"
        oracle("damage", "--store", tmp_path / "whole", "--variant", variant, "--seed", "3", "--out", torn)
    oracle("recover", "--store", torn, "--out", tmp_path / "recorded.json")
    recorded = json.loads((tmp_path / "recorded.json").read_text(encoding="utf-8"))
    settings = BrokerSettings.from_sources(header=recorded["config"])
    assert json.loads(json.dumps(run_recover(str(torn), settings=settings))) == recorded
