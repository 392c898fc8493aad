"""The rows of the broker's config files: one frozen class for each class that fastjson fills from them.

Broker source (4.9.3): TopicConfig, SubscriptionGroupConfig, DataVersion, ConsumerFilterData, BloomFilterData.
Rule: a missing field keeps the default of its class. The broker skips a field that its class does not have; here `extra` keeps it (the text
of a JSON object, or empty), so that no field of a newer broker's file is lost.
Surprise: the broker finds a row by its key in the table, not by the name inside the row. The row's name here is the key; if the name inside
the row differs from it or is missing (null), `extra` has the inner name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TypeVar

from store_format.config.fastjson import parse_json, plain
from store_format.layout import LMQ_PREFIX

V = TypeVar("V")
TOPIC_GROUP_SEPARATOR = "@"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataVersion:
    """Version of a table; `timestamp` in ms, None if the file has none (the broker then takes the time of its clock)."""

    counter: int = 0
    timestamp: int | None = None
    extra: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """A topic of topics.json."""

    topicName: str
    readQueueNums: int = 16
    writeQueueNums: int = 16
    perm: int = 6
    topicFilterType: str = "SINGLE_TAG"
    topicSysFlag: int = 0
    order: bool = False
    extra: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionGroupConfig:
    """A consumer group of subscriptionGroup.json."""

    groupName: str
    consumeEnable: bool = True
    consumeFromMinEnable: bool = True
    consumeBroadcastEnable: bool = True
    retryQueueNums: int = 1
    retryMaxTimes: int = 16
    brokerId: int = 0
    whichBrokerWhenConsumeSlowly: int = 1
    notifyConsumerIdsChangedEnable: bool = True
    extra: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BloomFilterData:
    """The bits of one subscription in the bit maps of the consume queue extension: their positions, and the length of a bit map in bits."""

    bitPos: tuple[int, ...] | None = None
    bitNum: int = 0
    extra: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerFilterData:
    """A subscription by expression in consumerFilter.json; times in ms.

    `dead` is the file's value. The broker writes deadTime >= bornTime there (isDead) and never reads it.
    """

    topic: str
    consumerGroup: str
    expression: str | None = None
    expressionType: str | None = None
    bornTime: int = 0
    deadTime: int = 0
    clientVersion: int = 0
    bloomFilterData: BloomFilterData | None = None
    dead: bool | None = None
    extra: str = ""


@dataclass(frozen=True, slots=True)
class ConsumerOffset:
    """One committed offset: the queue offset of the next message for the group.

    `topic` and `group` are None if the key `topicAtGroup` cannot be split (see split_topic_at_group).
    """

    topicAtGroup: str
    topic: str | None
    group: str | None
    queueId: int
    offset: int


@dataclass(frozen=True, slots=True)
class ConsumerOffsets:
    """consumerOffset.json or lmqConsumerOffset.json: `topic@group` -> queueId -> offset, in the file's order.

    `pullOffsetTable` has the offset of the last pull in the same form; None in the file of a broker 4.9, which has no such table.
    `lmqOffsetTable` has the offsets of the groups of light message queues, `topic@group` -> offset; None in consumerOffset.json.
    """

    offsetTable: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    extra: str = ""
    pullOffsetTable: Mapping[str, Mapping[int, int]] | None = None
    lmqOffsetTable: Mapping[str, int] | None = None

    def rows(self) -> list[ConsumerOffset]:
        """One ConsumerOffset for each offset that the broker finds.

        Broker source: LmqConsumerOffsetManager.queryOffset. Groups of light message queues have their own table,
        with the offset of queue 0.
        """
        rows = _rows_of(self.offsetTable)
        if self.lmqOffsetTable is None:
            return rows
        of_lmq = _rows_of({key: {0: offset} for key, offset in self.lmqOffsetTable.items()})
        return [row for row in rows if not _is_lmq(row)] + [row for row in of_lmq if _is_lmq(row)]

    def by_queue(self) -> dict[tuple[str, str, int], int]:
        """The offsets by (group, topic, queueId), without the keys that cannot be split into topic and group."""
        return _by_queue(self.rows())

    def pulled_by_queue(self) -> dict[tuple[str, str, int], int]:
        """The offsets of the last pulls, in the form of `by_queue`."""
        return _by_queue(_rows_of(self.pullOffsetTable or {}))

    def of_topics(self, topics: Collection[str]) -> ConsumerOffsets:
        """Return the offsets in queues of `topics` only."""

        def kept(table: Mapping[str, V]) -> dict[str, V]:
            return {key: offsets for key, offsets in table.items() if (split_topic_at_group(key) or ("",))[0] in topics}

        pulled = None if self.pullOffsetTable is None else kept(self.pullOffsetTable)
        of_lmq = None if self.lmqOffsetTable is None else kept(self.lmqOffsetTable)
        return replace(self, offsetTable=kept(self.offsetTable), pullOffsetTable=pulled, lmqOffsetTable=of_lmq)


def _rows_of(table: Mapping[str, Mapping[int, int]]) -> list[ConsumerOffset]:
    rows = []
    for key, queues in table.items():
        topic, group = split_topic_at_group(key) or (None, None)
        rows += [ConsumerOffset(key, topic, group, queue_id, offset) for queue_id, offset in queues.items()]
    return rows


def _is_lmq(row: ConsumerOffset) -> bool:
    return row.group is not None and row.group.startswith(LMQ_PREFIX)


def _by_queue(rows: Iterable[ConsumerOffset]) -> dict[tuple[str, str, int], int]:
    return {(row.group, row.topic, row.queueId): row.offset for row in rows if row.group is not None and row.topic is not None}


@dataclass(frozen=True, slots=True)
class DelayOffsets:
    """delayOffset.json: delay level -> the next offset of its queue of SCHEDULE_TOPIC_XXXX."""

    offsetTable: Mapping[int, int] = field(default_factory=dict)
    extra: str = ""


@dataclass(frozen=True, slots=True)
class TopicConfigs:
    """topics.json."""

    topicConfigTable: tuple[TopicConfig, ...] = ()
    dataVersion: DataVersion | None = None
    extra: str = ""


@dataclass(frozen=True, slots=True)
class SubscriptionGroups:
    """subscriptionGroup.json; the broker writes dataVersion and never reads it."""

    subscriptionGroupTable: tuple[SubscriptionGroupConfig, ...] = ()
    dataVersion: DataVersion | None = None
    extra: str = ""


@dataclass(frozen=True, slots=True)
class FilterDataMapByTopic:
    """The subscriptions by expression to one topic."""

    topic: str
    groupFilterData: tuple[ConsumerFilterData, ...] = ()
    extra: str = ""


@dataclass(frozen=True, slots=True)
class ConsumerFilters:
    """consumerFilter.json."""

    filterDataByTopic: tuple[FilterDataMapByTopic, ...] = ()
    extra: str = ""


def split_topic_at_group(key: str) -> tuple[str, str] | None:
    """Topic and group of a key of the offset table, None if the broker does not split the key.

    whichTopicByConsumer and similar methods split the key at each `@`, drop empty parts at the end, and accept two parts; queryOffset joins
    topic and group again. They do not accept `a@`, `a@b@c` and `a`. They split `a@b@` into a topic and a group that queryOffset joins to
    `a@b`, which is another key. An offset under any of these keys is found by the whole key only.
    """
    parts = key.split(TOPIC_GROUP_SEPARATOR)
    return (parts[0], parts[1]) if len(parts) == 2 and parts[1] else None


Row = DataVersion | TopicConfig | SubscriptionGroupConfig | BloomFilterData | ConsumerFilterData


def members_of(row: Row) -> dict[str, object]:
    """The members that fastjson writes for a row, by field name; members of `extra` come before the row's own fields."""
    members: dict[str, object] = {}
    for part in fields(row):
        value = getattr(row, part.name)
        members[part.name] = members_of(value) if isinstance(value, BloomFilterData) else value
    return with_extra(members, str(members.pop("extra")))


def with_extra(members: dict[str, object], extra: str) -> dict[str, object]:
    """`members` and the members of the JSON object in the text `extra`, in the order of their names."""
    others = plain(parse_json(extra.encode(), "extra"))
    if isinstance(others, dict):
        members |= others
    return dict(sorted(members.items()))
