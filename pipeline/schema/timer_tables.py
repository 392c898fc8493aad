"""Tables of the files of a broker 5.x's timer."""

from __future__ import annotations

from pipeline.schema.table import BROKER_NAME, Column, Table

TIMER_LOG = Table(
    "timer_log",
    "timerlog of a broker 5.x: a row a unit, in the order of position. The broker appends one for each timer message that is not due yet.",
    (
        BROKER_NAME,
        Column("position", "BIGINT", "offset of the unit in timerlog"),
        Column("prevPos", "BIGINT", "offset of the unit before it in the same slot of timerwheel, -1 for the first"),
        Column("magic", "INT", "1, and 2 for a message to store again at slotTimeMs, and 4 for one that cancels another"),
        Column("writeTimeMs", "BIGINT", "the timer's clock when it wrote the unit, ms"),
        Column("slotTimeMs", "BIGINT", "when the unit is due, ms: earlier than the message is, where that lies beyond the roll window"),
        Column("physicOffset", "BIGINT", "offset of the message in the commit log"),
        Column("size", "INT", "bytes of the message"),
        Column("topicHashCode", "INT", "hash code of the topic that the message is for"),
    ),
    key=("brokerName", "position"),
    checks=("position >= 0", "magic BETWEEN 0 AND 15"),
)

TIMER_SLOT = Table(
    "timer_slot",
    "timerwheel of a broker 5.x: a row a slot that was ever written. The broker clears none: those before its timer's clock are history.",
    (
        BROKER_NAME,
        Column("timeMs", "BIGINT", "when its units are due, ms"),
        Column("firstPos", "BIGINT", "offset in timerlog of its first unit"),
        Column("lastPos", "BIGINT", "offset of its last unit; prevPos leads from there to the first"),
        Column("num", "INT", "units in it, less those that cancel another"),
        Column("magic", "INT", "not used by the broker"),
    ),
    key=("brokerName", "timeMs"),
)
