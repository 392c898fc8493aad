"""A few seconds of fuzzing with the same inputs each time, and inputs that once failed; tests/long fuzzes longer."""

from __future__ import annotations

import pytest

from tests.runs.fuzz_targets import TARGETS
from tests.runs.fuzzing import SEED, fault_of, rounds


@pytest.mark.parametrize("target", TARGETS)
def test_a_parser_stands_what_a_seeded_hand_makes_of_its_files(target: str) -> None:
    inputs = 40 if target == "store" else 150
    _, faults = rounds([target], SEED, lambda count: count < inputs)
    assert [(fault.what, fault.raw) for fault in faults] == []


# inputs that fuzzing found, on which a parser once failed
FOUND: list[tuple[str, bytes]] = []


@pytest.mark.parametrize(("target", "raw"), FOUND)
def test_what_fuzzing_found_stays_found(target: str, raw: bytes) -> None:
    assert fault_of(target, raw) is None
