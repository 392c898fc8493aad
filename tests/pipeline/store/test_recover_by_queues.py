"""Recovery as 5.5.0 does it: the log and the queues of every recorded recovery, and the choice of the file rule by rule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.settings.settings import BrokerSettings
from pipeline.store.recover import run_recover
from store_format.files.mapped_files import MappedFile
from store_format.record.message import Host, Message, encode
from store_format.store.checkpoint import logics_physical_offset
from store_format.store.recover_by_queues import Seam
from tests.truth.golden5 import needs_golden5, recoveries, recovery, unpacked

STEPS = ("load", "redispatchedInLoad", "redispatchedInLoadFrom", "start", "redispatchedInStart", "redispatchedInStartFrom")
STATE = ("minPhyOffset", "maxPhyOffset", "commitLogFiles", "abort", "queues")
HOST = Host(address=bytes([127, 0, 0, 1]), port=10911)


@needs_golden5
@pytest.mark.parametrize(("archive", "name"), recoveries())
def test_the_log_and_the_queues_recover_as_in_5_5_0(archive: str, name: str, stores: Path) -> None:
    recorded = recovery(archive, name)
    store = (unpacked("stores") / "stores" if archive == "answers" else stores) / recorded["store"]
    settings = BrokerSettings.from_sources(header={"rulesVersion": recorded["version"]} | recorded["config"])
    told: dict[str, Any] = json.loads(json.dumps(run_recover(str(store), settings=settings)))
    assert {step: told.get(step) for step in STEPS} == {step: recorded.get(step) for step in STEPS}
    for state in ("afterLoad", "afterStart"):
        ours, theirs = told.get(state), recorded.get(state)
        assert (ours and {part: ours[part] for part in STATE}) == (theirs and {part: theirs[part] for part in STATE})


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
    seam = Seam(**({"timestamp": 0, "index_timestamp": None, "most_files": 10} | how))
    walked = seam.files_to_walk(files, lambda file: contents[file.name], check_crc=False)
    assert [file.from_offset for file in walked] == [1000 * number for number in range(first, 5)]


def test_a_file_of_zeros_does_not_match() -> None:
    seam = Seam(physic_offset=10**9, timestamp=0, index_timestamp=None, most_files=10)
    assert not seam.matches(np.zeros(1000, np.uint8), check_crc=True)


def test_the_offset_of_the_queues_lies_at_byte_40_of_the_checkpoint() -> None:
    assert logics_physical_offset(bytes(40) + (123).to_bytes(8, "big") + bytes(10)) == 123
    assert (logics_physical_offset(bytes(24)), logics_physical_offset(None)) == (0, 0)
