"""Recovery by the rules of 5.5.0: every recorded recovery, and the choice of the file, rule by rule."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.settings.settings import BrokerSettings
from pipeline.store.recover import run_recover
from store_format.broker_version import BrokerVersion
from store_format.files.mapped_files import MappedFile
from store_format.index.index_file import index_keys
from store_format.layout import TRANSACTION_ROLLBACK_TYPE
from store_format.record.message import Host, Message, encode
from store_format.store.checkpoint import decode_checkpoint, encode_checkpoint
from store_format.store.recover_by_queues import Seam
from tests.makers.lakes import LOG_FILE, QUEUE_FILE, tiny_store
from tests.truth.golden5 import needs_golden5, recoveries, recovery, store_of, without_own_files

HOST = Host(address=bytes([127, 0, 0, 1]), port=10911)


@needs_golden5
@pytest.mark.parametrize(("archive", "name"), recoveries())
def test_a_store_recovers_as_in_5_5_0(archive: str, name: str, stores: Path) -> None:
    recorded = recovery(archive, name)
    store = stores / recorded["store"] if archive == "on-4.9.3-stores" else store_of(name)
    settings = BrokerSettings.from_sources(header={"rulesVersion": recorded["version"]} | recorded["config"])
    told: dict[str, Any] = json.loads(json.dumps(run_recover(str(store), settings=settings)))
    assert without_own_files(told) == without_own_files(recorded)


def test_queues_are_cut_if_they_reach_the_end_after_dispatching(tmp_path: Path) -> None:
    """A broker 5.5.0 said so of this store: c2 is dispatched to the place of c0, and the old entries after it count again."""
    store = tiny_store(tmp_path / "store", [(name, 0) for name in "abc"])
    for damaged in "bc":
        with (store / "consumequeue" / damaged / "0" / f"{0:020}").open("r+b") as file:
            file.write(struct.pack(">q", -(2**63)))
    sizes = {"mappedFileSizeCommitLog": LOG_FILE, "mappedFileSizeConsumeQueue": QUEUE_FILE}
    told = run_recover(str(store), settings=BrokerSettings.from_sources(header={"rulesVersion": "5.5.0"} | sizes))
    assert told["redispatchedInLoad"] == 1
    assert [(queue["topic"], queue["maxOffsetInQueue"]) for queue in told["afterLoad"]["queues"]] == [("a", 3), ("b", 3), ("c", 3)]


def test_the_confirmed_offset_is_where_the_last_message_lies(tmp_path: Path) -> None:
    """A broker 5.5.0 said so of this store, whose last record says that it begins 20 bytes later."""
    store = tiny_store(tmp_path / "store", [("a", 0)])
    log = store / "commitlog" / f"{0:020}"
    last = log.read_bytes().rindex(b"message 2")
    begins = log.read_bytes().rindex(struct.pack(">I", 0xDAA320A7), 0, last) - 4
    with log.open("r+b") as file:
        file.seek(begins + 28)
        file.write(struct.pack(">q", begins + 20))
    sizes = {"mappedFileSizeCommitLog": LOG_FILE, "mappedFileSizeConsumeQueue": QUEUE_FILE}
    told = run_recover(str(store), settings=BrokerSettings.from_sources(header={"rulesVersion": "5.5.0"} | sizes))
    assert told["afterLoad"]["checkpointInMemory"]["confirmPhyOffset"] == begins


@pytest.mark.parametrize(
    ("how", "is_killed", "confirmed"),
    [
        ({}, False, LOG_FILE),
        ({"flushDiskType": "SYNC_FLUSH"}, False, 0),
        ({"duplicationEnable": True}, False, 1234),
        ({"duplicationEnable": True}, True, 0),
        ({}, True, 0),
    ],
)
def test_without_a_good_message_the_confirmed_offset_is_that_before_recovery(
    tmp_path: Path, how: dict[str, Any], is_killed: bool, confirmed: int
) -> None:
    """A broker 5.5.0 said so of these stores, whose first record has a damaged body, and whose checkpoint has 1234."""
    store = tiny_store(tmp_path / "store", [("a", 0)])
    with (store / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(8)
        file.write(b"\x7f\xff\xff\xff")
    checkpoint = bytearray(4096)
    checkpoint[32:40] = struct.pack(">q", 1234)
    (store / "checkpoint").write_bytes(checkpoint)
    if is_killed:
        (store / "abort").touch()
    header = {"rulesVersion": "5.5.0", "mappedFileSizeCommitLog": LOG_FILE, "mappedFileSizeConsumeQueue": QUEUE_FILE} | how
    told = run_recover(str(store), settings=BrokerSettings.from_sources(header=header))
    assert told["afterLoad"]["checkpointInMemory"]["confirmPhyOffset"] == confirmed


def log_of(count: int, *, body: bytes = b"body") -> tuple[list[MappedFile], dict[str, np.ndarray[Any, np.dtype[np.uint8]]]]:
    """Files of 1000 bytes, each with one record, which is stored at 10, 20 and so on."""
    files, contents = [], {}
    for number in range(count):
        record = encode(
            Message(
                topic=b"t",
                queue_id=0,
                queue_offset=number,
                physic_offset=number * 1000,
                store_timestamp=10 * (number + 1),
                born_timestamp=1,
                properties=b"",
                born_host=HOST,
                store_host=HOST,
                body=body,
            )
        )
        files.append(MappedFile(name=f"{number * 1000:020}", from_offset=number * 1000, length=1000, wrote=1000))
        contents[files[-1].name] = np.frombuffer(record.ljust(1000, b"\0"), np.uint8)
    return files, contents


@pytest.mark.parametrize(
    ("how", "first"),
    [
        ({"physic_offset": 3000}, 3),
        ({"physic_offset": 2999}, 2),
        ({"physic_offset": -1}, 0),
        ({"physic_offset": None, "timestamp": 25}, 1),
        ({"physic_offset": 9000, "index_timestamp": 39}, 2),
        # no more files than commitLogRecoverMaxNum are looked at; below 1 it counts as 10
        ({"physic_offset": -1, "most_files": 2}, 3),
        ({"physic_offset": -1, "most_files": 0}, 0),
    ],
)
def test_recovery_begins_at_the_newest_file_that_matches(how: dict[str, Any], first: int) -> None:
    files, contents = log_of(5)
    seam = Seam(**({"timestamp": 0, "index_timestamp": None, "most_files": 10, "version": BrokerVersion.V5_5_0} | how))
    walked = seam.files_to_walk(files, lambda file: contents[file.name], check_crc=False)
    assert [file.from_offset for file in walked] == [1000 * number for number in range(first, 5)]


def test_a_file_of_zeros_does_not_match() -> None:
    seam = Seam(physic_offset=10**9, timestamp=0, index_timestamp=None, most_files=10, version=BrokerVersion.V5_5_0)
    assert not seam.matches(np.zeros(1000, np.uint8), check_crc=True)


def test_the_offsets_of_5_5_0_lie_in_bytes_24_to_48_of_the_checkpoint() -> None:
    numbers = [1, 2, 3, 4, 5, 6]
    raw = b"".join(number.to_bytes(8, "big") for number in numbers) + bytes(range(200, 250))
    found = decode_checkpoint(raw, with_offsets=True)
    assert [found.master_flushed_offset, found.confirm_phy_offset, found.logics_physical_offset] == numbers[3:]
    assert encode_checkpoint(found, raw, with_offsets=True)[:98] == raw
    assert decode_checkpoint(raw) == replace(found, master_flushed_offset=0, confirm_phy_offset=0, logics_physical_offset=0)
    assert decode_checkpoint(raw[:40], with_offsets=True).logics_physical_offset == 0


def test_a_tag_is_indexed_after_the_keys() -> None:
    properties = {"KEYS": "b  c", "UNIQ_KEY": "a", "TAGS": "blue"}
    assert index_keys("t", properties, 0, with_tags=True) == ["t#a", "t#b", "t#c", "t#T#blue"]
    assert index_keys("t", properties | {"TAGS": ""}, 0, with_tags=True) == index_keys("t", properties, 0) == ["t#a", "t#b", "t#c"]
    assert index_keys("t", properties, TRANSACTION_ROLLBACK_TYPE, with_tags=True) == []
