"""Reads workload files: the messages that producers send to a generated store (docs/workload.md).

Not the broker's code. Every field is checked before a byte is written; the error for an unknown field names the nearest known one.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.files.small_file import small_file
from pipeline.generate import workload_fields as read
from pipeline.generate.workload_fields import Range, Reader, Shares
from pipeline.settings.settings import Value
from store_format.record.message import Host

STORE_HOST = Host(address=bytes([10, 0, 0, 1]), port=10911)
PRODUCER = Host(address=bytes([10, 0, 1, 1]), port=40001)
DEFAULT_START = 1_767_225_600_000  # 2026-01-01 00:00:00 UTC


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Property KEYS: the number of keys of a message, the number of distinct keys, and the prefix of a key."""

    count: Range = (1, 1)
    distinct: int = 10_000
    prefix: str = "key-"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLoad:
    """The messages sent to a topic; docs/workload.md explains each field."""

    name: str
    queues: int = 4
    rate: float = 100.0
    skew: float = 0.0
    tags: Shares = ()
    keys: Keys | None = None
    unique_keys: bool = True
    body: Range = (100, 300)
    properties: Mapping[str, Shares] = field(default_factory=dict)
    delay_levels: tuple[tuple[int, float], ...] = ()
    transactions: Shares = ()
    batch: Range = (1, 1)
    producers: tuple[Host, ...] = (PRODUCER,)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLoad:
    """A consumer group: the topics that it reads, and its lag in each of their queues, in messages."""

    name: str
    topics: tuple[str, ...]
    lag: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A whole workload; `start` in ms since 1970."""

    topics: tuple[TopicLoad, ...]
    groups: tuple[GroupLoad, ...] = ()
    seed: int = 1
    start: int = DEFAULT_START
    messages: int | None = None
    duration: float | None = None
    store_host: Host = STORE_HOST
    settings: Mapping[str, Value] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """The messages a second to all topics."""
        return sum(topic.rate for topic in self.topics)

    @property
    def count(self) -> int:
        """The number of messages."""
        if self.messages is not None:
            return self.messages
        return round((self.duration or 0.0) * self.rate)


def read_workload(path: str) -> Workload:
    """The workload in a file, which is TOML unless its name ends in .json.

    Raises:
        WorkloadError: the file cannot be read, or a field is unknown or has another type.
    """
    try:
        raw = small_file(path)
        found = json.loads(raw) if path.endswith(".json") else tomllib.loads(raw.decode())
    except OSError as error:
        raise read.WorkloadError(path, "a file that can be read", error.strerror or repr(error)) from error
    except ValueError as error:  # the errors of both decoders, and of UTF-8
        raise read.WorkloadError(path, "JSON" if path.endswith(".json") else "TOML", str(error)) from error
    return workload_of(found, path)


def workload_of(found: object, where: str) -> Workload:
    """The workload in the content `found` of a decoded file.

    Raises:
        WorkloadError: a field is unknown or has another type, or two fields exclude each other.
    """
    workload: Workload = read.table_of(Workload, _WORKLOAD, ("topics",))(found, where)
    if workload.messages is not None and workload.duration is not None:
        raise read.WorkloadError(where, "messages or duration", "both", hint="the rates of the topics give the other one")
    names = [topic.name for topic in workload.topics]
    if not names or len(set(names)) < len(names):
        raise read.WorkloadError(f"{where}, topics", "one topic or more, each with a name of its own", repr(names))
    for group in workload.groups:
        for topic in group.topics:
            if topic not in names:
                raise read.unknown_name(f"{where}, groups, {group.name}", "a topic of this workload", topic, names)
    return workload


_KEYS: dict[str, Reader] = {"count": read.span(0, 100), "distinct": read.whole_number(1), "prefix": read.text}
_TOPIC_LOAD: dict[str, Reader] = {
    "name": read.topic_name,
    "queues": read.whole_number(1, 10_000),
    "rate": read.number(1e-6),
    "skew": read.number(0.0, 100.0),
    "tags": read.shares,
    "keys": read.table_of(Keys, _KEYS, ()),
    "unique_keys": read.flag,
    "body": read.span(0, 64 << 20),
    "properties": read.own_properties,
    "delay_levels": read.levels,
    "transactions": read.transactions,
    "batch": read.span(1, 1000),
    "producers": read.list_of(read.host),
}
_GROUP_LOAD: dict[str, Reader] = {"name": read.group_name, "topics": read.list_of(read.topic_name), "lag": read.whole_number(0)}
_WORKLOAD: dict[str, Reader] = {
    "seed": read.whole_number(0, 2**63 - 1),
    "start": read.time,
    "messages": read.whole_number(0, 2**40),
    "duration": read.duration,
    "store_host": read.host,
    "settings": read.settings,
    "topics": read.list_of(read.table_of(TopicLoad, _TOPIC_LOAD)),
    "groups": read.list_of(read.table_of(GroupLoad, _GROUP_LOAD, ("name", "topics"))),
}

DEFAULT_WORKLOAD = {
    "messages": 10_000,
    "topics": [
        {
            "name": "orders",
            "queues": 8,
            "rate": 60,
            "skew": 0.5,
            "tags": {"created": 5, "paid": 3, "cancelled": 1},
            "keys": {"distinct": 2000, "prefix": "order-"},
            "properties": {"region": {"eu": 5, "us": 3, "": 2}},
        },
        {"name": "payments", "queues": 4, "rate": 30, "tags": {"card": 3, "transfer": 1}, "delay_levels": {"0": 9, "3": 1}},
        {"name": "audit", "queues": 1, "rate": 10, "body": [20, 1000], "batch": [1, 10]},
    ],
    "groups": [
        {"name": "billing", "topics": ["orders", "payments"], "lag": 20},
        {"name": "archive", "topics": ["orders", "payments", "audit"]},
    ],
}
