"""The steps of a scenario about clients: heartbeats, disconnects, and the broker's state of groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.scenarios.scenario_file import Step
from pipeline.scenarios.scenario_requests import heartbeat, thrown, unregister
from pipeline.scenarios.scenario_run import Run
from store_format.remoting.headers import RequestCode
from store_format.remoting.heartbeat import ConsumerData, HeartbeatData, HeartbeatSubscription
from store_format.store.lookup import ThrownError
from udfs.broker.consumer_manager import subscriptions_of
from udfs.filters import message_filter
from udfs.filters.consumer_filter_manager import TAG, is_dead
from udfs.filters.tags import split_tags

_DISCONNECT_MS = 300
_PUSHED_MS = 200


def send_heartbeat(run: Run, step: Step) -> None:
    """The step `heartbeat`."""
    subscriptions = tuple(_subscription(one) for one in step["subscriptions"])
    for told, one in zip(step["subscriptions"], subscriptions, strict=True):
        told |= {"tagsSet": sorted(one.tagsSet), "codeSet": sorted(one.codeSet)}
    data = ConsumerData(
        groupName=step["group"],
        consumeType=step.get("consumeType", "CONSUME_PASSIVELY"),
        messageModel=step.get("messageModel", "CLUSTERING"),
        consumeFromWhere=step.get("consumeFromWhere", "CONSUME_FROM_LAST_OFFSET"),
        subscriptionDataSet=subscriptions,
    )
    try:
        told = heartbeat(run.broker, run.client(step), HeartbeatData(clientID=step["clientId"], producerGroups=(), consumerDataSet=(data,)))
    except ThrownError as error:
        told = thrown(error.java_class)
    step["result"] = {"code": told["code"]}


def _subscription(one: Mapping[str, Any]) -> HeartbeatSubscription:
    """Return a step's subscription as the client's FilterAPI builds it."""
    kind, text = one.get("expressionType"), one.get("subString")
    tags: list[str] = []
    codes: frozenset[int] = frozenset()
    if not (text == "" and kind == "SQL92"):
        built = message_filter.TopicSubscription.build(one["topic"], text, kind)
        kind, text, codes = built.expression_type, built.sub_string, built.code_set
        tags = (split_tags(text) or []) if kind == TAG else []
    if one.get("codeSetOverride") is not None:
        codes = frozenset(one["codeSetOverride"])
    return HeartbeatSubscription(
        topic=one["topic"],
        subString=text,
        tagsSet=frozenset(tags),
        codeSet=codes,
        subVersion=one["subVersion"],
        expressionType=kind,
        classFilterMode=bool(one.get("classFilterMode")),
    )


def send_unregister(run: Run, step: Step) -> None:
    """The step `unregister`."""
    told = unregister(run.broker, run.client(step), {"clientID": step["clientId"], "consumerGroup": step["group"]})
    step["result"] = {"code": told["code"]}


def disconnect(run: Run, step: Step) -> None:
    """The step `disconnect`."""
    run.broker.consumers.do_channel_close_event(run.client(step), run.broker.now)
    run.opened[step["client"]] = run.opened.get(step["client"], 0) + 1
    run.broker.advance(run.broker.now + _DISCONNECT_MS)


def filter_state(run: Run, step: Step) -> None:
    """The step `filterState`."""
    data = run.broker.filters.get(step["topic"], step["group"])
    bloom = None if data is None else data.bloomFilterData
    step["result"] = data and {
        "expression": data.expression,
        "expressionType": data.expressionType,
        "clientVersion": data.clientVersion,
        "dead": is_dead(data),
        "bloom": bloom and {"bitPos": list(bloom.bitPos or ()), "bitNum": bloom.bitNum},
    }


def group_state(run: Run, step: Step) -> None:
    """The step `groupState`."""
    info = run.broker.consumers.get_consumer_group_info(step["group"])
    step["result"] = info and {
        "consumeType": info.consume_type,
        "messageModel": info.message_model,
        "consumeFromWhere": info.consume_from_where,
        "clientIds": sorted({one or "" for one in info.channel_info_table.values()}),
        "subscriptions": {
            topic: {
                "subString": one.subString,
                "expressionType": one.expressionType,
                "subVersion": one.subVersion,
                "tagsSet": sorted(one.tagsSet),
                "codeSet": sorted(one.codeSet),
            }
            for topic, one in subscriptions_of(info).items()
        },
    }


def pushed_requests(run: Run, step: Step) -> None:
    """The step `pushedRequests`."""
    run.broker.advance(run.broker.now + _PUSHED_MS)
    groups = run.broker.pushed.get(run.client(step), [])
    step["result"] = [{"code": int(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED), "flag": 2, "ext": {"consumerGroup": one}} for one in groups]
