"""Consume lag computed from a store's files with struct and json alone; tests compare the view with it.

Nothing of the project is used here, and nothing is fast. The broker shut these stores down cleanly, so its load changes
nothing: the last file of the log ends where its records end, the last file of a queue where its entries end.
"""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

ENTRY = struct.Struct(">qiq")
RECORD_MAGIC = -626843481
PRE_BLANK_SIZE = 2147483647
INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True)
class QueueFiles:
    """A consume queue: its bounds, and (physicOffset, size) of each entry that has a file."""

    minimum: int
    maximum: int
    entries: dict[int, tuple[int, int]]


def mapped_files(folder: Path) -> list[tuple[int, bytes]]:
    """(offset of its first byte, content) of each file of a folder, in order."""
    return [(int(path.name), path.read_bytes()) for path in sorted(folder.iterdir())]


def records_end(content: bytes) -> tuple[int, list[int]]:
    """The position at which the records of a log file end, and their store timestamps."""
    at, stamps = 0, []
    while at + 8 <= len(content):
        size, magic = struct.unpack_from(">ii", content, at)
        if magic != RECORD_MAGIC or size <= 0:
            break
        stamps.append(stamp_at(content, at))
        at += size
    return at, stamps


def stamp_at(content: bytes, at: int) -> int:
    """The store timestamp of the record at a position; the client's address before it is 8 bytes or, with bit 16 of sysFlag, 20."""
    (sys_flag,) = struct.unpack_from(">i", content, at + 36)
    (stamp,) = struct.unpack_from(">q", content, at + (68 if sys_flag & 16 else 56))
    return int(stamp)


class StoreLag:
    """A store directory, and the rows that consume_lag must have for it."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.log = mapped_files(store / "commitlog")
        ends = [records_end(content) for _, content in self.log]
        self.last_end = ends[-1][0]
        self.as_of = max(stamp for _, stamps in ends for stamp in stamps)

    @cached_property
    def queues(self) -> dict[tuple[str, int], QueueFiles]:
        """Every queue with a file, by topic and queueId."""
        folders = [folder for topic in (self.store / "consumequeue").iterdir() for folder in topic.iterdir()]
        return {(folder.parent.name, int(folder.name)): self._queue(mapped_files(folder)) for folder in folders}

    def _queue(self, files: list[tuple[int, bytes]]) -> QueueFiles:
        entries: dict[int, tuple[int, int]] = {}
        maximum = 0
        for start, content in files:
            for number, (physic_offset, size, _) in enumerate(ENTRY.iter_unpack(content), start // ENTRY.size):
                if physic_offset < 0 or size <= 0:
                    break
                entries[number] = (physic_offset, size)
                maximum = number + 1
        first = range(files[0][0] // ENTRY.size, (files[0][0] + len(files[0][1])) // ENTRY.size)
        kept = (number for number in first if number in entries and entries[number][0] >= self.log[0][0])
        return QueueFiles(next(kept, 0), maximum, entries)

    def stamp(self, entry: tuple[int, int] | None) -> int | None:
        """The store timestamp of an entry's message; None if the log does not have it."""
        for start, content in self.log:
            used = self.last_end if start == self.log[-1][0] else len(content)
            if entry is not None and start <= entry[0] and entry[0] + entry[1] <= start + used:
                return stamp_at(content, entry[0] - start) or None
        return None

    @cached_property
    def offsets(self) -> dict[tuple[str, str], dict[int, int]]:
        """config/consumerOffset.json by group and topic; the broker writes its numeric keys without quotes."""
        text = (self.store / "config" / "consumerOffset.json").read_text(encoding="utf-8")
        table = json.loads(re.sub(r"([{,]\s*)(-?\d+)\s*:", r'\1"\2":', text))["offsetTable"]
        named = ((key.split("@"), queues) for key, queues in table.items())
        return {(group, topic): {int(queue): offset for queue, offset in queues.items()} for (topic, group), queues in named}

    def rows(self, broker: str) -> dict[tuple[str, str, str, int], dict[str, Any]]:
        """The rows that consume_lag must have, by (brokerName, consumerGroup, topic, queueId)."""
        found = {}
        for (group, topic), stored in self.offsets.items():
            for queue_id in {*stored, *(number for name, number in self.queues if name == topic)}:
                row = self._row(self.queues.get((topic, queue_id)), stored.get(queue_id))
                found[broker, group, topic, queue_id] = row
        return found

    def _row(self, queue: QueueFiles | None, offset: int | None) -> dict[str, Any]:
        known = queue or QueueFiles(0, 0, {})
        row: dict[str, Any] = {"minOffset": known.minimum, "brokerOffset": known.maximum, "consumerOffset": offset, "asOf": self.as_of}
        if offset is None:
            return row | {"lag": None, "lagBytes": None, "lagMillis": None, "lastConsumedTimestamp": None, "reason": "NO_OFFSET"}
        ahead = [number for number in known.entries if number >= max(offset, known.minimum)]
        waiting_since = self.stamp(known.entries.get(offset))
        lag = known.maximum - offset
        row["lag"] = lag if lag in INT64 else None
        row["lagMillis"] = 0 if lag == 0 else None if waiting_since is None else self.as_of - waiting_since
        row["lastConsumedTimestamp"] = self.stamp(known.entries.get(offset - 1))
        missing = known.maximum - max(offset, known.minimum) > len(ahead)
        row["lagBytes"] = None if missing else sum(known.entries[number][1] for number in ahead)
        return row | {"reason": reason(row, queue, missing=missing)}


def reason(row: dict[str, Any], queue: QueueFiles | None, *, missing: bool) -> str | None:
    """The first reason that holds; None if the row has no reason."""
    offset = row["consumerOffset"]
    _, next_size = (queue.entries.get(offset) if queue else None) or (None, None)
    reasons = {
        "NO_QUEUE": queue is None and offset != 0,
        "OFFSET_BEYOND_BROKER_OFFSET": offset > row["brokerOffset"],
        "OFFSET_BELOW_MIN": offset < row["minOffset"],
        "PRE_BLANK": row["lagMillis"] is None and next_size == PRE_BLANK_SIZE,
        "NO_QUEUE_FILE": missing,
        "MESSAGE_REMOVED": row["lagMillis"] is None,
        "NOTHING_CONSUMED": row["lastConsumedTimestamp"] is None and offset == 0,
        "LAST_CONSUMED_REMOVED": row["lastConsumedTimestamp"] is None,
    }
    return next((name for name, holds in reasons.items() if holds), None)


def write_offsets(store: Path, offsets: dict[tuple[str, str], dict[int, int]]) -> None:
    """Write config/consumerOffset.json for (topic, group) as the broker writes it: tabs, numeric keys without quotes."""
    keys = []
    for (topic, group), queues in offsets.items():
        listed = ",".join(f"{queue}:{offset}" for queue, offset in queues.items())
        keys.append(f"\t\t{json.dumps(f'{topic}@{group}', ensure_ascii=False)}:{{{listed}\n\t\t}}")
    (store / "config").mkdir(exist_ok=True)
    text = '{\n\t"offsetTable":{\n' + ",\n".join(keys) + "\n\t}\n}"
    (store / "config" / "consumerOffset.json").write_text(text, encoding="utf-8")
