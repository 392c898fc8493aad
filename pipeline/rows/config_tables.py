"""Reads the files under config/ into rows of their tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from pipeline.files.store_files import StoreFiles
from pipeline.schema import tables as t
from pipeline.schema.arrow_types import arrow_table
from store_format.config import config_files as cf
from store_format.config import later_files as lf
from store_format.config.config_rows import ConsumerFilters, SubscriptionGroups, TopicConfigs, members_of
from store_format.errors import ConfigFileError

T = TypeVar("T")
Row = tuple[Any, ...]
# the file from which each table is made, other than consumer_offset and pull_offset
_FILE_OF = {
    t.DELAY_OFFSET: "delayOffset.json",
    t.TOPIC_CONFIG: "topics.json",
    t.SUBSCRIPTION_GROUP: "subscriptionGroup.json",
    t.CONSUMER_FILTER: "consumerFilter.json",
}
# the files from which each table is made that only a broker 5.x fills, other than pull_offset
_FILES_OF_5 = {
    t.CONSUMER_ORDER_INFO: ("consumerOrderInfo.json",),
    t.PENDING_MESSAGES: ("timermetrics", "transactionMetrics"),
}
TABLES_OF_5 = frozenset({t.PULL_OFFSET, *_FILES_OF_5})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRows:
    """The rows of each config table, and notes about the files for people."""

    tables: dict[t.Table, pa.Table]
    notes: tuple[str, ...]


def config_files(*, enable_lmq: bool) -> dict[t.Table, tuple[str, ...]]:
    """Return the files under config/ from which each table is made, with the broker's setting enableLmq."""
    offsets, _ = cf.offsets_file(enable_lmq=enable_lmq)
    return {t.CONSUMER_OFFSET: (offsets,), t.PULL_OFFSET: (offsets,), **{table: (name,) for table, name in _FILE_OF.items()}, **_FILES_OF_5}


def config_rows(store: StoreFiles, broker: str, *, as_found: bool = False, enable_lmq: bool = False) -> ConfigRows:
    """Read the config files as the broker does (`.bak` if the file itself cannot be used).

    Args:
        store: the files of the store.
        broker: name of the broker in the rows.
        as_found: whether a file that cannot be read gives no rows and a note instead of an error.
        enable_lmq: the broker's setting enableLmq.

    Raises:
        ConfigFileError: the broker would not start with a file, or would start with an empty table in its place.
    """
    notes: list[str] = []

    def loaded(name: str, decode: Callable[[bytes, str], T]) -> T:
        path = store.path_of("config", name)
        try:
            found = cf.load(store.read_config(name), store.read_config(f"{name}.bak"), path, decode)
        except ConfigFileError as error:
            if not as_found:
                raise
            notes.append(str(error))
            return decode(b"{}", path)
        if found.source == "bak":
            notes.append(f"{path}: read from its .bak, {found.reason}")
        return found.table

    offsets_file, decode_offsets = cf.offsets_file(enable_lmq=enable_lmq)
    offsets = loaded(offsets_file, decode_offsets)
    notes += _unread_offsets(store, enable_lmq=enable_lmq)
    lost = [row.topicAtGroup for row in offsets.rows() if row.topic is None]
    if lost:
        path = store.path_of("config", offsets_file)
        notes.append(f"{path}: {len(lost)} keys name no topic and group, {lost[0]!r} first")
    delays = loaded(_FILE_OF[t.DELAY_OFFSET], cf.decode_delay_offsets)
    rows: dict[t.Table, list[Row]] = {
        t.CONSUMER_OFFSET: [(broker, group, topic, queue_id, offset) for (group, topic, queue_id), offset in offsets.by_queue().items()],
        t.DELAY_OFFSET: [(broker, level, offset) for level, offset in delays.offsetTable.items()],
        t.TOPIC_CONFIG: _topics(broker, loaded(_FILE_OF[t.TOPIC_CONFIG], cf.decode_topic_configs)),
        t.SUBSCRIPTION_GROUP: _groups(broker, loaded(_FILE_OF[t.SUBSCRIPTION_GROUP], cf.decode_subscription_groups)),
        t.CONSUMER_FILTER: _filters(broker, loaded(_FILE_OF[t.CONSUMER_FILTER], cf.decode_consumer_filters)),
        t.PULL_OFFSET: [(broker, *key, offset) for key, offset in offsets.pulled_by_queue().items()],
        **_rows_of_5(store, broker, notes),
    }
    tables = {table: arrow_table(table, found) for table, found in rows.items()}
    return ConfigRows(tables=tables | {t.TIMER_CHECKPOINT: timer_checkpoint_rows(store, broker)}, notes=tuple(notes))


def _unread_offsets(store: StoreFiles, *, enable_lmq: bool) -> Iterator[str]:
    """Yield a note if only a broker with the other value of enableLmq reads the offsets of the store.

    A broker with enableLmq may have been one without it before: its consumerOffset.json is old, and no note is due.
    """
    names = {entry.name for entry in store.folder("config")}
    used, other = (cf.offsets_file(enable_lmq=value)[0] for value in (enable_lmq, not enable_lmq))
    if other in names and (not enable_lmq or names.isdisjoint({used, f"{used}.bak"})):
        setting = f"enableLmq={str(not enable_lmq).lower()}"
        yield f"{store.path_of('config', other)}: not read; a broker with {setting} has its offsets there: give --set {setting}"


def _rows_of_5(store: StoreFiles, broker: str, notes: list[str]) -> dict[t.Table, list[Row]]:
    """The rows of files that only a broker 5.x has; a file that cannot be read gives no rows and a note, as no pull depends on it."""

    def read(name: str, decode: Callable[[bytes, str], tuple[T, ...]]) -> tuple[T, ...]:
        try:
            content = store.read_config(name) or store.read_config(f"{name}.bak") or b""
            return decode(content, store.path_of("config", name))
        except ConfigFileError as error:
            notes.append(f"no rows of it: {error}")
            return ()

    timers, halves = read("timermetrics", lf.decode_timer_metrics), read("transactionMetrics", lf.decode_transaction_metrics)
    pending = [("timermetrics", one) for one in timers] + [("transactionMetrics", one) for one in halves]
    return {
        t.CONSUMER_ORDER_INFO: [
            (
                broker,
                info.group,
                info.topic,
                info.queue_id,
                info.pop_time,
                info.invisible_time,
                list(info.offsets),
                info.last_consume_timestamp,
                info.commit_bits,
                info.text,
            )
            for info in read("consumerOrderInfo.json", lf.decode_order_infos)
            if info.topic is not None
        ],
        t.PENDING_MESSAGES: [(broker, file, one.topic, one.count, one.timestamp) for file, one in pending],
    }


def timer_checkpoint_rows(store: StoreFiles, broker: str) -> pa.Table:
    """The row of timer_checkpoint; none without config/timercheck."""
    found = store.head(lf.TIMER_CHECKPOINT.itemsize, "config", "timercheck")
    return arrow_table(t.TIMER_CHECKPOINT, [] if found is None else [(broker, *lf.decode_timer_checkpoint(found).values())])


def _json(row: Any) -> str:
    return json.dumps(members_of(row), ensure_ascii=False, default=members_of)


def _topics(broker: str, topics: TopicConfigs) -> list[Row]:
    return [
        (
            broker,
            row.topicName,
            row.readQueueNums,
            row.writeQueueNums,
            row.perm,
            row.topicFilterType,
            row.topicSysFlag,
            row.order,
            _json(row),
        )
        for row in topics.topicConfigTable
    ]


def _groups(broker: str, groups: SubscriptionGroups) -> list[Row]:
    return [
        (
            broker,
            row.groupName,
            row.consumeEnable,
            row.consumeFromMinEnable,
            row.consumeBroadcastEnable,
            row.retryQueueNums,
            row.retryMaxTimes,
            row.brokerId,
            row.whichBrokerWhenConsumeSlowly,
            row.notifyConsumerIdsChangedEnable,
            _json(row),
        )
        for row in groups.subscriptionGroupTable
    ]


def _filters(broker: str, filters: ConsumerFilters) -> list[Row]:
    return [
        (
            broker,
            row.topic,
            row.consumerGroup,
            row.expression,
            row.expressionType,
            row.bornTime,
            row.deadTime,
            row.clientVersion,
            None if row.bloomFilterData is None or row.bloomFilterData.bitPos is None else list(row.bloomFilterData.bitPos),
            None if row.bloomFilterData is None else row.bloomFilterData.bitNum,
            _json(row),
        )
        for topic in filters.filterDataByTopic
        for row in topic.groupFilterData
    ]
