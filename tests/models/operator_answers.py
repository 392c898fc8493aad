"""The rows that the views of operators' questions must have for a capture, computed from the capture's files with struct and json alone.

The broker's process logged every exchange (exchange.jsonl). Its clients logged every message that they got (consumption.jsonl). The broker
stored a message for each pull that it sent to another offset (topic OFFSET_MOVED_EVENT). Of the project, only the unpacking is used.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from tests.models.store_lag import QueueFiles, StoreLag
from tests.truth.captured import PULL_MESSAGE, config, exchanges

HEART_BEAT = 34
STATUS_CODES = {0, 19, 20, 21}
CORRECTIONS = {"OFFSET_TOO_SMALL", "OFFSET_OVERFLOW_BADLY", "NO_MESSAGE_IN_QUEUE", "OFFSET_FOUND_NULL", "MESSAGE_WAS_REMOVING"}
# the SQL92 filters of the capture as Python functions; each comparison with a property that is no number is false
SQL92: dict[str, Callable[[dict[str, str]], bool]] = {
    "qty > 4 AND color IN ('red', 'blue')": lambda p: number(p, "qty") > 4 and p.get("color") in {"red", "blue"},
    "NOT (color = 'green') AND qty <= 7": lambda p: p.get("color", "green") != "green" and number(p, "qty") <= 7,
    # the broker throws on each message with this filter: no client got a message through it
    "price BETWEEN 20 AND 60 OR (vip IS NOT NULL AND region = 'eu')": lambda _: False,
}


class Record(NamedTuple):
    """A record of the commit log."""

    topic: str
    queue_id: int
    queue_offset: int
    store_timestamp: int
    body: bytes
    properties: dict[str, str]
    reconsume_times: int


def number(properties: dict[str, str], name: str) -> float:
    """A property as a number; NaN, which fails every comparison, if it is none."""
    try:
        return float(properties.get(name, "nan"))
    except ValueError:
        return float("nan")


def java_hash(text: str) -> int:
    """String.hashCode of a text without surrogates."""
    code = 0
    for char in text:
        code = (31 * code + ord(char)) & 0xFFFFFFFF
    return code - (1 << 32) if code >> 31 else code


class CapturedAnswers:
    """An unpacked capture with its store."""

    def __init__(self, folder: Path, store: Path | None = None) -> None:
        self.folder, self.store = folder, store or folder / "store"
        self.lag = StoreLag(self.store)

    @cached_property
    def pulls(self) -> list[dict[str, Any]]:
        """The exchanges of PULL_MESSAGE."""
        return [one for one in exchanges(self.folder) if one["request"]["code"] == PULL_MESSAGE]

    @cached_property
    def records(self) -> dict[int, Record]:
        """Every record of the commit log by its offset."""
        return {start + at: record for start, content in self.lag.log for at, record in _records(content)}

    def filters(self) -> dict[tuple[str, str], tuple[str, str]]:
        """(group, topic) -> (type, expression): from the last heartbeat or pull with a filter, else from the broker's files."""
        told: dict[tuple[str, str], tuple[int, str, str]] = {}
        for one in exchanges(self.folder):
            at, ext = one["t_arrive_us"], one["request"]["ext"] or {}
            if one["request"]["code"] == HEART_BEAT:
                for group in json.loads(base64.b64decode(one["request"]["body_b64"]))["consumerDataSet"]:
                    for sub in group["subscriptionDataSet"]:
                        told[group["groupName"], sub["topic"]] = (at, sub["expressionType"], sub["subString"])
            elif one["request"]["code"] == PULL_MESSAGE and "subscription" in ext:
                told[ext["consumerGroup"], ext["topic"]] = (at, ext.get("expressionType") or "TAG", ext["subscription"])
        for topic, of_topic in config(self.folder, "consumerFilter.json")["filterDataByTopic"].items():
            for group, data in of_topic["groupFilterData"].items():
                told.setdefault((group, topic), (0, data["expressionType"], data["expression"]))
        return {key: (kind, expression) for key, (_, kind, expression) in told.items()}

    def waiting(self, queue: QueueFiles, offset: int) -> Iterator[tuple[int, int, Record | None]]:
        """(size, tagsCode, record) of each entry from an offset on; the record is None if it is deleted."""
        for number_, (at, size) in sorted(queue.entries.items()):
            if number_ >= max(offset, queue.minimum):
                yield size, java_hash(self.records[at].properties.get("TAGS", "")) if at in self.records else 0, self.records.get(at)

    def matched(self, topic: str, queue_id: int, offset: int, kind: str, expression: str) -> tuple[int, int, int]:
        """The number of waiting messages that a filter lets pass, their bytes, and the ms that the first of them has waited."""
        codes = {java_hash(tag.strip()) for tag in expression.split("||")}

        def passes(code: int, record: Record) -> bool:
            return SQL92[expression](record.properties) if kind == "SQL92" else expression == "*" or code in codes

        found = [
            (size, record.store_timestamp)
            for size, code, record in self.waiting(self.lag.queues.get((topic, queue_id), QueueFiles(0, 0, {})), offset)
            if record is not None and passes(code, record)
        ]
        waited = self.lag.as_of - min(stamp for _, stamp in found) if found else 0
        return len(found), sum(size for size, _ in found), waited

    def moved_events(self) -> list[tuple[str, str, int, int, int]]:
        """(group, topic, queueId, asked, given) of each OFFSET_MOVED_EVENT: the offset of the pull, and the corrected one."""
        bodies = [json.loads(record.body) for record in self.records.values() if record.topic == "OFFSET_MOVED_EVENT"]
        queues = [(one, one["messageQueue"]) for one in bodies]
        return [(one["consumerGroup"], queue["topic"], queue["queueId"], one["offsetRequest"], one["offsetNew"]) for one, queue in queues]


def outcome(exchange: dict[str, Any]) -> str:
    """The outcome of a pull: the store's status for a code of STATUS_CODES, else the name of the code."""
    response = exchange["response"]
    if response is None:
        return "NO_ANSWER"
    return str(response["remark"] if response["code"] in STATUS_CODES else response["name"])


def _records(content: bytes) -> Iterator[tuple[int, Record]]:
    at = 0
    while at + 8 <= len(content):
        size, magic = struct.unpack_from(">ii", content, at)
        if magic != -626843481 or size <= 0:
            return
        yield at, _record(content[at : at + size])
        at += size


def _record(record: bytes) -> Record:
    queue_id, _, queue_offset, _, sys_flag = struct.unpack_from(">iiqqi", record, 12)
    at = 48 + (20 if sys_flag & 16 else 8)
    (stamp,) = struct.unpack_from(">q", record, at)
    at += 8 + (20 if sys_flag & 32 else 8)
    (reconsume_times,) = struct.unpack_from(">i", record, at)
    at += 12
    (length,) = struct.unpack_from(">i", record, at)
    body, at = record[at + 4 : at + 4 + length], at + 4 + length
    topic, at = record[at + 1 : at + 1 + record[at]], at + 1 + record[at]
    (length,) = struct.unpack_from(">h", record, at)
    pairs = (pair.split("\x01") for pair in record[at + 2 : at + 2 + length].decode().split("\x02") if pair)
    return Record(topic.decode(), queue_id, queue_offset, stamp, body, {pair[0]: pair[1] for pair in pairs}, reconsume_times)
