"""Makes the stores of the golden runs with held pulls."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from store_format.record.message import encode
from tests.makers.lakes import LOG_FILE, message, write_files

# time, topic, queue, tag, properties
Sent = tuple[int, str, int, str | None, dict[str, str]]


ENTRIES_A_FILE = 5


def java_hash(text: str) -> int:
    """String.hashCode of ASCII text."""
    value = 0
    for char in text:
        value = (31 * value + ord(char)) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def store_of(path: Path, messages: Iterable[Sent]) -> Path:
    """A store with these messages, appended in the order of their times."""
    log = bytearray()
    entries: list[tuple[tuple[str, int], bytes]] = []
    counts: dict[tuple[str, int], int] = {}
    for time, topic, queue, tag, more in sorted(messages, key=lambda sent: sent[0]):
        offset = counts[topic, queue] = counts.get((topic, queue), -1) + 1
        properties = ({} if tag is None else {"TAGS": tag}) | more
        raw_properties = "\x02".join(f"{name}\x01{value}" for name, value in properties.items()).encode()
        new = message(topic.encode(), queue, offset, len(log))
        raw = encode(replace(new, store_timestamp=time, properties=raw_properties))
        entries.append(((topic, queue), struct.pack(">qiq", len(log), len(raw), java_hash(tag or ""))))
        log += raw
    assert len(log) < LOG_FILE
    write_files(path / "commitlog", bytes(log), LOG_FILE)
    for (topic, queue), units in groupby(sorted(entries, key=lambda entry: entry[0]), lambda entry: entry[0]):
        write_files(path / "consumequeue" / topic / str(queue), b"".join(unit for _, unit in units), ENTRIES_A_FILE * 20)
    return path
