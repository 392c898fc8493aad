"""Small file systems, and what fills them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

BLOCK = 4096


@contextmanager
def disk_of(place: Path, *, mebibytes: int) -> Iterator[Path]:
    """A file system of so many MiB, mounted for the block; skips the test where none can be mounted."""
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", place], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)  # an engine may still have a file open


def taken(folder: Path) -> int:
    """Bytes that the files of a folder take on such a disk."""
    return sum(-(-path.stat().st_size // BLOCK) * BLOCK for path in folder.rglob("*") if path.is_file())


@contextmanager
def filled(disk: Path, *, left: int) -> Iterator[None]:
    """Leave so many bytes of a disk for the block."""
    filler = disk / "filler"
    found = os.statvfs(disk)
    filler.write_bytes(bytes(found.f_bavail * found.f_frsize - left))
    try:
        yield
    finally:
        filler.unlink()
