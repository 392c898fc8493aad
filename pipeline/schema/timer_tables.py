"""Tables of the files of a broker 5.x's timer."""

from __future__ import annotations

from pipeline.schema.table import BROKER_NAME, Column, Table

TIMER_LOG = Table(
    "timer_log",
    "timerlog of a broker 5.x: one row per unit, in the order of position. The broker appends a unit for "
    "each timer message that is not due yet.",
    (
        BROKER_NAME,
        Column("position", "BIGINT", "offset of the unit in timerlog"),
        Column("prevPos", "BIGINT", "offset in timerlog of the unit before this one in the same slot of timerwheel; -1 for the first unit"),
        Column(
            "magic", "INT", "bits: 1 always; 2 for a message that is to be stored again at slotTimeMs; 4 for a message that cancels another"
        ),
        Column("writeTimeMs", "BIGINT", "the timer's clock when it wrote the unit, ms since 1970"),
        Column(
            "slotTimeMs",
            "BIGINT",
            "when the unit is due, ms since 1970; earlier than its message is due if that lies beyond the roll window",
        ),
        Column("physicOffset", "BIGINT", "offset of the message in the commit log"),
        Column("size", "INT", "length of the message's record in bytes"),
        Column("topicHashCode", "INT", "hash code of the topic that the message is for"),
    ),
    key=("brokerName", "position"),
    checks=("position >= 0", "magic BETWEEN 0 AND 15"),
)

TIMER_SLOT = Table(
    "timer_slot",
    "timerwheel of a broker 5.x: one row per slot that was ever written. The broker clears no slot; "
    "slots before the timer's clock are history.",
    (
        BROKER_NAME,
        Column("timeMs", "BIGINT", "when the slot's units are due, ms since 1970"),
        Column("firstPos", "BIGINT", "offset in timerlog of the slot's first unit"),
        Column("lastPos", "BIGINT", "offset in timerlog of the slot's last unit; prevPos leads from there to the first"),
        Column(
            "num", "INT", "number of the slot's units as the wheel counts it: units of messages minus units that cancel another message"
        ),
        Column("magic", "INT", "the broker does not use it"),
    ),
    key=("brokerName", "timeMs"),
)
