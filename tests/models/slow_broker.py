"""getMessage in plain Python over a store's files, one pull at a time: for pulls that no real broker can answer.

The real broker answers as of now only. For a pull as of its own time, or cut at a recorded maxOffset, the replay is compared with this
model. A test first compares the model with recorded answers of the broker. The model filters entries and messages with
udfs.filters.message_filter, one at a time.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

from store_format.config.config_files import decode_consumer_filters
from store_format.record.message import decode_properties
from tests.runs.replaying import Line
from udfs.filters import message_filter as mf
from udfs.filters.bloom_filter import BloomFilter
from udfs.filters.consumer_filter_manager import ConsumerFilterManager, build, is_tag_type

Answer = dict[str, Any]
NO_LONG = -(2**63)
UNIT = 20
MAGIC = 0xDAA320A7
RECORD_MIN_SIZE = 91
MAX_ADDR = -(2**31) - 1  # ConsumeQueueExt: a tagsCode up to here is an address


class Thrown(Exception):  # noqa: N818 - not an error here: the broker's answer
    """An exception of getMessage; its text is the class."""


class Unit(NamedTuple):
    """A unit of the consume queue extension."""

    tags_code: int
    msg_store_time: int
    bit_map: bytes | None


class Bounds(NamedTuple):
    """The bounds that a pull sees: the offsets of its queue, and the end of the log."""

    min_offset: int
    max_offset: int
    log_end: int


def int32(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def hash_code(tag: str) -> int:
    code = 0
    units = tag.encode("utf-16-be")
    for at in range(0, len(units), 2):
        code = int32(code * 31 + units[at] * 256 + units[at + 1])
    return code


def decode_properties_of(raw: bytes) -> bytes:
    """MessageDecoder.decodeProperties: the bytes that become the properties' string, empty for null."""

    def get(form: str, at: int) -> int:
        if at < 0 or at + struct.calcsize(form) > len(raw):
            raise Thrown("java.lang.IndexOutOfBoundsException")
        return int(struct.unpack_from(form, raw, at)[0])

    sys_flag = get(">i", 36)
    body_size_position = 4 + 4 + 4 + 4 + 4 + 8 + 8 + 4 + 8 + 8 + 4 + 8 + (20 if sys_flag & 16 else 8) + (20 if sys_flag & 32 else 8)
    topic_length_position = int32(body_size_position + 4 + get(">i", body_size_position))
    after_topic = topic_length_position + 1 + get(">b", topic_length_position)
    properties_length = get(">h", after_topic)
    if properties_length <= 0:
        return b""
    if after_topic + 2 + properties_length > len(raw):
        raise Thrown("java.nio.BufferUnderflowException")
    return raw[after_topic + 2 : after_topic + 2 + properties_length]


def stamp_of(record: bytes) -> int:
    v6_born_host = struct.unpack_from(">i", record, 36)[0] & 0x10
    return int(struct.unpack_from(">q", record, 68 if v6_born_host else 56)[0])


def matches(wanted: mf.ExpressionMessageFilter, record: bytes) -> bool:
    """MessageFilter.isMatchedByCommitLog. It looks into the message only if it has to."""
    raw = decode_properties_of(record) if wanted.commit_log_condition() else b""
    try:
        return wanted.is_matched_by_commit_log(decode_properties(raw) if raw else None)
    except mf.RetryTopicMissingError:
        raise Thrown("java.lang.NullPointerException") from None


@dataclass(eq=False)
class SlowBroker:
    """A broker over a store's files, with the settings of a trace's header (`config`)."""

    store: Path
    config: dict[str, Any]
    log_end: int

    @cached_property
    def log(self) -> dict[int, bytes]:
        return {int(path.name): path.read_bytes() for path in sorted((self.store / "commitlog").iterdir())}

    @cache  # noqa: B019 - one per test
    def queue(self, topic: str, queue_id: int) -> dict[int, bytes]:
        folder = self.store / "consumequeue" / topic / str(queue_id)
        return {int(path.name) // UNIT: path.read_bytes() for path in sorted(folder.iterdir())} if folder.is_dir() else {}

    def entries(self, topic: str, queue_id: int, offset: int, end: int) -> list[tuple[int, int, int]]:
        """The entries from `offset` to the end of the queue file that has it, but before `end`; none if there is no file."""
        size = self.config["mappedFileSizeConsumeQueue"] // UNIT
        first = offset // size * size
        content = self.queue(topic, queue_id).get(first, b"")
        return [struct.unpack_from(">qiq", content, (at - first) * UNIT) for at in range(offset, min(first + size, end)) if content]

    @cache  # noqa: B019 - one per test
    def entry_stamps(self, topic: str, queue_id: int) -> list[tuple[int, int]]:
        """Offset and store timestamp of each entry; NO_LONG if the log has no message for it."""
        found = []
        for first, content in self.queue(topic, queue_id).items():
            for number, (physic, size, _) in enumerate(struct.iter_unpack(">qiq", content)):
                there = self.bytes_at(physic, size, self.log_end) if physic >= min(self.log) else None
                found.append((first + number, NO_LONG if there is None or size < RECORD_MIN_SIZE else stamp_of(there[1])))
        return found

    @cache  # noqa: B019 - one per test
    def extension(self, topic: str, queue_id: int) -> dict[int, bytes]:
        folder = self.store / "consumequeue_ext" / topic / str(queue_id)
        return {int(path.name): path.read_bytes() for path in sorted(folder.iterdir())} if folder.is_dir() else {}

    def ext_unit(self, topic: str, queue_id: int, tags_code: int) -> Unit | None:
        """ConsumeQueue.getExt."""
        files = self.extension(topic, queue_id) if self.config["enableConsumeQueueExt"] else {}
        size, offset = self.config["mappedFileSizeConsumeQueueExt"], tags_code + 2**63
        content = files.get(offset // size * size, next(iter(files.values()), b"") if offset == 0 else b"")
        at = offset % size
        if len(content) < at + 2 or struct.unpack_from(">h", content, at)[0] < 1:
            return None
        _, code, store_time, length = struct.unpack_from(">hqqh", content, at)
        return Unit(code, store_time, content[at + 20 : at + 20 + length] if length > 0 else None)

    @cached_property
    def manager(self) -> ConsumerFilterManager:
        """The filters that groups registered."""
        names = {"errorRate": "maxErrorRateOfBloomFilter", "expectConsumers": "expectConsumerNumUseFilter"}
        bloom = self.config.get("bloom") or {short: self.config[name] for short, name in names.items()}
        manager = ConsumerFilterManager(BloomFilter.create_by_fn(bloom["errorRate"], bloom["expectConsumers"]))
        file = self.store / "config" / "consumerFilter.json"
        if file.exists():
            manager.load(decode_consumer_filters(file.read_bytes(), str(file)), 0)
        return manager

    def filter_of(self, request: dict[str, Any]) -> mf.ExpressionMessageFilter | None:
        """The MessageFilter that PullMessageProcessor makes."""
        wanted, topic, group = request["filter"], request["topic"], request["group"]
        if wanted is None:
            return None
        subscription = mf.TopicSubscription.build(topic, wanted["expression"], wanted["type"])
        data = None
        if not is_tag_type(wanted["type"]):
            brought = build(topic, group, wanted["expression"], wanted["type"], 1, 0)
            data = self.manager.get(topic, group) if wanted.get("registered") else brought
        if self.config["filterSupportRetry"]:
            return mf.ExpressionForRetryMessageFilter(subscription, data, self.manager.bloom_filter, self.manager)
        return mf.ExpressionMessageFilter(subscription, data, self.manager.bloom_filter)

    def bytes_at(self, offset: int, size: int, log_end: int) -> tuple[int, bytes] | None:
        """CommitLog.getMessage: the position of the bytes, and the bytes."""
        length = self.config["mappedFileSizeCommitLog"]
        start = offset // length * length
        if start not in self.log:
            if offset != 0:
                return None
            start = min(self.log)
        position = offset % length
        if int32(position + size) > min(length, max(log_end - start, 0)):
            return None
        if size < 0 or size > length - position:
            raise Thrown("java.lang.IllegalArgumentException")
        return start + position, self.log[start][position : position + size]

    @cached_property
    def records(self) -> list[tuple[int, int]]:
        """End and store timestamp of each record of the log."""
        return list(self._records())

    def _records(self) -> Iterator[tuple[int, int]]:
        for start, content in self.log.items():
            at = 0
            while at + 8 <= len(content) and start + at < self.log_end:
                size, magic = struct.unpack_from(">iI", content, at)
                if magic != MAGIC or size <= 0:
                    break
                yield start + at + size, stamp_of(content[at : at + size])
                at += size

    def as_of(self, topic: str, queue_id: int, whole: Bounds, time: int) -> Bounds:
        """The bounds as of a time: the queue up to the last entry, the log up to the last record, that was stored by then."""
        visible = (offset + 1 for offset, stamp in self.entry_stamps(topic, queue_id) if stamp <= time and offset < whole.max_offset)
        return Bounds(
            min_offset=whole.min_offset,
            max_offset=max([whole.min_offset, *visible]),
            log_end=max((end for end, stamp in self.records if stamp <= time), default=min(self.log)),
        )

    def in_memory(self) -> int:
        return int(self.config["totalPhysicalMemorySize"] * (self.config["accessMessageInMemoryMaxRatio"] / 100.0))

    def is_full(self, size: int, asked: int, total: int, count: int, *, in_disk: bool) -> bool:
        where = "Disk" if in_disk else "Memory"
        if total == 0 or count == 0:
            return False
        if asked <= count or int32(total + size) > self.config[f"maxTransferBytesOnMessageIn{where}"]:
            return True
        return count > int32(self.config[f"maxTransferCountOnMessageIn{where}"] - 1)

    def get_message(self, request: dict[str, Any], bounds: Bounds) -> Answer:
        """The answer to one pull; each message as startOffset, storeSize and rawCrc32."""
        minimum, maximum, _ = bounds
        offset = request["offset"]
        keeps = self.config["brokerRole"] == "SLAVE" and not self.config["offsetCheckInSlave"]
        answer = {
            "status": "NO_MESSAGE_IN_QUEUE",
            "nextBeginOffset": 0,
            "minOffset": minimum,
            "maxOffset": maximum,
            "messageCount": 0,
            "bufferTotalSize": 0,
            "suggestPullingFromSlave": False,
            "msgCount4Commercial": 0,
            "diskFallBehind": None,
            "messages": [],
        }
        if maximum == 0:
            pass
        elif offset < minimum:
            answer |= {"status": "OFFSET_TOO_SMALL", "nextBeginOffset": minimum}
        elif offset == maximum:
            answer |= {"status": "OFFSET_OVERFLOW_ONE", "nextBeginOffset": offset}
        elif offset > maximum:
            answer |= {"status": "OFFSET_OVERFLOW_BADLY", "nextBeginOffset": maximum if minimum else 0}
        elif entries := self.entries(request["topic"], request["queueId"], offset, maximum):
            try:
                return self.scan(request, bounds, entries, answer)
            except Thrown as thrown:
                return {"exception": str(thrown)}
        else:
            size = self.config["mappedFileSizeConsumeQueue"] // UNIT
            answer |= {"status": "OFFSET_FOUND_NULL", "nextBeginOffset": offset + size - offset % size}
        if keeps:
            answer["nextBeginOffset"] = offset
        return answer

    def scan(self, request: dict[str, Any], bounds: Bounds, entries: list[tuple[int, int, int]], answer: Answer) -> Answer:
        asked, log_end = request["maxMsgNums"], bounds.log_end
        if asked < 0:
            return {"exception": "java.lang.IllegalArgumentException"}
        wanted, window = self.filter_of(request), max(16000, int32(asked * UNIT))
        messages: list[dict[str, int]] = []
        status, total, removed_until, read, looked_at = "NO_MATCHED_MESSAGE", 0, NO_LONG, 0, 0
        for physic, size, tags_code in entries:
            if looked_at * UNIT >= window:
                break
            read = physic
            if removed_until == NO_LONG or physic >= removed_until:
                in_disk = log_end - physic > self.in_memory()
                if self.is_full(size, asked, total, len(messages), in_disk=in_disk):
                    break
                unit = self.ext_unit(request["topic"], request["queueId"], tags_code) if tags_code <= MAX_ADDR else None
                code = tags_code if tags_code > MAX_ADDR else None if unit is None else unit.tags_code
                if wanted is not None and not wanted.is_matched_by_consume_queue(code, unit):
                    status = status if total else "NO_MATCHED_MESSAGE"
                elif (found := self.bytes_at(physic, size, log_end)) is None:
                    status = status if total else "MESSAGE_WAS_REMOVING"
                    length = self.config["mappedFileSizeCommitLog"]
                    removed_until = physic + length - physic % length
                elif wanted is not None and not matches(wanted, found[1]):
                    status = status if total else "NO_MATCHED_MESSAGE"
                else:
                    messages.append({"startOffset": found[0], "storeSize": size, "rawCrc32": zlib.crc32(found[1])})
                    status, total, removed_until = "FOUND", int32(total + size), NO_LONG
            looked_at += 1
        return answer | {
            "status": status,
            "nextBeginOffset": request["offset"] + looked_at,
            "messageCount": len(messages),
            "bufferTotalSize": total,
            "suggestPullingFromSlave": log_end - read > self.in_memory(),
            "msgCount4Commercial": sum(-(-message["storeSize"] // 65536) for message in messages),
            "diskFallBehind": log_end - read if self.config["diskFallRecorded"] else None,
            "messages": messages,
        }


def bounds_of(line: Line, lines: list[Line], log_end: int) -> Bounds:
    """The bounds in the answer; for a pull that threw, those in another answer for the same queue."""
    same = (other for other in [line, *lines] if all(other["request"][name] == line["request"][name] for name in ("topic", "queueId")))
    known = next(other["response"] for other in same if "maxOffset" in other["response"])
    return Bounds(known["minOffset"], known["maxOffset"], log_end)
