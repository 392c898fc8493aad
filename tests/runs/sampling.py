"""Chooses among slow cases: all of them if PULLSIM_LONG is set (`./run long` sets it), else a seeded sample."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import TypeVar

import pytest

Case = TypeVar("Case")
SEED = 20261
ALL = bool(os.environ.get("PULLSIM_LONG"))
slow_proof = pytest.mark.skipif(not ALL, reason="a slow proof: ./run long has it")


def sampled(cases: Iterable[Case], count: int) -> list[Case]:
    """The cases to run, in their order."""
    found = list(cases)
    chosen = range(len(found)) if ALL else sorted(random.Random(SEED).sample(range(len(found)), min(count, len(found))))
    return [found[i] for i in chosen]


def examples(count: int) -> int:
    """The number of generated examples of a costly property: all of them if PULLSIM_LONG is set, else a quarter."""
    return count if ALL else count // 4
