"""What a consumer group subscribed to when the broker looked at each of its pulls.

Broker source (4.9.3): ConsumerManager, ConsumerFilterManager, ClientManageProcessor; PullMessageProcessor asks them for pulls that bring no
subscription of their own.
Rule: groups are independent, and in each the heartbeats, the clients that leave and the pulls are walked in the order of time. A pull that
was held is looked at when it is answered.
Surprise: the wire does not say when the broker worked on a heartbeat or a pull, only that it was between the request and its answer. So
there are two orders, one with every heartbeat as early and every pull as late as can be, and the other way round. The first one counts, but
where only the other one can have led to the answer that was recorded (a pull that overtook its heartbeat is refused).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.capture.exchanges import CLOSED, HEART_BEAT
from pipeline.schema.arrow_types import arrow_schema
from pipeline.schema.capture_tables import PULL_REQUEST
from store_format.remoting.headers import PullSysFlag
from store_format.remoting.heartbeat import ConsumerData, HeartbeatSubscription
from udfs.broker.consumer_manager import ConsumerManager
from udfs.filters.bloom_filter import BloomFilter
from udfs.filters.consumer_filter_manager import ConsumerFilterManager, is_tag_type
from udfs.pull.codes import ResponseCode

Row = dict[str, Any]
SUBSCRIBED, NO_TOPIC, NO_GROUP = "SUBSCRIBED", "NO_TOPIC", "NO_GROUP"
_HEARTBEATS_FIRST, _PULLS_FIRST = 0, 1
_NO_BITS = BloomFilter(1, 64)  # the bits of a filter do not matter here
_BATCH_ROWS = 8192


def with_registrations(pulls: DataFrame, subscriptions: DataFrame) -> DataFrame:
    """Rows of pull_request with the columns of the group's registration, from rows of subscription."""
    own = F.col("sysFlag").bitwiseAND(F.lit(int(PullSysFlag.SUBSCRIPTION))) != 0
    by_group = F.coalesce(~own, F.lit(True)) & F.col("consumerGroup").isNotNull()
    asked, rest = pulls.where(by_group), pulls.where(~by_group)
    answered = F.coalesce("answerMicros", "arrivalMicros")
    early = F.when(F.col("held"), answered).otherwise(F.col("arrivalMicros"))
    told = F.coalesce("answerMicros", "micros")
    events = [
        _events(subscriptions, "event", F.col("micros"), _HEARTBEATS_FIRST),
        _events(asked, "pull", answered, _HEARTBEATS_FIRST),
        _events(subscriptions, "event", told, _PULLS_FIRST),
        _events(asked, "pull", early, _PULLS_FIRST),
    ]
    merged = events[0]
    for more in events[1:]:
        merged = merged.unionByName(more, allowMissingColumns=True)
    sorted_rows = merged.repartition("consumerGroup").sortWithinPartitions("consumerGroup", "micros", "order", "isPull", "sequence")
    return sorted_rows.mapInArrow(_walk, PULL_REQUEST.schema).unionByName(rest, allowMissingColumns=True)


def _events(rows: DataFrame, kind: str, micros: Column, order: int) -> DataFrame:
    return rows.select(
        "consumerGroup",
        micros.alias("micros"),
        F.lit(order).alias("order"),
        F.lit(kind == "pull").alias("isPull"),
        "sequence",
        F.struct(*rows.columns).alias(kind),
    )


def _walk(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    schema = arrow_schema(PULL_REQUEST)
    gathered: list[Row] = []
    rows = (row for batch in batches for row in batch.to_pylist())
    for _, of_group in groupby(rows, lambda row: row["consumerGroup"]):
        for pull in registered(of_group):
            gathered.append(pull)
            if len(gathered) >= _BATCH_ROWS:
                yield pa.RecordBatch.from_pylist(gathered, schema=schema)
                gathered = []
    if gathered:
        yield pa.RecordBatch.from_pylist(gathered, schema=schema)


def registered(rows: Iterator[Row]) -> Iterator[Row]:
    """Pulls with their registration, from the events of one group in both orders, sorted by time.

    Args:
        rows: `order`, and either `event`, a row of subscription, or `pull`, a row of pull_request. Each comes once in each order.
    """
    managers = (_manager(), _manager())
    waiting: dict[str, Row] = {}
    for (order, _), same in groupby(rows, lambda row: (row["order"], (row["event"] or row["pull"])["requestId"])):
        events = list(same)
        if events[0]["event"] is not None:
            _apply(managers[order], [row["event"] for row in events])
            continue
        pull = events[0]["pull"]
        found = _registration(managers[order], pull)
        other = waiting.pop(pull["requestId"], None)
        if other is None:
            waiting[pull["requestId"]] = found
            continue
        early, late = (other, found) if order == _HEARTBEATS_FIRST else (found, other)
        yield pull | _settled(pull, late, early)


def _manager() -> ConsumerManager:
    return ConsumerManager(
        filters=ConsumerFilterManager(_NO_BITS), notify=lambda _channel, _group: None, notify_consumer_ids_changed_enable=lambda: False
    )


def _apply(manager: ConsumerManager, events: list[Row]) -> None:
    """A heartbeat's rows, or the one row of a client that leaves."""
    first = events[0]
    group, channel, now = first["consumerGroup"], first["connection"], first["micros"] // 1000
    if first["event"] == HEART_BEAT:
        manager.register_consumer(group, channel, first["clientId"], _consumer(events), now, tell=False)
    elif first["event"] == CLOSED:
        manager.do_channel_close_event(channel, now)
    else:
        manager.unregister_consumer(group, channel, now, tell=False)


def _consumer(events: list[Row]) -> ConsumerData:
    return ConsumerData(
        groupName=events[0]["consumerGroup"],
        consumeType=events[0]["consumeType"],
        messageModel=events[0]["messageModel"],
        consumeFromWhere=None,
        subscriptionDataSet=tuple(_subscription(row) for row in events if row["subString"] is not None or row["topic"] is not None),
    )


def _subscription(row: Row) -> HeartbeatSubscription:
    return HeartbeatSubscription(
        topic=row["topic"],
        subString=row["subString"],
        tagsSet=frozenset(row["tagsSet"] or ()),
        codeSet=frozenset(row["codeSet"] or ()),
        subVersion=row["subVersion"],
        expressionType=row["expressionType"],
        classFilterMode=bool(row["classFilterMode"]),
    )


def _registration(manager: ConsumerManager, pull: Row) -> Row:
    """What the broker knows of the pull's group and topic now."""
    info = manager.get_consumer_group_info(pull["consumerGroup"])
    if info is None:
        return {"registration": NO_GROUP}
    found = info.subscription_table.get(pull["topic"])
    if found is None:
        return {"registration": NO_TOPIC, "registeredMessageModel": info.message_model}
    data = manager.filters.get(pull["topic"], pull["consumerGroup"])
    return {
        "registration": SUBSCRIBED,
        "registeredSubString": found.subString,
        "registeredExpressionType": found.expressionType,
        "registeredSubVersion": found.subVersion,
        "registeredClassFilterMode": found.classFilterMode,
        "registeredCodeSet": sorted(found.codeSet),
        "registeredMessageModel": info.message_model,
        "registeredFilterVersion": None if data is None else data.clientVersion,
    }


def _settled(pull: Row, late: Row, early: Row) -> Row:
    """The registration that counts; see the module. Filter data is made last in a heartbeat, so it may be older than the subscription."""
    code = pull["recordedCode"]
    between = late | {"registeredFilterVersion": early.get("registeredFilterVersion")}
    for candidate in (late, early, between):
        if code is None or _could_lead_to(pull, candidate, code):
            return candidate
    return late


def _could_lead_to(pull: Row, registration: Row, code: int) -> bool:
    """Whether a pull of a group that stands so can have got an answer of this code."""
    version, wanted = registration.get("registeredSubVersion") or 0, pull["subVersion"] or 0
    if registration["registration"] != SUBSCRIBED:
        leads_to = ResponseCode.SUBSCRIPTION_NOT_EXIST
    elif version < wanted:
        leads_to = ResponseCode.SUBSCRIPTION_NOT_LATEST
    elif is_tag_type(registration["registeredExpressionType"]):
        leads_to = ResponseCode.SUCCESS
    elif registration["registeredFilterVersion"] is None:
        leads_to = ResponseCode.FILTER_DATA_NOT_EXIST
    elif registration["registeredFilterVersion"] < wanted:
        leads_to = ResponseCode.FILTER_DATA_NOT_LATEST
    else:
        leads_to = ResponseCode.SUCCESS
    return code == leads_to or (leads_to == ResponseCode.SUCCESS and code not in _OF_REGISTRATION) or code in _BEFORE_REGISTRATION


# codes of checks on the registration, and of those before it, which say nothing of it
_OF_REGISTRATION = {
    ResponseCode.SUBSCRIPTION_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_NOT_LATEST,
    ResponseCode.FILTER_DATA_NOT_EXIST,
    ResponseCode.FILTER_DATA_NOT_LATEST,
}
_BEFORE_REGISTRATION = {
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.NO_PERMISSION,
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
}
