"""Every parser of bytes fuzzed, its compiled code checking bounds: for a time with damaged files, and for numbers of inputs.

PULLSIM_FUZZ_SECONDS is the time of each group of targets, 600 by default. PULLSIM_FUZZ_INPUTS is the number of inputs of each parser, to
which coverage leads, 100,000 by default. PULLSIM_FUZZ_DAMAGED is the number of inputs that are made of those by damage, without a look at
coverage: several times as many in the same time. PULLSIM_SEED is the seed. Inputs that reached new code are kept in the folder
PULLSIM_FUZZ_FOLDER, by default `.fuzz` of the checkout. What fails becomes a test of its parser.
"""

from __future__ import annotations

import importlib.util
import json
import lzma
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runs import fuzzing
from tests.runs.fuzz_targets import GROUPS, PARSERS
from tests.truth.places import PROJECT

SECONDS = int(os.environ.get("PULLSIM_FUZZ_SECONDS", "600"))
INPUTS = int(os.environ.get("PULLSIM_FUZZ_INPUTS", "100000"))
DAMAGED = int(os.environ.get("PULLSIM_FUZZ_DAMAGED", "100000"))
SEED = int(os.environ.get("PULLSIM_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
FOLDER = Path(os.environ.get("PULLSIM_FUZZ_FOLDER", PROJECT / ".fuzz"))
# seconds for compiling with checks, and for one slow input
MORE_SECONDS = 300
# inputs of a process: atheris keeps up to 10 KiB of each
AT_ONCE = 200_000


@pytest.mark.parametrize("group", GROUPS)
def test_parsers_refuse_or_read_whatever_they_are_given(tmp_path: Path, group: str) -> None:
    checked = os.environ | {
        "NUMBA_BOUNDSCHECK": "1",
        "NUMBA_CACHE_DIR": str(tmp_path / "compiled"),
        "PYTHONPATH": str(PROJECT),
    }
    working_on = tmp_path / "working-on"
    command = [sys.executable, fuzzing.__file__, group, str(SEED), str(working_on), "--seconds", str(SECONDS)]
    try:
        run = subprocess.run(command, env=checked, capture_output=True, text=True, check=False, timeout=SECONDS + MORE_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.fail(f"seed {SEED}: no end with {working_on.read_bytes()!r}")
    assert inputs_without_fault(run, SEED, working_on) > 100


def inputs_without_fault(run: subprocess.CompletedProcess[str], seed: int, working_on: Path) -> int:
    """The number of inputs of a run of fuzzing.py that found no fault."""
    assert run.returncode == 0, f"seed {seed}: {run.stderr[-2000:]}, working on {working_on.read_bytes()!r}"
    told = json.loads(run.stdout)
    faults = [(fault["target"], fault["what"], lzma.decompress(bytes.fromhex(fault["raw"]))) for fault in told["faults"]]
    assert faults == [], f"seed {seed}"
    return int(told["inputs"])


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed: pip install 'pullsim[fuzz]'")
@pytest.mark.parametrize("parser", PARSERS)
def test_parsers_refuse_or_read_what_coverage_leads_to(parser: str, capsys: pytest.CaptureFixture[str]) -> None:
    checked = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(FOLDER / "compiled"), "PYTHONPATH": str(PROJECT)}
    done = 0
    for part, left in enumerate(range(INPUTS, 0, -AT_ONCE)):
        program, inputs = PROJECT / "tests" / "runs" / "guided_fuzzing.py", min(left, AT_ONCE)
        command: list[str | Path] = [sys.executable, program, parser, str(inputs), str(SEED + part), FOLDER / parser]
        run = subprocess.run(command, env=checked, capture_output=True, text=True, check=False)
        assert run.returncode == 0, f"seed {SEED}, part {part}: {run.stderr[-3000:]}"
        assert run.stdout == "", f"seed {SEED}, part {part}"
        done += int(re.findall(r"number_of_executed_units: (\d+)", run.stderr)[0])
        places = re.findall(r"cov: (\d+)", run.stderr)
        with capsys.disabled():
            print(f"{parser}: seed {SEED}, {done:,} inputs, {places[-1] if places else 'no'} places of the code reached")
    assert done >= INPUTS


@pytest.mark.parametrize("parser", PARSERS)
def test_parsers_refuse_or_read_what_damage_makes_of_kept_inputs(tmp_path: Path, parser: str, capsys: pytest.CaptureFixture[str]) -> None:
    if not (FOLDER / parser / "corpus").exists():
        pytest.skip(f"{FOLDER} has no inputs of {parser}: test_parsers_refuse_or_read_what_coverage_leads_to makes them")
    checked = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(FOLDER / "compiled"), "PYTHONPATH": str(PROJECT)}
    done, working_on = 0, tmp_path / "working-on"
    for part, left in enumerate(range(DAMAGED, 0, -AT_ONCE)):
        inputs = ["--inputs", str(min(left, AT_ONCE)), "--corpus", str(FOLDER / parser / "corpus")]
        command = [sys.executable, fuzzing.__file__, parser, str(SEED + part), str(working_on), *inputs]
        run = subprocess.run(command, env=checked, capture_output=True, text=True, check=False)
        done += inputs_without_fault(run, SEED + part, working_on)
        with capsys.disabled():
            print(f"{parser}: seed {SEED + part}, {done:,} inputs made by damage")
    assert done == DAMAGED
