"""Apply the broker's checks to captured pulls: each is refused with a code, or has the filter that the broker gives to the store.

Broker source (4.9.3): PullMessageProcessor.processRequest, up to the store; the checks are in udfs.broker.pull_message_processor.
Rule: topics and groups are those of the import; the registration is the one at the time of the pull (see registrations).
Surprise: an expression that does not compile filters nothing. Neither does a class filter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from pipeline.capture.registrations import NO_GROUP, SUBSCRIBED
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.schema import tables as t
from pipeline.schema.arrow_types import arrow_of
from pipeline.settings.rule_settings import pull_broker_config
from pipeline.settings.settings import BrokerSettings, SettingsError
from store_format.broker_version import DEFAULT_VERSION, BrokerVersion
from store_format.config.config_rows import ConsumerFilterData, SubscriptionGroupConfig, TopicConfig
from store_format.remoting.headers import PullMessageRequestHeader, PullSysFlag
from store_format.remoting.heartbeat import HeartbeatSubscription
from store_format.store.lookup import ThrownError
from udfs.broker.broker_rules import BrokerRules
from udfs.broker.consumer_manager import ConsumerGroupInfo, ConsumerManager
from udfs.broker.consumer_offset_manager import ConsumerOffsetManager
from udfs.broker.pull_message_processor import Caller, PullBrokerConfig, PullMessageProcessor, Refused
from udfs.broker.subscription_group import SubscriptionGroupManager
from udfs.broker.topic_config import TopicConfigManager
from udfs.filters.bloom_filter import BloomFilter
from udfs.filters.consumer_filter_manager import SQL92, TAG, ConsumerFilterManager, is_tag_type
from udfs.filters.message_filter import ExpressionMessageFilter
from udfs.filters.retry_rules import RetryRules
from udfs.filters.sql92_rules import TEXT_OPERATORS
from udfs.filters.tags import SubscriptionParseError, parse_subscription
from udfs.pull.codes import ResponseCode

Row = dict[str, Any]
OTHER_CODES = "OTHER_CODES"  # error code: the hash codes of a heartbeat are not those of its tags
CHECKED = "seq BIGINT, refusedCode INT, filterType STRING, expression STRING, checkError STRING"
_CHECKED_ARROW = arrow_of(CHECKED)
_NO_BITS = BloomFilter(1, 64)
_KNOWN_MAX = 1 << 16
_HEADER = tuple(one.name for one in fields(PullMessageRequestHeader))
_REGISTERED = (
    "registration",
    "registeredSubString",
    "registeredExpressionType",
    "registeredSubVersion",
    "registeredClassFilterMode",
    "registeredCodeSet",
    "registeredFilterVersion",
    "registeredMessageModel",
)
# columns that the checks read: of pull_request, topic_config and subscription_group
PULL_COLUMNS = (*_HEADER, *_REGISTERED)
TOPIC_COLUMNS = ("readQueueNums", "perm")
GROUP_COLUMNS = ("consumeEnable", "consumeBroadcastEnable")
# fields for which the checks look only at whether they are NULL
_ONLY_THERE = {"queueOffset", "maxMsgNums", "commitOffset", "suspendTimeoutMillis"}


def broker_config(settings: BrokerSettings, broker: str) -> PullBrokerConfig:
    """The settings of a broker that the checks use; `broker` is the broker's name.

    Raises:
        SettingsError: rejectPullConsumerEnable is on.
    """
    config = pull_broker_config(settings)
    if config.reject_pull_consumer_enable:
        hint = "the lake does not know which clients pull of their own accord"
        raise SettingsError("the checks of pulls", "rejectPullConsumerEnable", "false", "true", hint)
    return replace(config, broker_name=broker)


def checked(broker: OpenedBroker, pulls: DataFrame, settings: BrokerSettings) -> DataFrame:
    """Check captured pulls, rows of pull_request with `seq`; gives a row of CHECKED for each."""
    topics = broker.table(t.TOPIC_CONFIG).select("topic", *TOPIC_COLUMNS)
    groups = broker.table(t.SUBSCRIPTION_GROUP).select("consumerGroup", *GROUP_COLUMNS)
    rows = pulls.select("seq", *PULL_COLUMNS).join(topics, "topic", "left").join(groups, "consumerGroup", "left")
    return rows.mapInArrow(partial(check_batches, broker_config(settings, broker.name), settings.version), CHECKED)


def check_batches(config: PullBrokerConfig, version: BrokerVersion, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Check the pulls of batches; gives rows of CHECKED."""
    known: dict[tuple[object, ...], Row] = {}
    for batch in batches:
        rows = []
        for row in batch.to_pylist():
            key = tuple(_part(name, row[name]) for name in (*PULL_COLUMNS, *TOPIC_COLUMNS, *GROUP_COLUMNS))
            found = known.get(key)
            if found is None:
                if len(known) >= _KNOWN_MAX:
                    known.clear()
                found = known[key] = check(config, row, version)
            rows.append(found | {"seq": row["seq"]})
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=_CHECKED_ARROW)


def _part(name: str, value: Any) -> object:
    if name in _ONLY_THERE:
        return value is None
    return tuple(value) if isinstance(value, list) else value


def check(config: PullBrokerConfig, row: Row, version: BrokerVersion = DEFAULT_VERSION) -> Row:
    """Check one pull by the rules of a version; gives the columns of CHECKED without `seq`, and the `remark` of a refusal.

    `row` has the pull's fields, the registration of its group, and the settings of its topic and group.
    """
    header = PullMessageRequestHeader(**{name: row[name] for name in _HEADER})
    try:
        processor = _processor(config, row, version)
        if processor.rejects():
            return {"refusedCode": int(ResponseCode.SYSTEM_BUSY), "filterType": _asked_type(header, row)}
        caller = Caller(address="", channel="", is_lite=header.has(PullSysFlag.LITE_PULL_MESSAGE))
        _, found = processor.check(header, caller)
    except Refused as refused:
        return {"refusedCode": int(refused.code), "remark": refused.remark, "filterType": _asked_type(header, row)}
    except ThrownError:
        return {"refusedCode": int(ResponseCode.SYSTEM_ERROR), "filterType": _asked_type(header, row)}
    if header.queueOffset is None or header.maxMsgNums is None:
        return {"refusedCode": int(ResponseCode.SYSTEM_ERROR), "filterType": _asked_type(header, row)}
    return _filter_of(found)


def _asked_type(header: PullMessageRequestHeader, row: Row) -> str | None:
    own = header.has(PullSysFlag.SUBSCRIPTION)
    kind = header.expressionType if own else row["registeredExpressionType"]
    return TAG if is_tag_type(kind) else kind


def _filter_of(found: ExpressionMessageFilter) -> Row:
    subscription = found.subscription
    if subscription is None or subscription.class_filter_mode:
        return {"filterType": None, "expression": None}
    if not is_tag_type(subscription.expression_type):
        if found.filter_data is None:  # the expression does not compile, so it filters nothing
            return {"filterType": None, "expression": None}
        return {"filterType": SQL92, "expression": found.filter_data.expression}
    return {
        "filterType": TAG,
        "expression": subscription.sub_string,
        "checkError": _other_codes(subscription.sub_string, subscription.code_set),
    }


def _other_codes(expression: str, codes: frozenset[int]) -> str | None:
    try:
        own = parse_subscription(expression)
    except SubscriptionParseError:
        return OTHER_CODES
    return None if own is None or own == codes else OTHER_CODES


@dataclass(frozen=True, slots=True)
class _NeverCalled:
    """A function that the checks never call."""

    def __call__(self, *_args: Any, **_kwargs: Any) -> None:
        raise AssertionError


def _processor(config: PullBrokerConfig, row: Row, version: BrokerVersion) -> PullMessageProcessor:
    filters = ConsumerFilterManager(_NO_BITS, text_operators=TEXT_OPERATORS.of(version).value)
    consumers = ConsumerManager(filters=filters, notify=_NeverCalled(), notify_consumer_ids_changed_enable=lambda: False)
    _register(row, consumers, filters)
    topics, groups = {}, {}
    if row["readQueueNums"] is not None:
        topics[row["topic"]] = TopicConfig(topicName=row["topic"], **{name: row[name] for name in TOPIC_COLUMNS})
    if row["consumeEnable"] is not None:
        groups[row["consumerGroup"]] = SubscriptionGroupConfig(
            groupName=row["consumerGroup"], **{name: row[name] for name in GROUP_COLUMNS}
        )
    rules = BrokerRules.of(version)
    return PullMessageProcessor(
        config=config,
        rules=rules,
        retry_rules=RetryRules.of(version),
        now=0,
        groups=SubscriptionGroupManager(
            subscription_group_table=groups, enable_lmq=config.enable_lmq, needs_valid_names=rules.groups_need_valid_names
        ),
        topics=TopicConfigManager(topic_config_table=topics, enable_lmq=config.enable_lmq),
        consumers=consumers,
        filters=filters,
        offsets=ConsumerOffsetManager(),
        get_message=_NeverCalled(),
        suspend=_NeverCalled(),
        offset_moved=_NeverCalled(),
        committed=_NeverCalled(),
        write=_NeverCalled(),
    )


def _register(row: Row, consumers: ConsumerManager, filters: ConsumerFilterManager) -> None:
    """Register the group of a pull as it was at the pull's moment."""
    if row["registration"] in (None, NO_GROUP):
        return
    info = ConsumerGroupInfo(consume_type=None, message_model=row["registeredMessageModel"], consume_from_where=None)
    consumers.consumer_table[row["consumerGroup"]] = info
    if row["registration"] != SUBSCRIBED:
        return
    info.subscription_table[row["topic"]] = HeartbeatSubscription(
        topic=row["topic"],
        subString=row["registeredSubString"],
        tagsSet=frozenset(),
        codeSet=frozenset(row["registeredCodeSet"] or ()),
        subVersion=row["registeredSubVersion"],
        expressionType=row["registeredExpressionType"],
        classFilterMode=bool(row["registeredClassFilterMode"]),
    )
    if row["registeredFilterVersion"] is not None:
        data = ConsumerFilterData(
            topic=row["topic"],
            consumerGroup=row["consumerGroup"],
            expression=row["registeredSubString"],
            expressionType=row["registeredExpressionType"],
            clientVersion=row["registeredFilterVersion"],
        )
        filters.filter_data_by_topic[row["topic"]] = {row["consumerGroup"]: data}
