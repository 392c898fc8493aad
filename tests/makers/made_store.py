"""Makes stores of chosen records that no broker writes: with store timestamps in any order, and queues of many small entries.

The real broker loads them as they are (tests/long/test_oracle.py checks this).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from store_format.files.mapped_files import offset_to_file_name
from store_format.record.message import Host, Message, body_crc32, encode, encode_properties
from tests.models.slow_broker import UNIT, Bounds, hash_code

HOST = Host(address=bytes([127, 0, 0, 1]), port=10911)
BLANK_MAGIC = 0xCBD43194


@dataclass(frozen=True, kw_only=True)
class Record:
    """One message to be stored."""

    topic: str = "T"
    queue_id: int = 0
    tag: str | None = None
    stamp: int = 0
    body: bytes = b"body"


@dataclass(frozen=True, kw_only=True)
class MadeStore:
    """A store on disk, with the header of its trace and the bounds of each queue."""

    path: Path
    sizes: dict[str, int]
    log_end: int
    queues: dict[tuple[str, int], Bounds]


def make_store(path: Path, records: Iterable[Record], *, log_file: int, queue_file: int) -> MadeStore:
    """Write commit log and consume queues as a broker that was shut down leaves them."""
    log, queues = bytearray(), dict[tuple[str, int], bytearray]()
    for record in records:
        entries = queues.setdefault((record.topic, record.queue_id), bytearray())
        size = len(_encoded(record, 0, 0))
        rest = log_file - len(log) % log_file
        if size + 8 > rest:
            log += struct.pack(">iI", rest, BLANK_MAGIC) + bytes(rest - 8)
        code = hash_code(record.tag) if record.tag else 0
        entries_before = len(entries) // UNIT
        entries += struct.pack(">qiq", len(log), size, code)
        log += _encoded(record, entries_before, len(log))
    _write_files(path / "commitlog", log, log_file)
    for (topic, queue_id), entries in queues.items():
        _write_files(path / "consumequeue" / topic / str(queue_id), entries, queue_file)
    return MadeStore(
        path=path,
        sizes={"mappedFileSizeCommitLog": log_file, "mappedFileSizeConsumeQueue": queue_file},
        log_end=len(log),
        queues={queue: Bounds(0, len(entries) // UNIT, len(log)) for queue, entries in queues.items()},
    )


def _encoded(record: Record, queue_offset: int, physic_offset: int) -> bytes:
    message = Message(
        queue_id=record.queue_id,
        queue_offset=queue_offset,
        physic_offset=physic_offset,
        born_timestamp=record.stamp,
        born_host=HOST,
        store_timestamp=record.stamp,
        store_host=HOST,
        body=record.body,
        body_crc=body_crc32(record.body),
        topic=record.topic.encode(),
        properties=encode_properties({"TAGS": record.tag} if record.tag else {}),
    )
    return encode(message)


def _write_files(folder: Path, content: bytes | bytearray, file_size: int) -> None:
    folder.mkdir(parents=True)
    for start in range(0, len(content), file_size):
        (folder / offset_to_file_name(start)).write_bytes(content[start : start + file_size].ljust(file_size, b"\0"))
