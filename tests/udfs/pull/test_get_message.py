"""The kernel getMessage on entries made by hand: the end of a scan, the entries that it takes, and the effect of each verdict.

Recorded pulls go through the kernel in tests/pipeline/replay; the caps that end a batch are in test_batch_caps.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipeline.settings.settings import BrokerSettings
from udfs.filters.tags import tags_code
from udfs.pull import get_message as gm
from udfs.pull.codes import GetMessageStatus
from udfs.pull.scan_settings import scan_caps

DEFAULTS = BrokerSettings.from_sources().pull_settings()
BYTES = ("max_transfer_bytes_on_message_in_memory", "max_transfer_bytes_on_message_in_disk")
COUNTS = ("max_transfer_count_on_message_in_memory", "max_transfer_count_on_message_in_disk")


def scanned(verdicts: list[int], *, log_end: int = 500, tag: str | None = None, wanted: int = 8) -> dict[str, Any]:
    """The answer to one pull over entries of 100 bytes, all of them of tag TagA, in a log that ends at `log_end`."""
    count = len(verdicts)
    block = gm.Block(
        0,
        np.arange(count, dtype=np.int64) * 100,
        np.full(count, 100, np.int32),
        np.full(count, tags_code("TagA"), np.int64),
        np.array(verdicts, np.uint8),
    )
    changed: dict[str, Any] = dict.fromkeys(BYTES, 10**6) | dict.fromkeys(COUNTS, 32)
    caps = scan_caps(replace(DEFAULTS, **changed), 1000)
    caps[gm.MEMORY] = 10**9
    codes = np.array([] if tag is None else [tags_code(tag)], np.int32)
    request = np.array([[0, wanted, 0, count, log_end, gm.NO_FILTER if tag is None else 0]], np.int64)
    log = gm.CommitLogFiles(np.array([0], np.int64), np.array([1000], np.int64), 1000)
    found = gm.get_message(request, caps, block, gm.TagCodes(np.array([0, len(codes)]), codes), log)
    status = int(found.columns[0, gm.STATUS])
    name = gm.EXCEPTIONS[status].rpartition(".")[2] if status < 0 else GetMessageStatus(status).name
    return {"status": name, "next": int(found.columns[0, gm.NEXT]), "taken": found.taken.tolist()}


BITS, LOG, UNREADABLE, NPE = gm.NOT_BY_CONSUME_QUEUE, gm.NOT_BY_COMMIT_LOG, gm.UNIT_UNDERFLOWS, -gm.NULL_POINTER
SCANS = [
    ([0, LOG, 0, BITS], {}, "FOUND", 4, [0, 2]),
    ([LOG, BITS, LOG], {}, "NO_MATCHED_MESSAGE", 3, []),
    # a verdict has no effect on an entry for which the batch has no room
    ([0, NPE], {"wanted": 1}, "FOUND", 1, [0]),
    ([0, UNREADABLE], {"wanted": 1}, "FOUND", 1, [0]),
    ([0, NPE], {}, "NullPointerException", 0, []),
    ([0, -gm.INDEX_OUT_OF_BOUNDS], {}, "IndexOutOfBoundsException", 0, []),
    ([LOG, -gm.BUFFER_UNDERFLOW], {}, "BufferUnderflowException", 0, []),
    ([LOG, UNREADABLE], {}, "BufferUnderflowException", 0, []),
    # the unit is read whatever the filter, the message only where tag and bits let it pass and the log has it
    ([UNREADABLE], {"tag": "TagB"}, "BufferUnderflowException", 0, []),
    ([NPE], {"tag": "TagB"}, "NO_MATCHED_MESSAGE", 1, []),
    ([NPE], {"log_end": 50}, "MESSAGE_WAS_REMOVING", 1, []),
    ([LOG], {"log_end": 50}, "MESSAGE_WAS_REMOVING", 1, []),
    ([BITS], {"log_end": 50}, "NO_MATCHED_MESSAGE", 1, []),
    # after a removed message the other entries of its file are skipped, also units that cannot be read
    ([0, UNREADABLE, NPE], {"log_end": 0}, "MESSAGE_WAS_REMOVING", 3, []),
]


@pytest.mark.parametrize(("verdicts", "options", "status", "next_offset", "taken"), SCANS)
def test_a_verdict_has_its_effect_where_the_scan_comes_to_it(
    verdicts: list[int], options: dict[str, Any], status: str, next_offset: int, taken: list[int]
) -> None:
    assert scanned(verdicts, **options) == {"status": status, "next": next_offset, "taken": taken}
