"""Files on which targets of fuzzing work: each in a temporary folder of its own, made once in a process."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from tests.truth.golden import unpack_small


@cache
def small_store() -> Path:
    """The store beside the tests."""
    return unpack_small(_folder())


@cache
def place(name: str) -> Path:
    """The path of a file or folder with a name."""
    return _folder() / name


def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="fuzz-"))
