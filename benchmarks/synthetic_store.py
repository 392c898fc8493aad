"""A large store of uniform messages, written with numpy in seconds: for measuring, not for semantics."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from store_format.layout import BLANK_MAGIC_CODE, CQ_UNIT, MESSAGE_MAGIC_CODE
from store_format.mapped_files import offset_to_file_name
from udfs.tags import tags_code

# what measurements of brokers that people publish are made with
BODY_BYTES = 1024
BODIES = 256
TAGS = [f"Tag{letter}" for letter in "ABCDEFGHIJ"]
TOPIC_PREFIX = "bench-topic-"
FIRST_TIMESTAMP = 1_700_000_000_000

_RECORD = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">i4"),
        ("bodyCrc", ">i4"),
        ("queueId", ">i4"),
        ("flag", ">i4"),
        ("queueOffset", ">i8"),
        ("physicOffset", ">i8"),
        ("sysFlag", ">i4"),
        ("bornTimestamp", ">i8"),
        ("bornHost", "u1", 8),
        ("storeTimestamp", ">i8"),
        ("storeHost", "u1", 8),
        ("reconsumeTimes", ">i4"),
        ("prepared", ">i8"),
        ("bodyLength", ">i4"),
        ("body", f"S{BODY_BYTES}"),
        ("topicLength", "u1"),
        ("topic", f"S{len(TOPIC_PREFIX) + 2}"),
        ("propertiesLength", ">i2"),
        ("properties", "S40"),
    ]
)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Size of the store: messages go to the queues in turn."""

    messages: int
    topics: int = 8
    queues: int = 8
    log_file_bytes: int = 256 << 20
    queue_file_entries: int = 300_000

    @property
    def log_bytes(self) -> int:
        """Bytes of records."""
        return self.messages * _RECORD.itemsize


def write_store(folder: Path, shape: Shape, seed: int = 1) -> None:
    """Write commit log and consume queues of a store that the broker would load."""
    rng = np.random.default_rng(seed)
    bodies = np.array([rng.integers(97, 123, BODY_BYTES, np.uint8).tobytes() for _ in range(BODIES)], f"S{BODY_BYTES}")
    crcs = np.array([zlib.crc32(body) & 0x7FFFFFFF for body in bodies.tolist()], np.int32)
    tags = rng.integers(0, len(TAGS), shape.messages)
    per_file = (shape.log_file_bytes - 8) // _RECORD.itemsize
    index = np.arange(shape.messages)
    offsets = index // per_file * shape.log_file_bytes + index % per_file * _RECORD.itemsize
    _write_log(folder / "commitlog", shape, per_file, offsets, tags, bodies, crcs)
    _write_queues(folder / "consumequeue", shape, offsets, tags)


def _write_log(
    folder: Path, shape: Shape, per_file: int, offsets: np.ndarray, tags: np.ndarray, bodies: np.ndarray, crcs: np.ndarray
) -> None:
    folder.mkdir(parents=True)
    total_queues = shape.topics * shape.queues
    properties = np.array([f"TAGS\x01{tag}\x02KEYS\x01{'k' * (40 - 15)}".encode() for tag in TAGS], "S40")
    assert all(len(value) == _RECORD["properties"].itemsize for value in properties.tolist())
    for start in range(0, shape.messages, per_file):
        index = np.arange(start, min(start + per_file, shape.messages))
        rows = np.zeros(len(index), _RECORD)
        queue = index % total_queues
        chosen = (index * 2654435761) % BODIES
        rows["size"], rows["magic"] = _RECORD.itemsize, MESSAGE_MAGIC_CODE
        rows["body"], rows["bodyCrc"], rows["bodyLength"] = bodies[chosen], crcs[chosen], BODY_BYTES
        rows["queueId"], rows["queueOffset"], rows["physicOffset"] = queue % shape.queues, index // total_queues, offsets[index]
        rows["bornTimestamp"] = FIRST_TIMESTAMP + index // 50
        rows["storeTimestamp"] = FIRST_TIMESTAMP + index // 50 + 1
        rows["bornHost"], rows["storeHost"] = (10, 0, 0, 1, 0, 0, 80, 1), (10, 0, 0, 2, 0, 0, 42, 159)
        rows["topic"] = np.array([f"{TOPIC_PREFIX}{topic:02d}" for topic in range(shape.topics)], _RECORD["topic"])[queue // shape.queues]
        rows["topicLength"], rows["propertiesLength"] = _RECORD["topic"].itemsize, _RECORD["properties"].itemsize
        rows["properties"] = properties[tags[index]]
        from_offset = start // per_file * shape.log_file_bytes
        with (folder / offset_to_file_name(from_offset)).open("wb") as file:
            rows.tofile(file)
            if len(index) == per_file:
                rest = shape.log_file_bytes - file.tell()
                np.array([rest, BLANK_MAGIC_CODE], ">i4").tofile(file)
            file.truncate(shape.log_file_bytes)


def _write_queues(folder: Path, shape: Shape, offsets: np.ndarray, tags: np.ndarray) -> None:
    total_queues = shape.topics * shape.queues
    codes = np.array([tags_code(tag) for tag in TAGS], np.int64)
    for queue in range(total_queues):
        units = np.zeros(len(offsets[queue::total_queues]), CQ_UNIT)
        units["physicOffset"], units["size"] = offsets[queue::total_queues], _RECORD.itemsize
        units["tagsCode"] = codes[tags[queue::total_queues]]
        place = folder / f"{TOPIC_PREFIX}{queue // shape.queues:02d}" / str(queue % shape.queues)
        place.mkdir(parents=True)
        for start in range(0, len(units), shape.queue_file_entries):
            with (place / offset_to_file_name(start * CQ_UNIT.itemsize)).open("wb") as file:
                units[start : start + shape.queue_file_entries].tofile(file)
                file.truncate(shape.queue_file_entries * CQ_UNIT.itemsize)
