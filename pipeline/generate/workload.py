"""Reads workload files: the messages that producers send to a generated store (docs/workload.md).

Not the broker's code. Every field is checked before a byte is written; the error for an unknown field names the nearest known one.
"""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field, StrictBool

from pipeline.files.small_file import small_file
from pipeline.files.toml_text import parsed_toml
from pipeline.generate import workload_fields as f
from store_format.record.message import Host
from udfs.filters.message_filter import RETRY_GROUP_TOPIC_PREFIX

STORE_HOST = Host(address=bytes([10, 0, 0, 1]), port=10911)
PRODUCER = Host(address=bytes([10, 0, 1, 1]), port=40001)
DEFAULT_START = 1_767_225_600_000  # 2026-01-01 00:00:00 UTC


class Keys(f.FileTable):
    """Property KEYS: the number of keys of a message, the number of distinct keys, and the prefix of a key."""

    count: Annotated[f.Range, f.span(0, 100)] = (1, 1)
    distinct: Annotated[int, f.whole_number(1)] = 10_000
    prefix: f.Text = "key-"


class TopicLoad(f.FileTable):
    """The messages sent to a topic; docs/workload.md explains each field."""

    name: f.TopicName
    queues: Annotated[int, f.whole_number(1, 10_000)] = 4
    rate: Annotated[float, f.number(1e-6)] = 100.0
    skew: Annotated[float, f.number(0.0, 100.0)] = 0.0
    tags: f.Shares = ()
    keys: Keys | None = None
    unique_keys: StrictBool = True
    body: Annotated[f.Range, f.span(0, 64 << 20)] = (100, 300)
    properties: f.Properties = Field(default_factory=dict)
    delay_levels: f.LevelShares = ()
    transactions: f.TransactionShares = ()
    batch: Annotated[f.Range, f.span(1, 1000)] = (1, 1)
    producers: f.NotEmpty[f.Address] = (PRODUCER,)


class GroupLoad(f.FileTable):
    """A consumer group: the topics that it reads, and its lag in each of their queues, in messages."""

    name: f.GroupName
    topics: f.NotEmpty[f.TopicName]
    lag: Annotated[int, f.whole_number(0)] = 0


class Workload(f.FileTable):
    """A whole workload; `start` in ms since 1970."""

    topics: f.NotEmpty[TopicLoad]
    groups: f.NotEmpty[GroupLoad] = ()
    seed: Annotated[int, f.whole_number(0, 2**63 - 1)] = 1
    start: f.Time = DEFAULT_START
    messages: Annotated[int, f.whole_number(0, 2**40)] | None = None
    duration: f.Duration | None = None
    store_host: f.Address = STORE_HOST
    settings: f.Settings = Field(default_factory=dict)

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
        found = json.loads(raw) if path.endswith(".json") else parsed_toml(raw.decode())
    except OSError as error:
        raise f.WorkloadError(path, "a file that can be read", error.strerror or repr(error)) from error
    except ValueError as error:  # the errors of both decoders, and of UTF-8
        raise f.WorkloadError(path, "JSON" if path.endswith(".json") else "TOML", str(error)) from error
    except RecursionError as error:
        raise f.WorkloadError(path, *f.TOO_DEEP) from error
    return workload_of(found, path)


def workload_of(found: object, where: str) -> Workload:
    """The workload in the content `found` of a decoded file.

    Raises:
        WorkloadError: a field is unknown or has another type, or two fields exclude each other.
    """
    workload = Workload.of(found, where)
    if workload.messages is not None and workload.duration is not None:
        raise f.WorkloadError(where, "messages or duration", "both", hint="the rates of the topics give the other one")
    names = [topic.name for topic in workload.topics]
    if len(set(names)) < len(names):
        raise f.WorkloadError(f"{where}, topics", "one topic or more, each with a name of its own", repr(names))
    _check_groups(workload, names, where)
    return workload


def _check_groups(workload: Workload, names: list[str], where: str) -> None:
    """Check that the groups tell one offset for each of their queues; `names` are those of the topics."""
    told: set[tuple[str, str]] = set()
    for group in workload.groups:
        of_group = f"{where}, groups, {group.name}"
        retry_topic = f"{RETRY_GROUP_TOPIC_PREFIX}{group.name}"
        if retry_topic in names:
            raise f.WorkloadError(of_group, "a group whose topic for retries the workload does not name", repr(retry_topic))
        for topic in group.topics:
            if topic not in names:
                raise f.unknown_name(of_group, "a topic of this workload", topic, names)
            if (group.name, topic) in told:
                raise f.WorkloadError(of_group, "each topic of a group once, with one lag", f"{topic!r} twice")
            told.add((group.name, topic))


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
