"""Compares two store directories file by file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

# path below the store -> time in ms and bytes, None for an empty folder
Tree = dict[str, tuple[int, bytes] | None]


def tree(store: Path) -> Tree:
    found: Tree = {}
    for path in store.rglob("*"):
        if path.is_file():
            found[str(path.relative_to(store))] = (path.stat().st_mtime_ns // 1_000_000, path.read_bytes())
        elif not any(path.iterdir()):
            found[str(path.relative_to(store))] = None
    return found


def differing(found: Mapping[str, object], expected: Mapping[str, object]) -> list[str]:
    """The names of the files that differ: names rather than bytes, so that a failed assertion can be read."""
    return sorted(name for name in found.keys() | expected.keys() if found.get(name, "none") != expected.get(name, "none"))
