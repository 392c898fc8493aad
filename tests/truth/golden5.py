"""Reads what brokers 4.9.8 and 5.5.0 answered: the archives of the shared folder golden5. Nothing here computes an expected value.

The tests that read these files, under tests/pipeline unless another folder is named. `./run test` takes a sample if there are many files,
`./run long` takes all:

- traces of on-4.9.3-stores, answers and live: replay/test_rule_profiles, importing/test_import_of_5; differences by rule: upgrade
- recoveries: store/test_recover_by_queues; both versions: upgrade/test_started_files
- loads by 4.9.3 and 5.5.0: store/test_golden_loads
- look-ups: store/test_lookup_by_boundary
- broker/pull_codes: scenarios/test_scenarios, scenarios/test_answer; broker/sql92: tests/udfs/filters/test_sql92.py
- stores: verify/test_verify, export/test_export, store/test_told_rules
- config of live: tests/store_format/config
- broker.json, sent and popped of live: importing/test_import_of_5, listings/test_operator_commands
- timer files of live: tests/store_format/timer
"""

from __future__ import annotations

import json
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pipeline.files.unpacking import unpack
from tests.truth.places import SHARED

GOLDEN5 = SHARED / "golden5"
VERSIONS = ("4.9.8", "5.5.0")
# the archive of the broker that had clients, and the name of its store
LIVE = "live"
_LIVE = [(LIVE, LIVE)] if GOLDEN5.is_dir() else []
LOADED = ("basic", "cleaned", "ext", "lmq", "preblank0", "replica", "small", "window", LIVE)
OWN_FILES = ("rocksdbstore/", "compaction/", "abort.bak", "lock")

needs_golden5 = pytest.mark.skipif(not GOLDEN5.is_dir(), reason="the shared data of later versions is not here")


@cache
def unpacked(archive: str) -> Path:
    """The folder with the content of an archive of golden5, unpacked once a run, and removed when the process ends."""
    folder = _folder(archive)
    with tarfile.open(GOLDEN5 / f"{archive}.tar.xz") as packed:
        unpack(packed, Path(folder.name))
    return Path(folder.name)


@cache
def _folder(archive: str) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix=f"{archive}-")


def trace_names(version: str) -> tuple[str, ...]:
    """The names of the traces that a version answered on the golden stores of 4.9.3, for parametrize; none if the data is missing."""
    return _names("on-4.9.3-stores", version, "traces")


def own_traces() -> tuple[str, ...]:
    """The names of the traces on stores that 5.5.0 wrote, for parametrize."""
    return _names("answers", "traces")


def recoveries() -> list[tuple[str, str]]:
    """(archive, name) of each recovery by 5.5.0, of golden stores of 4.9.3 and of stores of 5.5.0, for parametrize."""
    archives = (("on-4.9.3-stores", ("5.5.0", "recover")), ("answers", ("recover",)))
    return [(archive, name) for archive, folder in archives for name in _names(archive, *folder)] + _LIVE


def lookups() -> list[tuple[str, str]]:
    """(archive, name) of each file of look-ups answered by 5.5.0, for parametrize."""
    archives = (("on-4.9.3-stores", ("5.5.0", "lookup")), ("answers", ("lookup",)))
    return [(archive, name) for archive, folder in archives for name in _names(archive, *folder)] + _LIVE


def lookup(archive: str, name: str) -> Path:
    """The path of a file of look-ups answered by 5.5.0."""
    if archive == LIVE:
        return unpacked(LIVE) / LIVE / "lookup-5.5.0.jsonl"
    folder = "lookup" if archive == "answers" else f"{archive}/5.5.0/lookup"
    return unpacked(archive) / folder / f"{name}.jsonl"


def recovery(archive: str, name: str) -> dict[str, Any]:
    """A recovery by 5.5.0."""
    folder = "recover" if archive == "answers" else f"{archive}/5.5.0/recover"
    path = unpacked(LIVE) / LIVE / "recover-5.5.0.json" if archive == LIVE else unpacked(archive) / folder / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def load_of(name: str, version: str) -> dict[str, Any]:
    """The recorded load, start and shutdown by `version` of a store that 5.5.0 wrote."""
    path = unpacked(LIVE) / LIVE / f"load-{version}.json" if name == LIVE else unpacked("answers") / "load" / f"{name}-{version}.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


@cache
def _names(archive: str, *folder: str) -> tuple[str, ...]:
    if not GOLDEN5.is_dir():
        return ()
    with tarfile.open(GOLDEN5 / f"{archive}.tar.xz") as packed:
        paths = [Path(name) for name in packed.getnames()]
    found = tuple(sorted(path.stem for path in paths if path.suffix and path.parts[-1 - len(folder) : -1] == folder))
    assert found, f"{archive} has no {'/'.join(folder)}: tests of each would be left out"
    return found


def stores_that_load() -> list[str]:
    """The names of the stores that 5.5.0 wrote and loads; `live` is the store of the broker with clients. None if the data is missing."""
    names = [name for archive, name in recoveries() if archive == "answers" and name != "torn-cq-wrong-size"]
    return [*names, "live"] if GOLDEN5.is_dir() else []


def store_of(name: str) -> Path:
    """The directory of a store that 5.5.0 wrote, its file times kept."""
    return unpacked("live") / "live" / "store" if name == "live" else unpacked("stores") / "stores" / name


def trace(version: str, name: str) -> Path:
    """The path of a trace on a golden store of 4.9.3."""
    return unpacked("on-4.9.3-stores") / "on-4.9.3-stores" / version / "traces" / f"{name}.jsonl"


def without_own_files(recovered: dict[str, Any]) -> dict[str, Any]:
    """A recovery without the files of OWN_FILES, which mean nothing to a pull and differ from run to run."""
    kept = dict(recovered)
    for state in ("before", "afterShutdown"):
        if kept.get(state):
            kept[state] = kept[state] | {"files": [file for file in kept[state]["files"] if not file["path"].startswith(OWN_FILES)]}
    return kept
