"""What must hold for every simulated run, checked with PULLSIM_SIMULATED_SEEDS seeds, 10,000 by default."""

from __future__ import annotations

import os

import pytest

from tests.models.simulated_events import finite_plan, run_of
from tests.models.simulation_faults import faults_of

SEEDS = int(os.environ.get("PULLSIM_SIMULATED_SEEDS", "10000"))
TOGETHER = 100


@pytest.mark.parametrize("first", range(0, SEEDS, TOGETHER))
def test_simulated_runs_keep_what_was_promised(first: int) -> None:
    wrong = {seed: faults for seed in range(first, min(first + TOGETHER, SEEDS)) if (faults := faults_of(run_of(finite_plan(seed))))}
    assert wrong == {}
