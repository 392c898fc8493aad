"""A store with messages at known times, and the answers to pulls that wait for them, found by hand from the broker's rules.

Long polling: a message that arrives wakes the pulls whose offset it passes and whose filter it matches; the sweep at each full five seconds
wakes those whose offset was passed, and those that waited long enough.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from store_format.record.message import encode
from tests.makers.lakes import LOG_FILE, message, write_files

START = 1_650_000_000_000  # a full five seconds
# (offset in ms, tag) of the messages of queue 0 of "t"; a tag of one letter has the letter's code as its hash code
MESSAGES = ((1000, "a"), (7000, "b"), (8500, "a"), (30_000, "b"))
_ENTRIES_A_FILE = 3


def held_store(path: Path, messages: Sequence[tuple[int, str]] = MESSAGES) -> Path:
    log, entries = bytearray(), b""
    for offset, (time, tag) in enumerate(messages):
        new = message(b"t", 0, offset, len(log))
        raw = encode(replace(new, store_timestamp=START + time, properties=b"TAGS\x01%b\x02x\x01%d" % (tag.encode(), offset)))
        entries += struct.pack(">qiq", len(log), len(raw), ord(tag))
        log += raw
    write_files(path / "commitlog", bytes(log), LOG_FILE)
    write_files(path / "consumequeue" / "t" / "0", entries, _ENTRIES_A_FILE * 20)
    return path


def pull(
    offset: int,
    time: int,
    *,
    timeout: int | None = 15_000,
    sys_flag: int | None = 3,
    topic: str = "t",
    tag: str | None = None,
    sql: str | None = None,
) -> dict[str, Any]:
    """A line of a request file."""
    wanted = None if tag is None else {"type": "TAG", "expression": tag}
    if sql is not None:
        wanted = {"type": "SQL92", "expression": sql}
    request: dict[str, Any] = {"group": "g", "topic": topic, "queueId": 0, "offset": offset, "maxMsgNums": 32, "filter": wanted}
    request["timestamp"] = START + time
    optional = {"sysFlag": sys_flag, "suspendTimeoutMillis": timeout}
    return {"request": request | {name: value for name, value in optional.items() if value is not None}}


OVERFLOW = "OFFSET_OVERFLOW_ONE"
# pull -> when it was woken (ms after START, None if it did not wait), status, nextBeginOffset, messages
CASES: tuple[tuple[dict[str, Any], int | None, str, int, int], ...] = (
    # message 1 arrives
    (pull(1, 2000), 7000, "FOUND", 2, 1),
    # message 1 does not match, message 2 does
    (pull(1, 2000, tag="a"), 8500, "FOUND", 3, 1),
    (pull(1, 2000, sql="x = 2"), 8500, "FOUND", 3, 1),
    # neither message matches: the sweep wakes it
    (pull(1, 2000, tag="c"), 10_000, "NO_MATCHED_MESSAGE", 3, 0),
    (pull(1, 2000, sql="x > 7"), 10_000, "NO_MATCHED_MESSAGE", 3, 0),
    # no message comes within 15 s; only the sweep at 25 s sees that the time is over
    (pull(3, 9000), 25_000, OVERFLOW, 3, 0),
    # no message comes within 20 s either; but one comes at the moment of the sweep that sees this
    (pull(3, 9000, timeout=20_000), 30_000, "FOUND", 4, 1),
    (pull(1, 2000, timeout=0), 5000, OVERFLOW, 1, 0),
    # a message at the moment of the timeout ends the wait too, whatever its tag
    (pull(1, 6000, timeout=500, tag="z"), 7000, "NO_MATCHED_MESSAGE", 2, 0),
    # a queue without messages
    (pull(0, 2000, topic="none"), 20_000, "NO_MESSAGE_IN_QUEUE", 0, 0),
    # pulls that do not wait: they find something, have no suspend bit, or get another code than PULL_NOT_FOUND
    (pull(0, 9000), None, "FOUND", 3, 3),
    (pull(3, 9000, sys_flag=1), None, OVERFLOW, 3, 0),
    (pull(3, 9000, sys_flag=None, timeout=None), None, OVERFLOW, 3, 0),
    (pull(9, 9000), None, "OFFSET_OVERFLOW_BADLY", 0, 0),
)
# the queue's key, topic@queueId, splits at @ into more than two parts, so that no sweep finds the pull
NEVER_SWEPT = pull(0, 2000, topic="a@b")
