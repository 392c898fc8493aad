"""A private folder for each run's temporary files of Spark, such as those of shuffles.

Spark makes its temporary folders readable by all users, and a killed run leaves them. Here, each run has a folder inside a folder that only
its user can enter. A run locks its folder until it ends; the next run removes folders that are not locked.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import uuid
from pathlib import Path

_LOCK = "lock"
_UNLOCKED = ".new"


def scratch_folder() -> str:
    """A new folder that only this user can read, removed when the process ends."""
    root = _root()
    for left in root.iterdir():
        _remove_if_dead(left)
    folder = root / uuid.uuid4().hex
    unlocked = folder.with_suffix(_UNLOCKED)  # no other run removes a folder of this name
    unlocked.mkdir(mode=0o700)
    lock = os.open(unlocked / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)  # held until the process ends
    fcntl.flock(lock, fcntl.LOCK_EX)
    unlocked.rename(folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return str(folder)


def _root() -> Path:
    """The folder of this user's runs; a new folder if another user owns or can enter the usual one."""
    root = Path(tempfile.gettempdir()) / f"pullsim-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        root.mkdir(mode=0o700)
    found = root.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077:
        return root
    return Path(tempfile.mkdtemp(prefix="pullsim-"))


def _remove_if_dead(folder: Path) -> None:
    """Remove the folder of a run that has ended; the folder of a run that has just begun has no lock yet, and stays."""
    if folder.suffix == _UNLOCKED:
        return
    with contextlib.suppress(OSError):
        lock = os.open(folder / _LOCK, os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while the run lives
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
