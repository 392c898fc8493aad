"""Look-ups by the rules of 5.5.0: every recorded one, and the boundaries on queues made by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.main import run
from store_format.files.mapped_files import MappedFile
from store_format.queue.consume_queue import encode_units
from store_format.store.lookup import CommitLogLookup, MappedFiles, QueueLookup
from store_format.store.lookup_by_time import Boundary, offset_by_time
from tests.runs.replaying import all_lines
from tests.truth.golden5 import LIVE, lookup, lookups, needs_golden5, store_of, unpacked

SIZE, A_FILE = 80, 4


@needs_golden5
@pytest.mark.parametrize(("archive", "name"), lookups())
def test_recorded_look_ups_are_answered_as_by_5_5_0(archive: str, name: str, stores: Path, tmp_path: Path) -> None:
    recorded = lookup(archive, name)
    store = (unpacked("stores") / "stores" if archive == "answers" else stores) / all_lines(recorded)[0]["store"]
    store = store_of(LIVE) if archive == LIVE else store
    assert run(["lookup", str(store), "--requests", str(recorded), "--out", str(tmp_path / "out")]) == 0
    assert all_lines(tmp_path / "out") == all_lines(recorded)


def files_of(content: bytes, length: int) -> MappedFiles:
    parts = [content[at : at + length] for at in range(0, len(content), length)]
    files = [
        MappedFile(name=f"{number * length:020}", from_offset=number * length, length=length, wrote=len(part))
        for number, part in enumerate(parts)
    ]
    return MappedFiles(files, lambda file: np.frombuffer(parts[file.from_offset // length].ljust(length, b"\0"), np.uint8))


@given(st.lists(st.integers(1, 30), min_size=1, max_size=14).map(sorted), st.integers(0, 31))
def test_a_boundary_is_the_first_entry_not_before_or_the_last_not_after_a_time(times: list[int], timestamp: int) -> None:
    records = b"".join(bytes(56) + time.to_bytes(8, "big") + bytes(SIZE - 64) for time in times)
    log = CommitLogLookup(files_of(records, len(records)))
    units = encode_units([SIZE * i for i in range(len(times))], [SIZE] * len(times), [0] * len(times))
    queue = QueueLookup(files_of(units, 20 * A_FILE))
    lower = next((offset for offset, time in enumerate(times) if time >= timestamp), len(times))
    upper = max((offset for offset, time in enumerate(times) if time <= timestamp), default=0)
    assert offset_by_time(queue, timestamp, log, Boundary.LOWER) == lower
    assert offset_by_time(queue, timestamp, log, Boundary.UPPER) == upper
    if len(times) > 1:
        assert offset_by_time(QueueLookup(queue.mapped, 20), timestamp, log, Boundary.LOWER) == max(lower, 1)
