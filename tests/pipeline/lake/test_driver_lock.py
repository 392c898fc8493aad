"""One process at a time writes to a lake on S3; in place of S3 stands an object store in memory, with the same conditions of a PUT."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import LocalStore, MemoryStore

from pipeline.lake import driver_lock
from pipeline.lake.committed import LakeConflictError, LakeError
from pipeline.lake.driver_lock import NAME, write_alone

LAKE = "s3://bucket/a/lake"
KEY = f"a/lake/{NAME}"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    store = MemoryStore()
    monkeypatch.setattr(driver_lock, "_bucket", lambda name: {"bucket": store}[name])
    monkeypatch.setattr(driver_lock, "_held", {})
    for name, seconds in {"RENEW_SECONDS": 0.05, "DEAD_SECONDS": 0.5, "WAIT_SECONDS": 0.8, "_LOOK_SECONDS": 0.02}.items():
        monkeypatch.setattr(driver_lock, name, seconds)
    return store


def other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, this process knows nothing of what it has taken."""
    monkeypatch.setattr(driver_lock, "_held", {})


def named(bucket: MemoryStore) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bytes(obstore.get(bucket, KEY).bytes()))
    return found


def is_free(bucket: MemoryStore) -> bool:
    try:
        obstore.head(bucket, KEY)
    except FileNotFoundError:
        return True
    return False


def test_runs_of_a_process_share_the_lake_until_the_last_one_ends(bucket: MemoryStore) -> None:
    first, second = write_alone(LAKE, "one", "import"), write_alone(LAKE, "two", "replay")
    assert {name: named(bucket)[name] for name in ("runId", "what")} == {"runId": "one", "what": "import"}
    first.release()
    second.require()
    assert not is_free(bucket)
    second.release()
    assert is_free(bucket)
    write_alone(LAKE, "three", "import").release()
    assert is_free(bucket)


def test_another_process_waits_for_the_end_of_a_run(bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    first = write_alone(LAKE, "one", "import")
    other_process(monkeypatch)
    threading.Timer(0.3, first.release).start()
    begun = time.monotonic()
    second = write_alone(LAKE, "two", "import")
    assert time.monotonic() - begun >= 0.2
    second.require()
    assert named(bucket)["runId"] == "two"
    second.release()


def test_another_process_is_refused_while_one_is_alive(bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    first = write_alone(LAKE, "one", "import")
    other_process(monkeypatch)
    with pytest.raises(LakeConflictError, match=r"found import one, process \d+ on .*; start this again when the other one has ended"):
        write_alone(LAKE, "two", "replay")
    first.require()
    assert named(bucket)["runId"] == "one"
    first.release()


def test_the_lake_of_a_dead_process_is_taken_over(bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = write_alone(LAKE, "dead", "import")
    dead.held.ended.set()  # it renews nothing any more
    other_process(monkeypatch)
    begun = time.monotonic()
    second = write_alone(LAKE, "two", "replay")
    assert time.monotonic() - begun >= 0.5
    assert named(bucket)["runId"] == "two"
    dead.held.ended.clear()  # it only stood still, and goes on
    with pytest.raises(LakeConflictError, match="another one took it over"):
        dead.require()
    dead.release()
    second.require()
    second.release()
    assert is_free(bucket)


def test_of_processes_that_come_at_once_one_has_the_lake(bucket: MemoryStore) -> None:
    """Each after a dead one; the others see the new one alive."""
    obstore.put(bucket, KEY, b"left by nobody")

    def take(number: int) -> bool:
        one = driver_lock._Object(LAKE, bucket, KEY, {"runId": str(number), "what": "import", "process": number, "host": "h"}, runs=1)
        try:
            one.take()
        except LakeConflictError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(take, range(8))) == 1


def test_a_bucket_that_ignores_conditions_is_refused(bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    put = obstore.put
    monkeypatch.setattr(driver_lock.obstore, "put", lambda store, key, content, mode: put(store, key, content, mode="overwrite"))
    with pytest.raises(LakeError, match="expected a bucket that refuses a PUT with If-None-Match"):
        write_alone(LAKE, "one", "import")
    assert is_free(bucket)


def test_a_bucket_that_takes_no_conditions_is_refused(bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A store of local files cannot change a file under a condition."""
    monkeypatch.setattr(driver_lock, "_bucket", lambda _: LocalStore(tmp_path))
    obstore.put(LocalStore(tmp_path), KEY, b"left by nobody")
    with pytest.raises(LakeError, match=f"expected a bucket that takes a PUT of {NAME} under a condition, found "):
        write_alone(LAKE, "one", "import")
