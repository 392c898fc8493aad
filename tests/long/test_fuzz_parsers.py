"""Every parser of bytes fuzzed for as long as PULLSIM_FUZZ_SECONDS says, ten minutes each by default, its compiled code checking bounds."""

from __future__ import annotations

import json
import lzma
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runs import fuzzing
from tests.runs.fuzz_targets import GROUPS
from tests.truth.places import PROJECT

SECONDS = int(os.environ.get("PULLSIM_FUZZ_SECONDS", "600"))
# compiling with checks, and an input that is slow
MORE_SECONDS = 300


@pytest.mark.parametrize("group", GROUPS)
def test_parsers_refuse_or_read_whatever_they_are_given(tmp_path: Path, group: str) -> None:
    seed = random.SystemRandom().randrange(2**32)
    checked = os.environ | {
        "NUMBA_BOUNDSCHECK": "1",
        "NUMBA_CACHE_DIR": str(tmp_path / "compiled"),
        "PYTHONPATH": str(PROJECT),
    }
    working_on = tmp_path / "working-on"
    command = [sys.executable, fuzzing.__file__, group, str(SECONDS), str(seed), str(working_on)]
    try:
        run = subprocess.run(command, env=checked, capture_output=True, text=True, check=False, timeout=SECONDS + MORE_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.fail(f"seed {seed}: no end with {working_on.read_bytes()!r}")
    assert run.returncode == 0, f"seed {seed}: {run.stderr[-2000:]}, working on {working_on.read_bytes()!r}"
    told = json.loads(run.stdout)
    faults = [(fault["target"], fault["what"], lzma.decompress(bytes.fromhex(fault["raw"]))) for fault in told["faults"]]
    assert faults == [], f"seed {seed}"
    assert told["inputs"] > 100
