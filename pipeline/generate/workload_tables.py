"""Makes the tables for `made_messages` from a workload.

Broker source (4.9.3): SendMessageProcessor.asyncSendMessage and asyncSendBatchMessage, which add the property CLUSTER before the store gets
the message; CommitLog.asyncPutMessage for the changes to a delayed message.
Rule: a message's properties are in the order of Java's map; the properties of a batch (CLUSTER) come after those of each message.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pipeline.generate.workload import TopicLoad, Workload
from pipeline.generate.workload_fields import TRANSACTIONS, WorkloadError
from store_format.java.hash_maps import hash_map_order
from store_format.log import put_message as pm
from store_format.log.append import host_bytes
from store_format.made import made_tables as made
from store_format.record.message import Host
from store_format.record.message_version import BYTE_MAX

_KINDS = {
    "UNIQ_KEY": made.UNIQ_KEY,
    "KEYS": made.KEYS,
    pm.PROPERTY_DELAY: made.DELAY,
    pm.PROPERTY_REAL_TOPIC: made.REAL_TOPIC,
    pm.PROPERTY_REAL_QUEUE_ID: made.REAL_QUEUE_ID,
}
# greatest bytes of the value
_MADE_VALUE = {
    "UNIQ_KEY": 56,
    pm.PROPERTY_DELAY: 10,
    pm.PROPERTY_REAL_TOPIC: BYTE_MAX,
    pm.PROPERTY_REAL_QUEUE_ID: 10,
}
_INT_DIGITS = 10
_FIXED = 75


@dataclass(slots=True)
class _Texts:
    """All texts, one after the other, and the rows of the tables that point to them."""

    text: bytearray = field(default_factory=bytearray)
    shares: list[float] = field(default_factory=list)
    values: list[int] = field(default_factory=list)
    choice_text: list[tuple[int, int]] = field(default_factory=list)
    properties: list[tuple[int, ...]] = field(default_factory=list)
    hosts: list[tuple[int, int]] = field(default_factory=list)

    def put(self, text: bytes) -> tuple[int, int]:
        """Add a text; returns its start and length."""
        self.text += text
        return len(self.text) - len(text), len(text)

    def choose(self, choices: Sequence[tuple[str | int, float]]) -> tuple[int, int]:
        """Add choices with their weights; returns the row of the first choice, and their number."""
        self.shares += cumulative([weight for _, weight in choices]).tolist()
        for value, _ in choices:
            self.values.append(value if isinstance(value, int) else 0)
            self.choice_text.append(self.put(value.encode()) if isinstance(value, str) else (0, 0))
        return len(self.shares) - len(choices), len(choices)


def cumulative(weights: Sequence[float]) -> NDArray[np.float64]:
    """The cumulative shares of weights; the last one is 1."""
    sums = np.cumsum(np.array(weights, np.float64))
    sums /= sums[-1]
    sums[-1] = 1.0
    return sums


@dataclass(frozen=True, slots=True)
class WorkloadTables:
    """The tables for `made_messages`, and (topic, queueId) of each queue, by its number.

    `max_rows` is the greatest number of messages in a batch, `max_bytes` the greatest bytes of all bodies and properties of a send.
    """

    tables: made.Tables
    queues: tuple[tuple[bytes, int], ...]
    max_rows: int
    max_bytes: int


def tables_of(workload: Workload, put: pm.PutSettings, log_file_size: int, cluster: str, where: str) -> WorkloadTables:
    """The tables of a workload.

    Raises:
        WorkloadError: the broker would refuse a message of the workload, or a log file has no room for it.
    """
    texts, rows = _Texts(), []
    queues: list[tuple[bytes, int]] = []
    for topic in workload.topics:
        row = _topic_row(topic, texts, put, cluster, len(queues))
        _check_sizes(topic, row, workload.store_host, put, log_file_size, where)
        queues += [(topic.name.encode(), queue_id) for queue_id in range(topic.queues)]
        rows.append(row)
    delay_topic = (*texts.put(pm.SCHEDULE_TOPIC.encode()), len(queues))
    queues += [(pm.SCHEDULE_TOPIC.encode(), level) for level in range(put.max_delay_level)]
    sends = [topic.rate * 2 / sum(topic.batch) for topic in workload.topics]
    store_host = texts.put(host_bytes(workload.store_host))
    tables = made.Tables(
        topic_shares=cumulative(sends),
        topics=np.array(rows, np.int64),
        shares=np.array(texts.shares),
        values=np.array(texts.values, np.int64),
        choice_text=np.array(texts.choice_text, np.int64).reshape(-1, 2),
        properties=np.array(texts.properties, np.int64).reshape(-1, made.PROPERTY_COLUMNS),
        hosts=np.array(texts.hosts, np.int64),
        text=np.frombuffer(bytes(texts.text), np.uint8),
        delay_topic=np.array(delay_topic, np.int64),
        store_host=np.array(store_host, np.int64),
        numbers=np.array([workload.seed, workload.start, _month_of(workload.start)], np.int64),
        gap_ms=1000.0 / sum(sends),
    )
    most = max(row[made.MAX_BYTES] * row[made.BATCH_MAX] for row in rows)
    return WorkloadTables(tables, tuple(queues), max(row[made.BATCH_MAX] for row in rows), most)


def _month_of(time_ms: int) -> int:
    """The start in ms of the month of a time; clients count the time in their message ids from it."""
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    time = epoch + dt.timedelta(milliseconds=time_ms)
    return (time.replace(day=1, hour=0, minute=0, second=0, microsecond=0) - epoch) // dt.timedelta(milliseconds=1)


def _topic_row(topic: TopicLoad, texts: _Texts, put: pm.PutSettings, cluster: str, number: int) -> list[int]:
    row = [0] * made.TOPIC_COLUMNS
    row[made.QUEUE_FIRST], row[made.QUEUE_COUNT] = texts.choose([(queue, (queue + 1) ** -topic.skew) for queue in range(topic.queues)])
    levels = [(_stored_level(topic, level, put), weight) for level, weight in topic.delay_levels or ((0, 1.0),)]
    row[made.LEVEL_FIRST], row[made.LEVEL_COUNT] = texts.choose(levels)
    kinds = [(TRANSACTIONS[kind], weight) for kind, weight in topic.transactions or (("none", 1.0),)]
    row[made.KIND_FIRST], row[made.KIND_COUNT] = texts.choose(kinds)
    row[made.BODY_MIN], row[made.BODY_MAX] = topic.body
    if topic.keys is not None:
        row[made.KEYS_MIN], row[made.KEYS_MAX] = topic.keys.count
        row[made.KEYS_DISTINCT] = topic.keys.distinct
        row[made.KEY_PREFIX], row[made.KEY_PREFIX_LENGTH] = texts.put(topic.keys.prefix.encode())
    row[made.TOPIC], row[made.TOPIC_LENGTH] = texts.put(topic.name.encode())
    row[made.HOST_FIRST], row[made.HOST_COUNT] = len(texts.hosts), len(topic.producers)
    texts.hosts += [texts.put(host_bytes(host)) for host in topic.producers]
    row[made.QUEUE_NUMBER] = number
    row[made.BATCH_MIN], row[made.BATCH_MAX] = topic.batch
    names = _property_names(topic)
    row[made.PROPERTY_FIRST], row[made.PROPERTY_COUNT] = len(texts.properties), len(names)
    for name in names:
        choices = _choices(topic, name, cluster)
        chosen = texts.choose(choices) if choices else (0, 0)
        texts.properties.append((_KINDS.get(name, made.CHOSEN), *texts.put(name.encode()), *chosen))
    row[made.MAX_BYTES] = topic.body[1] + sum(len(name.encode()) + 2 + _longest(topic, name, cluster) for name in names)
    return row


def _stored_level(topic: TopicLoad, level: int, put: pm.PutSettings) -> int:
    """The delay level with which the broker stores a message, 0 for none."""
    host = topic.producers[0]
    message = pm.InnerMessage(
        topic=topic.name,
        queue_id=0,
        body=b"",
        born_host=host,
        store_host=host,
        born_timestamp=0,
        properties={pm.PROPERTY_DELAY: str(level)},
    )
    stored = pm.scheduled(message, put.max_delay_level)
    return stored.queue_id + 1 if stored.topic == pm.SCHEDULE_TOPIC else 0


def _property_names(topic: TopicLoad) -> list[str]:
    """The names of the properties that the topic's messages may have, in the order in which they are written."""
    names = [*topic.properties, *(["TAGS"] if topic.tags else []), *(["KEYS"] if topic.keys else [])]
    names += ["UNIQ_KEY"] if topic.unique_keys else []
    if topic.batch[1] > 1:
        return [*hash_map_order(names), "CLUSTER"]
    names += [pm.PROPERTY_DELAY] if any(level for level, _ in topic.delay_levels) else []
    return hash_map_order([*names, "CLUSTER", pm.PROPERTY_REAL_TOPIC, pm.PROPERTY_REAL_QUEUE_ID])


def _choices(topic: TopicLoad, name: str, cluster: str) -> Sequence[tuple[str, float]]:
    if name == "CLUSTER":
        return [(cluster, 1.0)]
    return topic.tags if name == "TAGS" else topic.properties.get(name, ())


def _longest(topic: TopicLoad, name: str, cluster: str) -> int:
    if name == "KEYS" and topic.keys is not None:
        return topic.keys.count[1] * (len(topic.keys.prefix.encode()) + _INT_DIGITS + 1)
    return _MADE_VALUE.get(name) or max(len(value.encode()) for value, _ in _choices(topic, name, cluster))


def _check_sizes(topic: TopicLoad, row: list[int], store_host: Host, put: pm.PutSettings, log_file_size: int, where: str) -> None:
    """Raise for a message that the broker would refuse, write wrongly, or have no room for in a log file."""
    place = f"{where}, topics, {topic.name}"
    if topic.batch[1] > 1 and (topic.delay_levels or topic.transactions):
        raise WorkloadError(f"{place}, batch", "no delay_levels and no transactions", "some", hint="the broker refuses such batches")
    if row[made.MAX_BYTES] - topic.body[1] > pm.SHORT_MAX:
        raise WorkloadError(place, f"properties of up to {pm.SHORT_MAX} bytes", f"up to {row[made.MAX_BYTES] - topic.body[1]}")
    hosts = max(pm.hosts_length(pm.with_host_flags(0, host, store_host)) for host in topic.producers)
    most = (_FIXED + hosts + BYTE_MAX + row[made.MAX_BYTES]) * topic.batch[1]
    limit = min(put.max_message_size, log_file_size - 8)
    if most > limit:
        hint = "see maxMessageSize and mappedFileSizeCommitLog"
        raise WorkloadError(place, f"messages, or batches, of up to {limit} bytes", f"up to {most}", hint=hint)
