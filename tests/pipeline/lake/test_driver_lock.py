"""One process at a time writes to a lake on S3. An object store in memory, with the same conditions of a PUT, stands in for S3."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import Mock

import obstore
import pyarrow as pa
import pytest
from obstore.exceptions import AlreadyExistsError, GenericError, PermissionDeniedError, PreconditionError
from obstore.store import LocalStore, MemoryStore

from pipeline.lake import driver_lock, lake_writer
from pipeline.lake.driver_lock import NAME, write_alone
from pipeline.lake.lake import Lake
from pipeline.lake.lake_errors import LakeConflictError, LakeError
from pipeline.lake.lake_writer import LakeWriter
from pipeline.schema.arrow_types import arrow_schema
from pipeline.schema.capture_tables import BAD_REQUEST
from pipeline.schema.tables import BROKER, REPLAY_RUN
from pullsim.lake import _job
from tests.runs.replaying import NOON
from tests.runs.small_runs import commit_runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAKE = "s3://bucket/a/lake"
KEY = f"a/lake/{NAME}"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryStore]:
    store = MemoryStore()
    begun: list[driver_lock._Object] = []
    take = driver_lock._Object.take

    def noted(held: driver_lock._Object) -> None:
        begun.append(held)
        take(held)

    monkeypatch.setattr(driver_lock._Object, "take", noted)
    monkeypatch.setattr(driver_lock, "_bucket", lambda name: {"bucket": store}[name])
    monkeypatch.setattr(driver_lock, "_held", {})
    monkeypatch.setattr(driver_lock, "_checked", set())
    for name, seconds in {"RENEW_SECONDS": 0.05, "DEAD_SECONDS": 0.5, "WAIT_SECONDS": 0.8, "_LOOK_SECONDS": 0.02}.items():
        monkeypatch.setattr(driver_lock, name, seconds)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "unused")
    yield store
    for held in begun:  # a test leaves dead processes behind, whose threads would renew within the next test
        with held.changing:
            held.ended.set()


def other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, this process counts as another one, which has taken no lake."""
    monkeypatch.setattr(driver_lock, "_held", {})


def named(bucket: MemoryStore, key: str = KEY) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bytes(obstore.get(bucket, key).bytes()))
    return found


def is_free(bucket: MemoryStore, key: str = KEY) -> bool:
    return named(bucket, key) == {"released": True}


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
    """All come after a dead process; one takes the lake, and the others find that it is alive."""
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


@pytest.mark.parametrize(("ignored", "told"), [("create", "with If-None-Match where"), ("e_tag", "with If-Match and a wrong ETag")])
def test_a_bucket_that_ignores_a_condition_is_refused(
    ignored: str, told: str, bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = obstore.put

    def ignoring(store: MemoryStore, key: str, content: bytes, *, mode: Any) -> Any:
        return put(store, key, content, mode="overwrite" if ignored in mode else mode)

    monkeypatch.setattr(obstore, "put", ignoring)
    with pytest.raises(LakeError, match=f"expected a bucket that refuses a PUT {told}"):
        write_alone(LAKE, "one", "import")
    assert is_free(bucket)


def test_a_bucket_without_etags_is_refused(bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    put = obstore.put
    monkeypatch.setattr(obstore, "put", lambda *given, mode: {**put(*given, mode=mode), "e_tag": None})
    with pytest.raises(LakeError, match="expected a bucket that gives the ETag of a PUT"):
        write_alone(LAKE, "one", "import")


def test_a_bucket_that_takes_no_conditions_is_refused(bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A store of local files cannot change a file under a condition."""
    monkeypatch.setattr(driver_lock, "_bucket", lambda _: LocalStore(tmp_path))
    obstore.put(LocalStore(tmp_path), KEY, b"left by nobody")
    with pytest.raises(LakeError, match=f"expected a bucket that takes a PUT of {NAME} under a condition, found "):
        write_alone(LAKE, "one", "import")


@pytest.mark.parametrize("error", [GenericError("no answer"), PreconditionError("tried again by obstore")])
def test_a_renewal_whose_answer_was_lost_counts(error: Exception, bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    alone, lost = write_alone(LAKE, "one", "import"), threading.Event()
    put = obstore.put

    def losing(store: MemoryStore, key: str, content: bytes, *, mode: Any) -> Any:
        found = put(store, key, content, mode=mode)
        if not lost.is_set():
            lost.set()
            raise error
        return found

    monkeypatch.setattr(obstore, "put", losing)
    assert lost.wait(5)
    alone.require()
    alone.release()
    assert is_free(bucket)


def test_a_lake_whose_object_was_created_without_an_answer_is_taken(bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    put, lost = obstore.put, threading.Event()

    def losing(store: MemoryStore, key: str, content: bytes, *, mode: Any) -> Any:
        found = put(store, key, content, mode=mode)
        if not lost.is_set():
            lost.set()
            raise AlreadyExistsError("tried again by obstore")
        return found

    monkeypatch.setattr(obstore, "put", losing)
    begun = time.monotonic()
    write_alone(LAKE, "one", "import").release()
    assert time.monotonic() - begun < 0.4  # it waits for no dead process


def test_an_object_that_changes_hands_at_the_release_stays(bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    alone, get = write_alone(LAKE, "one", "import"), obstore.get

    def taken_after(store: MemoryStore, key: str) -> Any:
        found = get(store, key)
        content = found.bytes()
        obstore.put(store, key, b'{"runId": "other"}')
        return SimpleNamespace(meta=found.meta, bytes=lambda: content)

    monkeypatch.setattr(obstore, "get", taken_after)
    alone.release()
    monkeypatch.setattr(obstore, "get", get)
    assert named(bucket) == {"runId": "other"}


def test_ctrl_c_while_a_lake_is_taken_leaves_it_free(bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    put = obstore.put

    def interrupted(store: MemoryStore, key: str, content: bytes, *, mode: Any) -> Any:
        put(store, key, content, mode=mode)
        monkeypatch.setattr(obstore, "put", put)
        raise KeyboardInterrupt

    monkeypatch.setattr(obstore, "put", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_alone(LAKE, "one", "import")
    assert is_free(bucket)
    begun = time.monotonic()
    write_alone(LAKE, "two", "import").release()
    assert time.monotonic() - begun < 0.4


def test_an_object_that_cannot_be_read_is_told(bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> Any:
        raise PermissionDeniedError("403")

    monkeypatch.setattr(obstore, "get", refused)
    obstore.put(bucket, KEY, b"left by nobody")
    with pytest.raises(LakeError, match=f"expected a bucket that lets this process read {NAME}, found 403"):
        write_alone(LAKE, "one", "import")


@pytest.mark.parametrize("content", [b"[" * 4000, b"[1]", b'{"what": "' + b"x" * 5000 + b'"}', b"", b'{"what": 1}'])
def test_an_object_that_names_no_process_is_taken_when_nobody_renews_it(content: bytes, bucket: MemoryStore) -> None:
    obstore.put(bucket, KEY, content)
    write_alone(LAKE, "one", "import").release()
    assert is_free(bucket)


def test_an_object_that_is_too_long_is_not_read(bucket: MemoryStore) -> None:
    held = driver_lock._Object(LAKE, bucket, KEY, {})
    obstore.put(bucket, KEY, b'{"what": "' + b"x" * 5000 + b'"}')
    assert held.found()[1] == {}


def test_a_wait_for_one_lake_is_none_for_another(monkeypatch: pytest.MonkeyPatch, bucket: MemoryStore) -> None:
    first = write_alone(LAKE, "one", "import")
    other_process(monkeypatch)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(write_alone, LAKE, "two", "import")
        time.sleep(0.1)
        begun = time.monotonic()
        write_alone("s3://bucket/other", "three", "import").release()
        assert time.monotonic() - begun < 0.4
        first.release()
        waiting.result().release()


def test_a_lake_that_gets_free_at_the_end_of_the_wait_is_taken(bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    obstore.put(bucket, KEY, b"of another process")
    get = obstore.get

    def late(*given: Any) -> Any:
        monkeypatch.setattr(obstore, "get", get)
        time.sleep(1)
        obstore.delete(bucket, KEY)
        raise FileNotFoundError

    monkeypatch.setattr(obstore, "get", late)
    write_alone(LAKE, "one", "import").release()


@pytest.fixture
def lake(bucket: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A lake of one run, in a local folder that counts as one on S3."""
    commit_runs(str(tmp_path), "first", 1)
    monkeypatch.setattr(driver_lock, "_bucket", lambda _: bucket)
    monkeypatch.setattr(lake_writer, "is_s3", lambda _: True)
    return str(tmp_path)


def key_of(lake: str) -> str:
    return f"{lake.strip('/')}/{NAME}"


def writer_of(lake: Lake, run_id: str) -> LakeWriter:
    return LakeWriter(lake, run_id=run_id, what="replay", broker="b")


def opened(root: str) -> Lake:
    return Lake(cast("SparkSession", Mock()), root)


def append_run(writer: LakeWriter) -> None:
    row = {"brokerName": "b", "runId": writer.run_id, "source": "", "settings": [], "at": "snapshot", "lakeVersion": 0, "startedAt": NOON}
    writer.append(REPLAY_RUN, pa.Table.from_pylist([row], arrow_schema(REPLAY_RUN)))


WRITES: dict[str, Callable[[LakeWriter], None]] = {
    "append": append_run,
    "create": lambda writer: writer.prepare(BAD_REQUEST),
    "compact": lambda writer: writer.compact(REPLAY_RUN),
    "restore": lambda writer: writer._restore(REPLAY_RUN),
    "replace": lambda writer: writer.replace_broker(BROKER, arrow_schema(BROKER).empty_table()),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_run_that_lost_the_lake_writes_no_table(write: str, lake: str, bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_lock, "RENEW_SECONDS", 100)
    if write == "restore":
        dead = writer_of(opened(lake), "dead")
        dead.prepare(REPLAY_RUN)
        append_run(dead)
    writer = writer_of(opened(lake), "standing still")
    if write in {"append", "compact"}:
        writer.prepare(REPLAY_RUN)
    obstore.put(bucket, key_of(lake), b"taken over")
    before = sorted(Path(lake).rglob("_delta_log/*.json"))
    with pytest.raises(LakeConflictError, match="another one took it over"):
        WRITES[write](writer)
    assert sorted(Path(lake).rglob("_delta_log/*.json")) == before
    statements = [call.args[0] for call in cast("Mock", writer.spark).sql.call_args_list]
    assert [one for one in statements if one.startswith(("OPTIMIZE", "RESTORE"))] == []


def turns(lake: str, monkeypatch: pytest.MonkeyPatch, *, read: bool) -> LakeWriter:
    """A writer of a run that opened the lake before another process committed to it."""
    mine = opened(lake)
    if read:
        assert mine.rows(REPLAY_RUN).num_rows == 1
    other = writer_of(opened(lake), "other")
    other_process(monkeypatch)
    other.prepare(REPLAY_RUN)
    append_run(other)
    threading.Timer(0.2, other.commit, [NOON]).start()
    return writer_of(mine, "mine")


def test_a_run_that_waited_begins_where_the_other_one_ended(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = turns(lake, monkeypatch, read=False)
    assert writer.lake.at.version == 2
    writer.prepare(REPLAY_RUN)
    append_run(writer)
    assert writer.commit(NOON) == 3
    assert sorted(opened(lake).rows(REPLAY_RUN)["runId"].to_pylist()) == ["first0", "mine", "other"]


def test_a_run_that_read_what_the_other_one_changed_ends_at_once(lake: str, bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LakeConflictError, match="expected no other run to write to the lake since its version 1, found one"):
        turns(lake, monkeypatch, read=True)
    assert is_free(bucket, key_of(lake))


def test_the_traceback_of_an_error_does_not_keep_the_lake(lake: str, bucket: MemoryStore) -> None:
    def fail() -> None:
        writer = writer_of(opened(lake), "one")  # a frame of the traceback holds it
        assert writer.run_id == named(bucket, key_of(lake))["runId"]
        raise ValueError("disk")

    with pytest.raises(ValueError, match="disk") as kept, _job():
        fail()
    assert kept.value.__traceback__ is not None
    assert is_free(bucket, key_of(lake))
