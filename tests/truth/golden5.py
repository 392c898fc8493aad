"""Reads what brokers 4.9.8 and 5.5.0 answered: the archives of the shared folder golden5. Nothing here computes an expected value."""

from __future__ import annotations

import tarfile
import tempfile
from functools import cache
from pathlib import Path

import pytest

from pipeline.files.unpacking import unpack
from tests.truth.places import SHARED

GOLDEN5 = SHARED / "golden5"
VERSIONS = ("4.9.8", "5.5.0")

needs_golden5 = pytest.mark.skipif(not GOLDEN5.is_dir(), reason="the shared data of later versions is not here")


@cache
def unpacked(archive: str) -> Path:
    """The folder with the content of an archive of golden5, unpacked once a run; it goes with the process."""
    folder = _folder(archive)
    with tarfile.open(GOLDEN5 / f"{archive}.tar.xz") as packed:
        unpack(packed, Path(folder.name))
    return Path(folder.name)


@cache
def _folder(archive: str) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix=f"{archive}-")


@cache
def trace_names(version: str) -> tuple[str, ...]:
    """The names of the traces that a version answered on the golden stores of 4.9.3, for parametrize; none if the data is missing."""
    if not GOLDEN5.is_dir():
        return ()
    with tarfile.open(GOLDEN5 / "on-4.9.3-stores.tar.xz") as packed:
        paths = [Path(name) for name in packed.getnames()]
    return tuple(sorted(path.stem for path in paths if path.suffix == ".jsonl" and path.parts[-3:-1] == (version, "traces")))


def trace(version: str, name: str) -> Path:
    """The path of a trace on a golden store of 4.9.3."""
    return unpacked("on-4.9.3-stores") / "on-4.9.3-stores" / version / "traces" / f"{name}.jsonl"
