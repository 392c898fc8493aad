"""SQL92 expressions made for this run, compiled and evaluated by the real broker's classes and by ours."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.makers.sql92_expressions import ExpressionMaker
from tests.truth.oracle import harness, needs_oracle
from tests.truth.sql92_answers import differences

pytestmark = needs_oracle()


@pytest.mark.parametrize("seed", [20261, 20262])
def test_expressions_are_answered_as_by_the_broker_now(seed: int, tmp_path: Path) -> None:
    maker = ExpressionMaker(seed)
    cases, out = tmp_path / "cases.jsonl", tmp_path / "out.jsonl"
    cases.write_text("".join(json.dumps(maker.case()) + "\n" for _ in range(1500)), encoding="utf-8")
    subprocess.run([harness(), "sql92", "--cases", cases, "--out", out], check=True, capture_output=True, timeout=240)
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert differences(rows) == []
    assert 300 < sum(row["compile"]["ok"] for row in rows) < 1200
