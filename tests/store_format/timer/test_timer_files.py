"""Units of timerlog and slots of timerwheel: of the golden broker, and of files made by hand."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from store_format.timer.timer_files import DELETE, ROLL, TIMER_LOG, TIMER_WHEEL, precision_of, slots_of, units_of
from tests.truth.golden5 import needs_golden5, store_of


def unit(*, size: int = 52, magic: int = 1, at: int = 1000) -> bytes:
    """A unit as TimerMessageStore.doEnqueue puts it into its buffer."""
    return struct.pack(">iqiqiqiiq", size, -1, magic, at, 5, 777, 99, -3, 0)


@pytest.mark.parametrize(
    ("raw", "units"),
    [
        (b"", 0),
        (unit()[:51], 0),
        (unit() * 2, 2),
        (unit() + unit(magic=1 | ROLL | DELETE) + bytes(52), 2),
        (unit() + unit(magic=16) + unit(), 1),  # TimerMessageStore.isMagicOK
        (unit(size=51) + unit(), 0),
        # TimerLog.append ends a full file with a blank: size, 8 bytes of zeros, BLANK_MAGIC_CODE
        (unit() + struct.pack(">iqi", 52, 0, (0xBBCCDDEE ^ (1880681586 + 8)) - (1 << 32)) + bytes(36), 1),
    ],
)
def test_units_end_where_none_follows(raw: bytes, units: int) -> None:
    found = units_of(np.frombuffer(raw, np.uint8))
    assert len(found) == units
    for one in found:
        assert (one["writeTimeMs"], one["delayedTime"], one["physicOffset"], one["size"]) == (1000, 5, 777, 99)


def test_slots_that_were_never_written_are_left_out() -> None:
    raw = bytes(32) + struct.pack(">qqqii", 1_795_579, 0, 104, 3, 0) + bytes(31)
    (slot,) = slots_of(np.frombuffer(raw, np.uint8))
    assert slot.tolist() == (1_795_579, 0, 104, 3, 0)


@needs_golden5
def test_the_golden_wheel_counts_the_units_of_its_log() -> None:
    log = units_of(np.fromfile(store_of("live") / TIMER_LOG / f"{0:020}", np.uint8))
    slots = slots_of(np.fromfile(store_of("live") / TIMER_WHEEL, np.uint8))
    due = (log["writeTimeMs"] + log["delayedTime"]) // 1000
    assert {int(slot["time"]): int(slot["num"]) for slot in slots} == dict(zip(*np.unique(due, return_counts=True), strict=True))


@pytest.mark.parametrize(
    ("setting", "steps"),
    # what MessageStoreConfig of 5.5.0 gives back
    [(-5, 100), (0, 100), (99, 100), (199, 100), (200, 200), (250, 200), (499, 200), (500, 500), (999, 500), (1000, 1000), (60_000, 1000)],
)
def test_steps_are_those_that_the_broker_makes_of_its_setting(setting: int, steps: int) -> None:
    assert precision_of(setting) == steps
