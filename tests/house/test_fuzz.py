"""A few seconds of fuzzing with the same inputs each time; tests/long fuzzes longer. An input that fails becomes a test of its parser."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numba
import pytest
from numba.core import event, extending

from tests.runs.fuzz_targets import TARGETS, Target
from tests.runs.fuzzing import SEED, fault_of, kept_inputs, rounds


@pytest.mark.parametrize("target", TARGETS)
def test_a_parser_stands_what_a_seeded_hand_makes_of_its_files(target: str) -> None:
    inputs = 40 if target == "store" else 150
    _, faults = rounds([target], SEED, lambda count: count < inputs)
    assert [(fault.what, fault.raw) for fault in faults] == []


def test_kept_inputs_are_damaged_in_place_of_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: dict[str, set[bytes]] = {"a": set(), "b": set()}
    for name, inputs in used.items():
        monkeypatch.setitem(TARGETS, name, Target(lambda: [b"seed"], inputs.add))
    for number, raw in enumerate([b"\0short", b"\2" + b"long" * 50, b"\2of a", b"\1" + b"of b" * 50]):
        (tmp_path / str(number)).write_bytes(raw)
    kept = kept_inputs(["a", "b"], tmp_path)
    assert kept == {"a": [b"of a", b"short"], "b": [b"of b" * 50]}, "the longest of a is left out"
    rounds(["a", "b"], SEED, lambda count: count < 60, kept=kept)
    assert used["a"] >= {b"of a", b"short"}, "an input of seven is not damaged"
    assert b"of b" * 50 in used["b"]
    assert not any(b"seed" in raw for raw in used["a"] | used["b"])


def slow_to_compile() -> int:
    """Stands for a function of a kernel; `overload` below gives its compiled form."""
    raise NotImplementedError


def test_the_time_of_the_compiler_makes_no_input_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    @extending.overload(slow_to_compile)
    def _() -> object:
        clock[0] += 100
        return lambda: 1

    def kernel() -> int:
        return slow_to_compile()

    compiled: Any = numba.njit(kernel)

    def use(raw: bytes) -> None:
        assert compiled() == 1
        clock[0] += raw[0]

    monkeypatch.setattr(time, "process_time", lambda: clock[0])
    monkeypatch.setattr(event, "timer", lambda: clock[0])
    monkeypatch.setitem(TARGETS, "slow", Target(lambda: [b""], use))
    assert fault_of("slow", b"\x04", longest=5) is None
    assert clock[0] >= 104, "the kernel was compiled"
    fault = fault_of("slow", b"\x06", longest=5)
    assert fault is not None
    assert (fault.what, fault.kind) == ("took 6.0 s", "slow: took")
