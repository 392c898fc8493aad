"""Reads the files of a broker's timer: the units of timerlog, and the slots of timerwheel.

Broker source (5.5.0): TimerLog, TimerWheel, Slot and TimerMessageStore.doEnqueue, recoverAndRevise.
Rule: the timer appends a unit to timerlog for each message of rmq_sys_wheel_timer that is not due yet. A slot of timerwheel has the number
of units that are due at its time, and the places of the first and the last of them; each unit has the place of the one before.
Surprise: a message that is due beyond the roll window gets a unit with an earlier time, at which the broker stores the message again. No
slot is cleared: it is written over when its place in the wheel comes round again, after 1,209,600 slots (14 days of seconds).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from store_format.big_endian import Bytes

TIMER_LOG: Final = "timerlog"
TIMER_WHEEL: Final = "timerwheel"
UNIT: Final = np.dtype(
    [
        ("unitSize", ">i4"),
        ("prevPos", ">i8"),
        ("magic", ">i4"),
        ("writeTimeMs", ">i8"),
        ("delayedTime", ">i4"),
        ("physicOffset", ">i8"),
        ("size", ">i4"),
        ("topicHashCode", ">i4"),
        ("reserved", ">i8"),
    ]
)
SLOT: Final = np.dtype([("time", ">i8"), ("firstPos", ">i8"), ("lastPos", ">i8"), ("num", ">i4"), ("magic", ">i4")])
# TimerMessageStore.MAGIC_ROLL, MAGIC_DELETE, and the bits that isMagicOK allows
ROLL: Final = 2
DELETE: Final = 4
_MAGIC_BITS: Final = 0xF
# the lengths of the timer's steps, ms
_PRECISIONS: Final = (100, 200, 500, 1000)
DEFAULT_PRECISION: Final = 1000


def precision_of(setting: int) -> int:
    """The length of the timer's steps, ms, for timerPrecisionMs: the longest allowed length up to the setting, or else the shortest.

    Broker source (5.5.0): MessageStoreConfig.setTimerPrecisionMs.
    """
    return max((step for step in _PRECISIONS if step <= setting), default=_PRECISIONS[0])


def precision_between(slot: np.void, unit: np.void) -> int | None:
    """The length of the timer's steps by the times of a slot and of a unit in it, ms; None if no broker has such steps."""
    time, due = int(slot["time"]), int(unit["writeTimeMs"]) + int(unit["delayedTime"])
    return next((step for step in _PRECISIONS if step * time == due), None)


def units_of(raw: Bytes) -> NDArray[np.void]:
    """The units at the beginning of `raw`, bytes of a timerlog file, up to the first bytes that are no unit, as an array of UNIT."""
    units = raw[: len(raw) // UNIT.itemsize * UNIT.itemsize].view(UNIT)
    is_none = (units["unitSize"] != UNIT.itemsize) | (units["magic"] & ~_MAGIC_BITS != 0)
    bad = np.flatnonzero(is_none)
    return units[: bad[0]] if len(bad) else units


def slots_of(raw: Bytes) -> NDArray[np.void]:
    """The slots in some bytes of timerwheel that were ever written, as an array of SLOT; `time` counts the steps of `precision_of`."""
    slots = raw[: len(raw) // SLOT.itemsize * SLOT.itemsize].view(SLOT)
    return slots[slots["time"] > 0]
