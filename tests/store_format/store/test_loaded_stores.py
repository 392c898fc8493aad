"""Stores of the real broker, loaded: the log and every queue have the bounds that the broker's own load gave them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.files.store_files import StoreFiles
from pipeline.store import load_files as lf
from store_format.errors import CorruptStoreError
from store_format.store.recovery import FileWalk, RecoveredLog, files_to_walk, recover_normally
from tests.truth.golden import BESIDE, clean_recoveries, golden_lines, names, needs_golden, recovery

NO_FILES = "torn-commitlog-missing"
REFUSED = {"torn-cq-wrong-size", "torn-last-file-length-0"}
LOADED = [name for name in clean_recoveries() if name not in {NO_FILES, *REFUSED}]


def sizes_of(config: dict[str, Any]) -> lf.FileSizes:
    return lf.FileSizes(commit_log=int(config["mappedFileSizeCommitLog"]), consume_queue=int(config["mappedFileSizeConsumeQueue"]))


class Loaded:
    """A store after load, done here at once as `pipeline.importing.import_store` does it with jobs."""

    def __init__(self, path: Path, *, check_crc: bool, sizes: lf.FileSizes | None = None) -> None:
        store = StoreFiles(str(path))
        self.sizes = sizes or lf.file_sizes(store, {})
        self.log: RecoveredLog = lf.recover_log(store, lf.load_log(store, self.sizes), check_crc=check_crc)
        queues = [(topic, queue_id) for topic in lf.topics(store) for queue_id in lf.queue_ids(store, topic)]
        furthest = max((lf.recover_queue(store, *queue, self.sizes, None).max_physic_offset for queue in queues), default=-1)
        bounds = lf.LogBounds(
            min_offset=self.log.min_offset, max_offset=self.log.max_offset, truncates_queues=furthest >= self.log.max_offset
        )
        self.queues = [lf.recover_queue(store, *queue, self.sizes, bounds) for queue in queues]

    def state(self) -> dict[str, Any]:
        """The state in the form of golden/store/recover, where queues without files are left out."""
        return {
            "minPhyOffset": self.log.min_offset,
            "maxPhyOffset": self.log.max_offset,
            "commitLogFiles": [file.name for file in self.log.files],
            "queues": {
                (queue.topic, queue.queue_id): (
                    queue.min_offset,
                    queue.max_offset,
                    queue.max_physic_offset,
                    [file.name for file in queue.files],
                )
                for queue in self.queues
                if queue.files
            },
        }


def recorded_state(after: dict[str, Any]) -> dict[str, Any]:
    bounds = ("minOffsetInQueue", "maxOffsetInQueue", "maxPhysicOffset", "files")
    queues = {(row["topic"], row["queueId"]): tuple(row[name] for name in bounds) for row in after["queues"]}
    return {name: after[name] for name in ("minPhyOffset", "maxPhyOffset", "commitLogFiles")} | {"queues": queues}


def test_the_store_beside_the_tests_loads_as_in_the_broker(small_store: Path) -> None:
    after_load = json.loads((BESIDE / "small.after-load.json").read_text(encoding="utf-8"))
    assert Loaded(small_store, check_crc=True).state() == recorded_state(after_load)


@needs_golden
def test_the_store_beside_the_tests_is_the_golden_one() -> None:
    after_load = json.loads((BESIDE / "small.after-load.json").read_text(encoding="utf-8"))
    assert recorded_state(after_load) == recorded_state(recovery("small")["afterLoad"])


@needs_golden
@pytest.mark.parametrize("name", LOADED)
def test_a_store_without_an_abort_file_loads_as_in_the_broker(stores: Path, name: str) -> None:
    recorded = recovery(name)
    sizes, check_crc = sizes_of(recorded["config"]), recorded["config"]["checkCRCOnRecover"]
    loaded = Loaded(stores / recorded["store"], check_crc=check_crc, sizes=sizes)
    assert loaded.state() == recorded_state(recorded["afterLoad"])
    if recorded["start"] == "ok" and not recorded["redispatchedInStart"]:
        assert loaded.state() == recorded_state(recorded["afterStart"])
    if any((stores / recorded["store"] / "consumequeue").glob("*/*/*")):
        assert lf.file_sizes(StoreFiles(str(stores / recorded["store"])), {}) == sizes


@needs_golden
@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_store_that_the_broker_does_not_load_is_refused(stores: Path, name: str) -> None:
    recorded = recovery(name)
    assert recorded["load"] is False
    with pytest.raises(CorruptStoreError, match="a mapped file of"):
        Loaded(stores / recorded["store"], check_crc=True)


@needs_golden
def test_a_store_without_a_log_has_none_after_load(stores: Path) -> None:
    recorded = recovery(NO_FILES)
    assert recorded_state(recorded["afterLoad"]) == {"minPhyOffset": -1, "maxPhyOffset": 0, "commitLogFiles": [], "queues": {}}
    assert lf.load_log(StoreFiles(str(stores / recorded["store"])), lf.FileSizes(commit_log=1, consume_queue=20)) == ()
    empty = recover_normally((), ())
    assert (empty.min_offset, empty.max_offset, empty.ended) == (-1, 0, None)


def traced() -> list[str]:
    """The names of the traces of stores whose bounds a start does not change after load."""
    stores_of = {name: next(golden_lines("store", "traces", f"{name}.jsonl"))["store"] for name in names("traces", "*.jsonl")}
    return [name for name, store in stores_of.items() if store in LOADED and not recovery(store)["redispatchedInStart"]]


@needs_golden
@pytest.mark.parametrize("name", traced())
def test_bounds_are_those_of_every_recorded_answer(stores: Path, name: str) -> None:
    header, *answers = golden_lines("store", "traces", f"{name}.jsonl")
    sizes, check_crc = sizes_of(header["config"]), header["config"]["checkCRCOnRecover"]
    loaded = Loaded(stores / header["store"], check_crc=check_crc, sizes=sizes)
    assert (loaded.log.min_offset, loaded.log.max_offset) == (header["minPhyOffset"], header["maxPhyOffset"])
    bounds = {(queue.topic, queue.queue_id): (queue.min_offset, queue.max_offset) for queue in loaded.queues}
    for answer in answers:
        request, response = answer["request"], answer["response"]
        if response is not None and "exception" not in response:
            queue = (request["topic"], request["queueId"])
            assert bounds.get(queue, (0, 0)) == (response["minOffset"], response["maxOffset"])


def test_only_the_last_three_files_are_walked(small_store: Path) -> None:
    store = StoreFiles(str(small_store))
    files = lf.load_log(store, lf.file_sizes(store, {}))
    assert len(files) > 3
    assert [file.name for file in files_to_walk(files)] == [file.name for file in files[-3:]]
    assert files_to_walk(files[:2]) == files[:2]


def test_a_walk_that_ends_on_the_last_blank_ends_the_log_before_it(small_store: Path) -> None:
    """The golden store `torn-cq-truncated-by-crash` shows it; its last file is the sixth of these."""
    store = StoreFiles(str(small_store))
    files = lf.load_log(store, lf.file_sizes(store, {}))[:6]
    recovered = lf.recover_log(store, files, check_crc=True)
    assert (recovered.max_offset, len(recovered.files)) == (393012, 6)
    assert recovered.ended == FileWalk(
        name="00000000000000327680",
        end=393012 - 327680,
        ended=lf.walk_log_file(store.content("commitlog", files[5].name), files[5], check_crc=True).ended,
    )
