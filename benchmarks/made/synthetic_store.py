"""A large store of uniform messages, written with numpy in seconds: for measuring, not for semantics."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from store_format.files.mapped_files import offset_to_file_name
from store_format.layout import BLANK_MAGIC_CODE, CQ_UNIT, MESSAGE_MAGIC_CODE
from udfs.filters.tags import tags_code

# what measurements of brokers that people publish are made with
BODY_BYTES = 1024
# where nothing but the number of messages counts
SMALL_BODY_BYTES = 16
BODIES = 256
TAGS = [f"Tag{letter}" for letter in "ABCDEFGHIJ"]
TOPIC_PREFIX = "bench-topic-"
FIRST_TIMESTAMP = 1_700_000_000_000
MESSAGES_A_MILLISECOND = 50


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Size of the store: messages go to the queues in turn, or nine of ten to the first and the others to the others in turn (`skewed`)."""

    messages: int
    topics: int = 8
    queues: int = 8
    log_file_bytes: int = 256 << 20
    queue_file_entries: int = 300_000
    body_bytes: int = BODY_BYTES
    skewed: bool = False

    @property
    def record(self) -> np.dtype:
        """A record of the commit log."""
        return np.dtype(
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
                ("body", f"S{self.body_bytes}"),
                ("topicLength", "u1"),
                ("topic", f"S{len(TOPIC_PREFIX) + 2}"),
                ("propertiesLength", ">i2"),
                ("properties", "S40"),
            ]
        )

    @property
    def log_bytes(self) -> int:
        """Bytes of records."""
        return self.messages * self.record.itemsize

    @property
    def all_queues(self) -> int:
        """Queues of all topics."""
        return self.topics * self.queues

    @property
    def messages_a_log_file(self) -> int:
        """Messages that a commit log file has room for beside the 8 bytes that end it."""
        return (self.log_file_bytes - 8) // self.record.itemsize

    def physic_offsets(self, index: np.ndarray) -> np.ndarray:
        """Where messages, by their number, start in the commit log."""
        file, place = np.divmod(index, self.messages_a_log_file)
        offsets: np.ndarray = file * self.log_file_bytes + place * self.record.itemsize
        return offsets

    def stored_by(self, timestamps: np.ndarray) -> np.ndarray:
        """How many messages have a storeTimestamp of at most each time."""
        stored: np.ndarray = np.clip((timestamps - FIRST_TIMESTAMP) * MESSAGES_A_MILLISECOND, 0, self.messages)
        return stored

    def places(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Queue, counted over all topics, and offset there of messages by their number."""
        if not self.skewed:
            return index % self.all_queues, index // self.all_queues
        tens, rest = np.divmod(index, 10)
        turns, others = np.divmod(tens, self.all_queues - 1)
        return np.where(rest < 9, 0, others + 1), np.where(rest < 9, tens * 9 + rest, turns)

    def of_queue(self, queue: int) -> np.ndarray:
        """Numbers of the messages of a queue, in order."""
        if not self.skewed:
            return np.arange(queue, self.messages, self.all_queues)
        if queue:
            return np.arange((queue - 1) * 10 + 9, self.messages, (self.all_queues - 1) * 10)
        index = np.arange(self.messages)
        return index[index % 10 < 9]


def write_store(folder: Path, shape: Shape, seed: int = 1) -> None:
    """Write commit log and consume queues of a store that the broker would load."""
    rng = np.random.default_rng(seed)
    bodies = np.array([rng.integers(97, 123, shape.body_bytes, np.uint8).tobytes() for _ in range(BODIES)], f"S{shape.body_bytes}")
    crcs = np.array([zlib.crc32(body) & 0x7FFFFFFF for body in bodies.tolist()], np.int32)
    tags = rng.integers(0, len(TAGS), shape.messages)
    offsets = shape.physic_offsets(np.arange(shape.messages))
    _write_log(folder / "commitlog", shape, shape.messages_a_log_file, offsets, tags, bodies, crcs)
    _write_queues(folder / "consumequeue", shape, offsets, tags)


def _write_log(
    folder: Path, shape: Shape, per_file: int, offsets: np.ndarray, tags: np.ndarray, bodies: np.ndarray, crcs: np.ndarray
) -> None:
    folder.mkdir(parents=True)
    record = shape.record
    properties = np.array([f"TAGS\x01{tag}\x02KEYS\x01{'k' * (40 - 15)}".encode() for tag in TAGS], "S40")
    assert all(len(value) == record["properties"].itemsize for value in properties.tolist())
    for start in range(0, shape.messages, per_file):
        index = np.arange(start, min(start + per_file, shape.messages))
        rows = np.zeros(len(index), record)
        queue, queue_offset = shape.places(index)
        chosen = (index * 2654435761) % BODIES
        rows["size"], rows["magic"] = record.itemsize, MESSAGE_MAGIC_CODE
        rows["body"], rows["bodyCrc"], rows["bodyLength"] = bodies[chosen], crcs[chosen], shape.body_bytes
        rows["queueId"], rows["queueOffset"], rows["physicOffset"] = queue % shape.queues, queue_offset, offsets[index]
        rows["bornTimestamp"] = FIRST_TIMESTAMP + index // MESSAGES_A_MILLISECOND
        rows["storeTimestamp"] = FIRST_TIMESTAMP + index // MESSAGES_A_MILLISECOND + 1
        rows["bornHost"], rows["storeHost"] = (10, 0, 0, 1, 0, 0, 80, 1), (10, 0, 0, 2, 0, 0, 42, 159)
        rows["topic"] = np.array([f"{TOPIC_PREFIX}{topic:02d}" for topic in range(shape.topics)], record["topic"])[queue // shape.queues]
        rows["topicLength"], rows["propertiesLength"] = record["topic"].itemsize, record["properties"].itemsize
        rows["properties"] = properties[tags[index]]
        from_offset = start // per_file * shape.log_file_bytes
        with (folder / offset_to_file_name(from_offset)).open("wb") as file:
            rows.tofile(file)
            if len(index) == per_file:
                rest = shape.log_file_bytes - file.tell()
                np.array([rest, BLANK_MAGIC_CODE], ">i4").tofile(file)
            file.truncate(shape.log_file_bytes)


def _write_queues(folder: Path, shape: Shape, offsets: np.ndarray, tags: np.ndarray) -> None:
    codes = np.array([tags_code(tag) for tag in TAGS], np.int64)
    for queue in range(shape.all_queues):
        index = shape.of_queue(queue)
        units = np.zeros(len(index), CQ_UNIT)
        units["physicOffset"], units["size"] = offsets[index], shape.record.itemsize
        units["tagsCode"] = codes[tags[index]]
        place = folder / f"{TOPIC_PREFIX}{queue // shape.queues:02d}" / str(queue % shape.queues)
        place.mkdir(parents=True)
        for start in range(0, len(units), shape.queue_file_entries):
            with (place / offset_to_file_name(start * CQ_UNIT.itemsize)).open("wb") as file:
                units[start : start + shape.queue_file_entries].tofile(file)
                file.truncate(shape.queue_file_entries * CQ_UNIT.itemsize)
