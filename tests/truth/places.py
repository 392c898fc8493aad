"""Paths: of the project and its files, the data beside the tests, and the shared golden data."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
TESTS = PROJECT / "tests"
DATA = TESTS / "data"
# missing if only the project was cloned
SHARED = PROJECT.parent / "shared"
GOLDEN = SHARED / "golden"


@cache
def tracked() -> tuple[Path, ...]:
    """The files of the project, sorted: files that git tracks or would add; without git, all files that are not hidden."""
    git = ["git", "-C", str(PROJECT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(git, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        return tuple(sorted(PROJECT / name for name in listed.stdout.split("\0") if name and (PROJECT / name).is_file()))
    found = (path for path in PROJECT.rglob("*") if path.is_file())
    return tuple(sorted(path for path in found if not any(part.startswith((".", "__")) for part in path.relative_to(PROJECT).parts[:-1])))
