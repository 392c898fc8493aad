"""Find for each captured pull what its consumer group had subscribed to when the broker processed the pull.

Broker source (4.9.3): ConsumerManager, ConsumerFilterManager, ClientManageProcessor. PullMessageProcessor uses their subscriptions for
pulls without a subscription of their own.
Rule: groups are independent. The heartbeats, leaving clients and pulls of a group are processed in the order of time. A held pull is
processed when it is answered.
Surprise: the capture does not show when the broker processed a heartbeat or a pull, only that it was between request and answer. So there
are two orders: heartbeats as early and pulls as late as possible, and the reverse. The first order counts, unless only the second order can
have led to the recorded answer (a pull that overtook its heartbeat is refused).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.capture.exchanges import BEFORE_REGISTRATION, CLOSED, HEART_BEAT, OF_REGISTRATION
from pipeline.schema.arrow_types import arrow_of, arrow_schema
from pipeline.schema.capture_tables import PULL_REQUEST, SUBSCRIPTION
from pipeline.tasks.work import Work
from store_format.remoting.headers import PullSysFlag
from store_format.remoting.heartbeat import ConsumerData, HeartbeatSubscription
from udfs.broker.consumer_manager import ConsumerManager
from udfs.filters.bloom_filter import BloomFilter
from udfs.filters.consumer_filter_manager import ConsumerFilterManager, is_tag_type
from udfs.pull.codes import ResponseCode

Row = dict[str, Any]
SUBSCRIBED, NO_TOPIC, NO_GROUP = "SUBSCRIBED", "NO_TOPIC", "NO_GROUP"
_HEARTBEATS_FIRST, _PULLS_FIRST = 0, 1
_NO_BITS = BloomFilter(1, 64)  # the bits of a bloom filter are not used here
BATCH_ROWS = 8192
# when a row of subscription or of pull_request was processed in one of the two orders
_EVENTS = "consumerGroup STRING, micros BIGINT, `order` INT, isPull BOOLEAN, sequence BIGINT, " + ", ".join(
    f"{kind} STRUCT<{', '.join(f'`{column.name}`: {column.type}' for column in table.columns)}>"
    for kind, table in (("event", SUBSCRIPTION), ("pull", PULL_REQUEST))
)


def with_registrations(pulls: Work, subscriptions: Work) -> Work:
    """Add to rows of pull_request the columns of the group's registration, from rows of subscription."""
    events = pulls.mapped(_events_of_pulls, _EVENTS).joined(subscriptions.mapped(_events_of_subscriptions, _EVENTS))
    in_order = events.grouped(("consumerGroup",), ("micros", "order", "isPull", "sequence"))
    return in_order.mapped(_walk, PULL_REQUEST.schema).joined(pulls.mapped(_without_registration, PULL_REQUEST.schema))


def _events_of_pulls(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The pulls that get their group's subscription, each once in each order."""
    for batch in batches:
        pulls = batch.filter(_by_registration(batch))
        arrived = pulls.column("arrivalMicros")
        answered = pc.coalesce(pulls.column("answerMicros"), arrived)
        early = pc.if_else(pc.fill_null(pulls.column("held"), False), answered, arrived)
        yield from (_events(pulls, "pull", micros, order) for micros, order in ((answered, _HEARTBEATS_FIRST), (early, _PULLS_FIRST)))


def _events_of_subscriptions(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The heartbeats and leaving clients, each once in each order."""
    for batch in batches:
        came = batch.column("micros")
        latest = pc.coalesce(batch.column("answerMicros"), came)
        yield from (_events(batch, "event", micros, order) for micros, order in ((came, _HEARTBEATS_FIRST), (latest, _PULLS_FIRST)))


def _without_registration(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The pulls that bring their own subscription, or name no group."""
    return (batch.filter(pc.invert(_by_registration(batch))) for batch in batches)


def _by_registration(pulls: pa.RecordBatch) -> pa.Array:
    own = pc.not_equal(pc.bit_wise_and(pulls.column("sysFlag"), int(PullSysFlag.SUBSCRIPTION)), 0)
    return pc.and_(pc.invert(pc.fill_null(own, False)), pc.is_valid(pulls.column("consumerGroup")))


def _events(rows: pa.RecordBatch, kind: str, micros: pa.Array, order: int) -> pa.RecordBatch:
    """Rows of _EVENTS."""
    count = len(rows)
    given = {
        "consumerGroup": rows.column("consumerGroup"),
        "micros": micros,
        "order": pa.array(np.full(count, order, np.int32)),
        "isPull": pa.array(np.full(count, kind == "pull")),
        "sequence": rows.column("sequence"),
        kind: pa.StructArray.from_arrays(rows.columns, fields=[*rows.schema]),
    }
    schema = arrow_of(_EVENTS)
    columns = [given[field.name] if field.name in given else pa.nulls(count, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, names=schema.names).cast(schema)


def _walk(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = (row for batch in batches for row in batch.to_pylist())
    groups = groupby(rows, lambda row: row["consumerGroup"])
    return batches_of((pull for _, of_group in groups for pull in registered(of_group)), arrow_schema(PULL_REQUEST))


def batches_of(rows: Iterator[Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows as batches of BATCH_ROWS rows."""
    while some := list(islice(rows, BATCH_ROWS)):
        yield pa.RecordBatch.from_pylist(some, schema=schema)


def registered(rows: Iterator[Row]) -> Iterator[Row]:
    """The pulls of one group with their registrations.

    `rows` are the group's events in both orders, sorted by time: `order`, and either `event`, a row of subscription, or `pull`, a row of
    pull_request. Each event and pull comes once in each order.
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
    """Apply an event to the manager: the rows of a heartbeat, or the row of a client that leaves."""
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
    """The registration of the pull's group and topic in the manager now."""
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
    """The registration of a pull: of the candidates `late`, `early` and a mixture, the first that can lead to the recorded answer.

    The mixture has the subscription of `late` and the filter data of `early`, because a heartbeat changes filter data last.
    """
    code = pull["recordedCode"]
    between = late | {"registeredFilterVersion": early.get("registeredFilterVersion")}
    for candidate in (late, early, between):
        if code is None or _could_lead_to(pull, candidate, code):
            return candidate
    return late


def _could_lead_to(pull: Row, registration: Row, code: int) -> bool:
    """Whether a pull of a group with this registration can have got an answer with this code."""
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
    return code == leads_to or (leads_to == ResponseCode.SUCCESS and code not in OF_REGISTRATION) or code in BEFORE_REGISTRATION
