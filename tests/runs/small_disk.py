"""Mounts small file systems, and fills them."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

BLOCK = 4096


@contextmanager
def disk_of(place: Path, *, mebibytes: int) -> Iterator[Path]:
    """A file system of some MiB, mounted for the block. It skips the calling test if mounting is not possible."""
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", place], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)  # an engine may still have a file open


def taken(folder: Path) -> int:
    """The bytes that the files of a folder take on the small disk."""
    return sum(-(-path.stat().st_size // BLOCK) * BLOCK for path in folder.rglob("*") if path.is_file())


def room(disk: Path) -> int:
    """The bytes that a disk has room for."""
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize


@contextmanager
def filled(disk: Path, *, left: int) -> Iterator[None]:
    """Fill a disk for the block, except for some bytes."""
    filler = disk / "filler"
    filler.write_bytes(bytes(room(disk) - left))
    try:
        yield
    finally:
        filler.unlink()


_REFILL_SECONDS = 0.02


@contextmanager
def kept_full(disk: Path) -> Iterator[None]:
    """Fill a disk for the block, and fill again whatever room others make there."""
    over = threading.Event()

    def fill() -> None:
        with (disk / "filler").open("ab", buffering=0) as filler:
            while not over.wait(_REFILL_SECONDS):
                with suppress(OSError):  # others may be quicker
                    filler.write(bytes(room(disk)))

    filling = threading.Thread(target=fill)
    filling.start()
    try:
        yield
    finally:
        over.set()
        filling.join()
        (disk / "filler").unlink()
