"""Unpacks and reads data of the real broker: the shared golden data, if it is there, and the small store beside the tests.

Nothing here computes an expected value.
"""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pipeline.files.unpacking import unpack
from tests.truth.places import DATA, GOLDEN, SHARED

BESIDE = DATA / "stores"
SMALL = "small"
MISSING = "the shared golden data is not here"


def shared_dir() -> Path | None:
    """The folder that holds `golden`, or None if the clone has no shared data beside it."""
    return SHARED if GOLDEN.is_dir() else None


needs_golden = pytest.mark.skipif(shared_dir() is None, reason=MISSING)


def golden(*parts: str) -> Path:
    """The path of a file of the golden data. Without golden data it skips the calling test."""
    shared = shared_dir()
    if shared is None:
        pytest.skip(MISSING)
    return shared.joinpath("golden", *parts)


def golden_lines(*parts: str) -> Iterator[dict[str, Any]]:
    """The lines of a .jsonl file of the golden data, at least one."""
    path = golden(*parts)
    assert path.stat().st_size, f"{path}: a test that compares each line would compare nothing"
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def names(folder: str, pattern: str) -> list[str]:
    """The names, without ending, of the files in a folder of golden/store, for parametrize; none if the data is missing."""
    shared = shared_dir()
    if shared is None:
        return []
    found = sorted(path.stem for path in shared.joinpath("golden", "store", folder).glob(pattern))
    assert found, f"golden/store/{folder} has no {pattern}: tests of each would be left out"
    return found


@cache
def recovery(name: str) -> dict[str, Any]:
    """The recorded recovery of a store by the broker: one file of golden/store/recover."""
    recorded: dict[str, Any] = json.loads(golden("store", "recover", f"{name}.json").read_text(encoding="utf-8"))
    return recorded


def clean_recoveries() -> list[str]:
    """Names of the recoveries of stores without an abort file."""
    return [name for name in names("recover", "*.json") if not recovery(name)["before"]["abort"]]


def unpack_stores(tmp: Path) -> Path:
    """Unpack every golden store below `tmp`; returns the folder that has NAME and NAME.meta.json of each store."""
    _unpack(golden("store", "stores.tar.xz"), tmp)
    for meta in (tmp / "stores").glob("*.meta.json"):
        _set_times(meta)
    return tmp / "stores"


def unpack_small(tmp: Path) -> Path:
    """Unpack the store beside the tests; returns its directory, with NAME.meta.json beside it."""
    _unpack(BESIDE / f"{SMALL}.tar.xz", tmp)
    meta = tmp / f"{SMALL}.meta.json"
    meta.write_bytes((BESIDE / meta.name).read_bytes())
    _set_times(meta)
    return tmp / SMALL


def meta_of(store: Path) -> dict[str, Any]:
    """The content of a store's NAME.meta.json."""
    notes: dict[str, Any] = json.loads(store.with_name(f"{store.name}.meta.json").read_text(encoding="utf-8"))
    return notes


def _unpack(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as packed:
        unpack(packed, folder)


def _set_times(meta: Path) -> None:
    """Set the files' times, to the millisecond: look-ups by time read them."""
    store = meta.with_name(meta.name.removesuffix(".meta.json"))
    for name, mtime_ms in meta_of(store)["mtimesMs"].items():
        if (store / name).exists():
            os.utime(store / name, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))
