"""What import refuses: each with exit code 2, the file, what was expected and what was found, and nothing written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.files.store_files import StoreFiles
from pipeline.importing.load_store import LoadedStore, load_store
from pipeline.lake.lake import Lake
from pipeline.schema import tables as t
from pipeline.settings.settings import BrokerSettings
from pipeline.tasks.work import DriverTasks, SparkTasks
from store_format.errors import StoreError
from tests.makers.lakes import LOG_FILE, import_as, rows, tiny_store, write_files
from tests.runs.in_session import pullsim_in
from tests.runs.sampling import ALL, sampled
from tests.truth.golden import golden_lines, meta_of, names, needs_golden, recovery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.runs.in_session import Pullsim

LOG = "0" * 20
NEXT = f"{LOG_FILE:020d}"


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tiny_store(tmp_path / "store", [("T", 0), ("T", 1)])


def log_file(name: str, length: int = LOG_FILE) -> Callable[[Path], object]:
    return lambda store: (store / "commitlog" / name).write_bytes(bytes(length))


def queue_file(name: str, length: int = 200) -> Callable[[Path], object]:
    return lambda store: (store / "consumequeue" / "T" / "0" / name).write_bytes(bytes(length))


def link(name: str, target: str) -> Callable[[Path], object]:
    return lambda store: (store / name).symlink_to(target)


def only_an_empty_log_file(store: Path) -> None:
    (store / "commitlog" / LOG).write_bytes(b"")


def the_log_is_a_file(store: Path) -> None:
    shutil.rmtree(store / "commitlog")
    (store / "commitlog").write_bytes(b"x")


def a_folder_in_the_log(store: Path) -> None:
    (store / "commitlog" / NEXT).mkdir()


def queue_number(name: str) -> Callable[[Path], object]:
    return lambda store: (store / "consumequeue" / "T" / name).mkdir()


def a_name_that_is_no_text(store: Path) -> None:
    os.mkdir(os.fsencode(store / "consumequeue") + b"/caf\xe9")


def broken_config(name: str, text: str) -> Callable[[Path], object]:
    def write(store: Path) -> None:
        (store / "config").mkdir()
        (store / "config" / name).write_text(text, encoding="utf-8")

    return write


NAMED = "expected a file named by the 20 digits of its first offset, found"
BROKEN: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "only an empty log file": (only_an_empty_log_file, f"commitlog/{LOG}", "expected a mapped file of 1073741824 bytes, found 0 bytes"),
    "the log is a file": (the_log_is_a_file, "store", "expected a store with files under commitlog, found none"),
    "a folder in the log": (a_folder_in_the_log, f"commitlog/{NEXT}", f"expected a mapped file of {LOG_FILE} bytes, found"),
    "an empty log file more": (log_file(NEXT, 0), f"commitlog/{NEXT}", f"expected a mapped file of {LOG_FILE} bytes, found 0 bytes"),
    "a log file of another name": (log_file("1"), "commitlog/1", f"{NAMED} '1'"),
    "a log file of other digits": (log_file("٠" * 20), "commitlog/", NAMED),
    "a log file that begins inside another": (log_file(f"{7:020d}"), f"commitlog/{7:020d}", f"multiple of its length, {LOG_FILE} bytes"),
    "a log file past all offsets": (log_file(f"{2**64:020d}"), f"commitlog/{2**64:020d}", "multiple of its length"),
    "a queue file of another length": (queue_file(f"{200:020d}", 180), f"T/0/{200:020d}", "a mapped file of 200 bytes, found 180 bytes"),
    "a queue file of another name": (queue_file("x"), "consumequeue/T/0/x", f"{NAMED} 'x'"),
    "a queue file of no whole entries": (queue_file(LOG, 201), f"T/0/{LOG}", "a mapped file of 200 bytes, found 201 bytes"),
    "a queue number as nobody writes it": (queue_number("007"), "consumequeue/T/007", "a queue's number as the broker writes it"),
    "a queue number in other digits": (queue_number("٣"), "consumequeue/T/٣", "a queue's number as the broker writes it"),
    "a name that is no text": (a_name_that_is_no_text, "consumequeue", "expected names in UTF-8, found b'caf\\xe9'"),
    "a link out of the store": (link("checkpoint", "../outside"), "store/checkpoint", "expected a file inside the store, found a link to"),
    "a link out of the store by name": (link("consumequeue/T/2", "/"), "consumequeue/T/2", "expected a file inside the store"),
    "a link to a folder": (link("consumequeue/T/2", "0"), "consumequeue/T/2", "expected a file or a folder, found a link to the folder"),
    "a link to a folder above": (link("other", "."), "store/other", "expected a file or a folder, found a link to the folder"),
    "a link to nothing": (link("commitlog/x", "y"), "commitlog/x", "expected a file that can be read, found No such file"),
    "a link to itself": (link("config", "config"), "store/config", "expected a file that can be read, found Too many levels"),
    "topics that are no JSON": (broken_config("topics.json", '{"a":'), "config/topics.json, byte 5", "expected a value"),
    "offsets that are no JSON": (broken_config("consumerOffset.json", "}"), "config/consumerOffset.json", "expected"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_no_sound_store_is_refused(case: str, store: Path, tmp_path: Path, pullsim: Pullsim) -> None:
    damage, where, said = BROKEN[case]
    (tmp_path / "outside").write_bytes(b"secret")
    damage(store)
    check_refused(pullsim, store, tmp_path / "lake", where, said)


def check_refused(pullsim: Pullsim, store: Path | str, lake: Path, *said: str) -> None:
    code, out, err = pullsim("import", store, "--lake", lake)
    assert (code, out) == (2, ""), err
    error = err.splitlines()[-1]
    assert error.startswith("pullsim: error: "), err
    assert all(text in error for text in said), error
    assert "Traceback" not in err
    assert not lake.exists()


@pytest.mark.parametrize("path", ["nowhere", "store/lock", "store/commitlog", "foo://bar/baz", "file:///nowhere/at all"])
def test_what_is_no_store_is_refused(path: str, store: Path, tmp_path: Path, pullsim: Pullsim) -> None:
    (store / "lock").write_bytes(b"")
    given = path if "://" in path else tmp_path / path
    check_refused(pullsim, given, tmp_path / "lake", str(given).removeprefix("file://"), "expected", "found")


def test_an_empty_directory_is_no_store(tmp_path: Path, pullsim: Pullsim) -> None:
    (tmp_path / "empty").mkdir()
    check_refused(pullsim, tmp_path / "empty", tmp_path / "lake", "expected a store with a folder commitlog, found none")


def test_the_store_is_never_written_to(store: Path, tmp_path: Path, pullsim: Pullsim) -> None:
    for lake in (store, store / "lake", tmp_path / "link" / "lake"):
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to(store)
        code, _, err = pullsim("import", store, "--lake", lake)
        assert code == 2
        assert "expected a directory outside the store" in err
    assert sorted(path.name for path in store.iterdir()) == ["commitlog", "consumequeue"]


def test_a_lake_that_cannot_be_one_is_refused(store: Path, tmp_path: Path, pullsim: Pullsim) -> None:
    (tmp_path / "file").write_bytes(b"x")
    file = tmp_path / "file"
    for lake, said in ((file, "found a file"), (file / "under" / "it", "found a file"), ("foo://bar/baz", "a URI that can be opened")):
        code, _, err = pullsim("import", store, "--lake", lake)
        assert code == 2, err
        assert said in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "mappedFileSizeCommitlog=1"], "the nearest known name is mappedFileSizeCommitLog"),
        (["--set", "mappedFileSizeCommitLog=x"], "mappedFileSizeCommitLog must be"),
        (["--set", "mappedFileSizeCommitLog"], "name=value"),
        (["--set", "mappedFileSizeCommitLog=1000"], f"expected a mapped file of 1000 bytes, found {LOG_FILE} bytes"),
        (["--set", "mappedFileSizeConsumeQueue=1"], "expected a mapped file of 20 bytes, found 200 bytes"),
        (["--conf", "spark.sql.shuffle.partitions"], "expected name=value"),
        (["--conf", "=1"], "expected name=value"),
        (["--layout", "by day"], "--layout"),
        (["--brokername", "b"], "--brokername"),
        (["--properties", "/nowhere/broker.conf"], "/nowhere/broker.conf"),
    ],
)
def test_options_that_mean_nothing_are_refused(arguments: list[str], said: str, store: Path, tmp_path: Path, pullsim: Pullsim) -> None:
    code, _, err = pullsim("import", store, "--lake", tmp_path / "lake", *arguments)
    assert code == 2, err
    assert said in err
    assert not (tmp_path / "lake").exists()


def test_a_store_without_messages_is_imported(spark: SparkSession, tmp_path: Path) -> None:
    write_files(tmp_path / "store" / "commitlog", b"", LOG_FILE)
    done = import_as(spark, tmp_path / "lake", tmp_path / "store")
    assert (done.messages, done.entries, done.queues, done.min_phy_offset, done.max_phy_offset) == (0, 0, 0, 0, 0)
    assert rows(spark, tmp_path / "lake", t.BROKER)[0]["maxStoreTimestamp"] is None
    assert Lake(spark, str(tmp_path / "lake")).at.tables.keys() == {table.name for table in t.IMPORTED}


def is_refused(name: str) -> bool:
    """Whether load fails, or start never ends."""
    return not recovery(name)["load"] or recovery(name)["start"] != "ok"


TORN = names("recover", "torn-*.json")


@needs_golden
@pytest.mark.parametrize("name", [name for name in TORN if is_refused(name)])
def test_a_damaged_store_that_does_not_load_or_start_is_refused(name: str, stores: Path, tmp_path: Path, pullsim: Pullsim) -> None:
    recorded = recovery(name)
    store = stores / recorded["store"]
    code, out, err = pullsim("import", store, "--lake", tmp_path / "lake", *settings_of(name))
    assert (code, out) == (2, ""), err
    assert f"pullsim: error: {store}" in err
    assert "Traceback" not in err
    assert not (tmp_path / "lake").exists()


def settings_of(name: str) -> list[str]:
    """Settings of a recorded recovery that import needs beside the files."""
    config = recovery(name)["config"]
    words = {one: str(value).lower() if isinstance(value, bool) else value for one, value in config.items() if one != "bloom"}
    return [word for one, value in words.items() for word in ("--set", f"{one}={value}")]


def recorded_queues(name: str) -> dict[tuple[str, int], tuple[int, int, tuple[str, ...]]]:
    return {
        (one["topic"], one["queueId"]): (one["minOffsetInQueue"], one["maxOffsetInQueue"], tuple(one["files"]))
        for one in recovery(name)["afterStart"]["queues"]
    }


@needs_golden
@pytest.mark.parametrize("name", [name for name in TORN if not is_refused(name)][:: 1 if ALL else 8])
def test_a_damaged_store_loads_with_the_bounds_that_the_broker_had_after_its_start(spark: SparkSession, name: str, stores: Path) -> None:
    settings = BrokerSettings.from_sources(options=settings_of(name)[1::2])
    for tasks in (DriverTasks(), SparkTasks(spark)):
        assert_loaded(load_store(tasks, StoreFiles(str(stores / recovery(name)["store"])), "b", settings), name)


def assert_loaded(loaded: LoadedStore, name: str) -> None:
    after = recovery(name)["afterStart"]
    assert (loaded.log.min_offset, loaded.log.max_offset) == (after["minPhyOffset"], after["maxPhyOffset"])
    assert [file.name for file in loaded.log.files] == after["commitLogFiles"]
    found: dict[tuple[str, int], tuple[int, int, tuple[str, ...]]] = {}
    for row in loaded.queues.ordered(1, ["topic", "queueId", "name"]).rows():
        if row["name"] is None:
            continue
        queue = (row["topic"], row["queueId"])
        found[queue] = (row["minOffset"], row["maxOffset"], (*found.get(queue, (0, 0, ()))[2], row["name"]))
    assert found == recorded_queues(name)


# cut by its queues, by a broken record, by zeros in a file that is read, and by none though a file that is not read has zeros
IMPORTED = ("torn-cq-ahead", "torn-half-message-clean", "torn-zero-middle", "torn-zero-middle-old")


@needs_golden
@pytest.mark.parametrize("name", sampled(IMPORTED, 1))
def test_a_damaged_store_is_imported_as_its_trace_saw_it(
    name: str, stores: Path, tmp_path: Path, spark: SparkSession, pullsim: Pullsim
) -> None:
    code, out, err = pullsim("import", stores / name, "--lake", tmp_path / "lake", *settings_of(name))
    assert code == 0, err
    header, *answers = golden_lines("store", "traces", f"{name}.jsonl") if name in names("traces", "torn-*.jsonl") else [{}]
    (broker,) = rows(spark, tmp_path / "lake", t.BROKER)
    after = recovery(name)["afterStart"]
    assert (broker["minPhyOffset"], broker["maxPhyOffset"]) == (after["minPhyOffset"], after["maxPhyOffset"])
    bounds = {(row["topic"], row["queueId"]): (row["minOffset"], row["maxOffset"]) for row in rows(spark, tmp_path / "lake", t.QUEUE)}
    assert bounds.items() >= {queue: found[:2] for queue, found in recorded_queues(name).items()}.items()
    if header:
        assert (broker["minPhyOffset"], broker["maxPhyOffset"]) == (header["minPhyOffset"], header["maxPhyOffset"])
    for answer in answers:
        request, response = answer["request"], answer["response"]
        if response is not None and "exception" not in response:
            assert bounds.get((request["topic"], request["queueId"]), (0, 0)) == (response["minOffset"], response["maxOffset"])
    assert meta_of(stores / name)["name"] == name
    cut = recovery(name)["before"]["files"]
    deleted = {one["path"].split("/")[1] for one in cut if one["path"].startswith("commitlog/")} - set(after["commitLogFiles"])
    for file in deleted:
        assert f"{file}: the broker's load would delete it" in out


@needs_golden
def test_a_queue_extension_on_which_load_fails_is_told(stores: Path, tmp_path: Path, pullsim: Pullsim) -> None:
    store = tmp_path / "store"
    shutil.copytree(stores / "ext", store)
    path = next(path for path in sorted((store / "consumequeue_ext").glob("*/*/*")) if path.read_bytes()[4000:])
    path.write_bytes((b"\x0f\xff" + bytes(4093)).ljust(4096, b"\0"))  # a unit of 4095 bytes: the next one's size is cut off
    check_refused(pullsim, store, tmp_path / "lake", path.name, "expected units of a consume queue extension that end before the file does")
    path.write_bytes(path.read_bytes()[:100])
    check_refused(pullsim, store, tmp_path / "lake", path.name, "expected a mapped file of 4096 bytes, found 100 bytes")


def test_a_refused_import_leaves_what_the_lake_holds(spark: SparkSession, store: Path, tmp_path: Path, pullsim: Pullsim) -> None:
    lake = tmp_path / "lake"
    import_as(spark, lake, store)
    before, files = Lake(spark, str(lake)).at, sorted(lake.rglob("*"))
    broken_config("delayOffset.json", "{")(store)
    code, _, err = pullsim("import", store, "--lake", lake, "--broker-name", "b")
    assert code == 2
    assert "delayOffset.json" in err
    assert Lake(spark, str(lake)).at == before
    assert sorted(lake.rglob("*")) == files


@pytest.mark.parametrize("folder", ["commitlog", "config"])
def test_a_folder_that_cannot_be_read_is_told(folder: str, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    files = StoreFiles(str(store))
    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(StoreError, match=f"{folder}: expected a folder that can be read, found Permission denied"):
        files.folder(folder)


def test_what_a_broker_5_keeps_elsewhere_is_refused_by_name(store: Path, tmp_path: Path, pullsim: Pullsim) -> None:
    (store / "batchconsumequeue" / "T" / "0").mkdir(parents=True)
    code, _, err = pullsim("import", store, "--lake", tmp_path / "lake")
    assert (code, "found batch consume queues (queue.type=BatchCQ), which pullsim does not read" in err) == (2, True)
    assert not (tmp_path / "lake").exists()
