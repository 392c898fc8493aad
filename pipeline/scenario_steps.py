"""The steps of a scenario, taken one after the other against its broker; each notes its result in the form of the recorded ones.

A step takes the time that the recording harness waits in it: `sleep`, a sweep that is forced (100 ms), the wait for an answer. What the
broker does takes none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pipeline.scenario_broker import BROKER_HOST, CLIENT_HOST, Note, PullCall, ScenarioBroker
from pipeline.scenario_file import Scenario, Step
from pipeline.scenario_requests import answer, heartbeat, pull_answer, request, thrown, unregister
from store_format.append import NOT_APPENDED
from store_format.config_rows import SubscriptionGroupConfig, TopicConfig
from store_format.lookup import ThrownError
from store_format.message import Message
from store_format.put_message import InnerMessage, PutMessageError, PutMessageStatus
from store_format.remoting.headers import PullMessageRequestHeader, RequestCode
from store_format.remoting.heartbeat import ConsumerData, SubscriptionData
from udfs import message_filter
from udfs.codes import ResponseCode
from udfs.consumer_filter_manager import TAG, is_dead
from udfs.consumer_manager import subscriptions_of
from udfs.send_message import SendBackRequest, SendMessageRequest, SendRefused, as_sent, put_refused, send_back
from udfs.tags import split_tags
from udfs.topic_config import AUTO_CREATE_TOPIC_KEY_TOPIC, RMQ_SYS_OFFSET_MOVED_EVENT

_PULL_WAIT_MS = 12_000
_DRAIN_WAIT_MS = 5_000
_AWAIT_MS = 20_000
_SYNC_TICK_MS = 100
_CONFIG_TICK_MS = 50
_DISCONNECT_MS = 300
_PUSHED_MS = 200
_STORED_MS = 50
_IMMEDIATE_MS, _AT_ONCE_MS, _WOKEN_MS = 150, 500, 700
_DRAINED_MAX = 80
_OFFSETS_LISTED_MAX = 12
_BORN_TIMESTAMP = 1_600_000_000_000
_VERSION = 399
_GROUP_SHOWN = (
    "consumeEnable",
    "consumeFromMinEnable",
    "consumeBroadcastEnable",
    "retryQueueNums",
    "retryMaxTimes",
    "brokerId",
    "whichBrokerWhenConsumeSlowly",
    "notifyConsumerIdsChangedEnable",
)
_TOPIC_SHOWN = ("perm", "readQueueNums", "writeQueueNums", "topicSysFlag", "order")
UNSUPPORTED = {"error": "UNSUPPORTED", "message": "this request cannot be answered yet"}


def take_steps(scenario: Scenario, note: Note, *, log_start: int = 0) -> Iterator[tuple[int, Step]]:
    """The steps of a scenario with their results, each with the time (ms) at which it ended.

    Args:
        scenario: whose steps are changed in place.
        note: told of each change of what a pull depends on.
        log_start: where the commit log goes on; scenarios of one broker share its log.
    """
    run = _Run(ScenarioBroker(base=scenario.base, note=note, log_start=log_start))
    for step in scenario.steps:
        step.pop("result", None)
        _OPS[step["op"]](run, step)
        yield run.broker.now, step


@dataclass(slots=True)
class _Run:
    """A scenario that runs: its broker, and the pulls whose answers are collected later."""

    broker: ScenarioBroker
    calls: dict[str, PullCall] = field(default_factory=dict)
    opened: dict[str, int] = field(default_factory=dict)

    def client(self, step: Step, default: str = "c1") -> str:
        """The connection of a step's client: a new one after the last was closed."""
        name = step.get("client") or default
        return f"{name}#{self.opened.setdefault(name, 0)}"

    def wait(self, call: PullCall, longest: int) -> None:
        """Let time go on until a pull is answered."""
        self.broker.advance(self.broker.now + longest, lambda: call.answered_at is not None)

    def call(self, client: str, ext: Mapping[str, Any] | None, *, oneway: bool = False) -> PullCall:
        """Send a pull."""
        header = PullMessageRequestHeader.decode(ext_of(ext))
        call = PullCall(header=header, client=client, sent_at=self.broker.now, oneway=oneway)
        self.broker.pull(call)
        return call


def ext_of(ext: Mapping[str, Any] | None) -> dict[str, str | None] | None:
    """Ext fields as they go over the wire: texts; what is null is left out."""
    return None if ext is None else {name: _text(value) for name, value in ext.items() if value is not None}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# settings and tables ----------------------------------------------------------------------------------------------------------------


def _config(run: _Run, step: Step) -> None:
    run.broker.set(step["set"])
    if step["op"] == "brokerConfig" and "longPollingEnable" in step["set"]:
        run.broker.sweep()
        run.broker.advance(run.broker.now + _CONFIG_TICK_MS)


def _topic(run: _Run, step: Step) -> None:
    config = TopicConfig(
        topicName=step["topic"], readQueueNums=step["readQueueNums"], writeQueueNums=step["writeQueueNums"], perm=step["perm"]
    )
    run.broker.topics.update_topic_config(config)


def _group(run: _Run, step: Step) -> None:
    config = SubscriptionGroupConfig(groupName=step["group"], **(step.get("config") or {}))
    run.broker.groups.update_subscription_group_config(config)


def _group_config(run: _Run, step: Step) -> None:
    found = run.broker.groups.subscription_group_table.get(step["group"])
    step["result"] = None if found is None else {name: getattr(found, name) for name in _GROUP_SHOWN}


def _topic_config(run: _Run, step: Step) -> None:
    found = run.broker.topics.topic_config_table.get(step["topic"])
    step["result"] = None if found is None else {name: getattr(found, name) for name in _TOPIC_SHOWN}


def _store_readable(run: _Run, step: Step) -> None:
    run.broker.set({"readable": step["value"]})


def _consumer_offset(run: _Run, step: Step) -> None:
    step["result"] = {"offsetTable": run.broker.offsets.query_offset(step["group"], step["topic"], step["queueId"])}


# messages -----------------------------------------------------------------------------------------------------------------------------


def _send(run: _Run, step: Step) -> None:
    messages = step["messages"] if step.get("messages") is not None else [step["template"]] * step["count"]
    offsets: list[int] = []
    errors: list[dict[str, Any]] = []
    for message in messages:
        try:
            offsets.append(_send_one(run.broker, step["topic"], step["queueId"], message))
        except SendRefused as refused:
            errors.append({"code": int(refused.code), "remark": refused.remark})
    if len(offsets) > _OFFSETS_LISTED_MAX:
        step["result"] = {"firstOffset": offsets[0], "lastOffset": offsets[-1]}
    else:
        step["result"] = {"queueOffsets": offsets}
    if errors:
        step["result"]["errors"] = errors


def _send_one(broker: ScenarioBroker, topic: str, queue_id: int, message: Mapping[str, Any]) -> int:
    """Send a message; its queue offset."""
    properties = {
        name: value for name, value in (("TAGS", message.get("tags")), ("KEYS", message.get("keys"))) if value is not None
    } | dict(message.get("props") or {})
    body = message.get("body")
    size = message.get("bodySize")
    inner = InnerMessage(
        topic=topic,
        queue_id=queue_id,
        body=bytes(4 if size is None else size) if body is None else body.encode(),
        born_host=CLIENT_HOST,
        store_host=BROKER_HOST,
        born_timestamp=_BORN_TIMESTAMP,
        properties=as_sent(properties),
        flag=message.get("flag") or 0,
        reconsume_times=message.get("reconsumeTimes") or 0,
    )
    asked = SendMessageRequest(
        message=inner,
        default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
        default_topic_queue_nums=4,
        max_reconsume_times=message.get("maxReconsumeTimes"),
    )
    return _put(broker, broker.sending().accept(asked)).queue_offset


def _put(broker: ScenarioBroker, inner: InnerMessage) -> Message:
    try:
        stored = broker.put(inner)
    except PutMessageError as error:
        raise SendRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
    if isinstance(stored, PutMessageStatus):
        raise put_refused(stored)
    return stored


def _send_back(run: _Run, step: Step) -> None:
    broker, topic, queue_id = run.broker, step["originTopic"], step["queueId"]
    offset = step.get("physicalOffset")
    if offset is None:
        entry = broker.store.queue(topic, queue_id).entry(step["queueOffset"])
        offset = entry[0] if entry else 0
    asked = SendBackRequest(
        group=step["group"],
        delay_level=step["delayLevel"],
        max_reconsume_times=step.get("maxReconsumeTimes"),
        version=step.get("version") or _VERSION,
    )
    try:
        inner = send_back(broker.sending(), asked, broker.store.message_at(offset))
        if inner is not None:
            _put(broker, inner)
        step["result"] = answer(ResponseCode.SUCCESS)
    except SendRefused as refused:
        step["result"] = answer(refused.code, refused.remark)


def _replicate(run: _Run, step: Step) -> None:
    store, queue = run.broker.store, run.broker.store.queue(step["topic"], step["queueId"])
    (last,) = store.last_messages(step["topic"], step["queueId"], 1)
    if last is not None:
        run.broker.dispatch(store.append(last, queue.max_offset))
    step["result"] = {"queueOffset": queue.max_offset - 1}


def _read_stored(run: _Run, step: Step) -> None:
    run.broker.advance(run.broker.now + _STORED_MS)
    found = run.broker.store.last_messages(step["topic"], step["queueId"], step.get("last"))
    step["result"] = [_stored(one, step["topic"]) for one in found if one is not None]


def _stored(message: Message, topic: str) -> dict[str, Any]:
    told = _shown(message)
    told |= {"flag": message.flag, "sysFlag": message.sys_flag, "keys": message.properties_map().get("KEYS")}
    if topic == RMQ_SYS_OFFSET_MOVED_EVENT:
        told["bornHostIsBroker"] = message.born_host == BROKER_HOST
    return told


def _shown(message: Message) -> dict[str, Any]:
    properties = dict(sorted(message.properties_map().items()))
    if "ORIGIN_MESSAGE_ID" in properties:
        properties["ORIGIN_MESSAGE_ID"] = "<msgId>"
    return {
        "queueId": message.queue_id,
        "topic": message.topic.decode(),
        "tags": properties.get("TAGS"),
        "bodyText": message.body.decode("utf-8", "replace") if message.body else None,
        "storeSize": message.store_size,
        "reconsumeTimes": message.reconsume_times,
        "properties": properties,
    }


def _find_last(run: _Run, step: Step) -> None:
    store = run.broker.store
    queues = sorted(key for key in store.queues if key[0] in step["topics"])
    in_order = [key for topic in step["topics"] for key in queues if key[0] == topic]
    found = [message for key in in_order for message in store.last_messages(*key, None)]
    step["result"] = [_shown(one) for one in found if one is not None and one.body == step["body"].encode()]


def _delete_log_head(run: _Run, step: Step) -> None:
    deleted = run.broker.store.delete_log_head()
    step["result"] = {"filesDeleted": deleted, "commitLogMinOffset": run.broker.store.log_start}


def _delete_queue_head(run: _Run, step: Step) -> None:
    run.broker.store.queue(step["topic"], step["queueId"]).delete_first_file()


def _min_offset(run: _Run, step: Step) -> None:
    run.broker.store.queue(step["topic"], step["queueId"]).min_offset = step["offset"]


def _queue_range(run: _Run, step: Step) -> None:
    queue = run.broker.store.queue(step["topic"], step["queueId"])
    step["result"] = {"min": queue.min_offset, "max": queue.max_offset}


# clients ------------------------------------------------------------------------------------------------------------------------------


def _heartbeat(run: _Run, step: Step) -> None:
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
        told = heartbeat(run.broker, run.client(step), step["clientId"], (data,))
    except ThrownError as error:
        told = thrown(error.java_class)
    step["result"] = {"code": told["code"]}


def _subscription(one: Mapping[str, Any]) -> SubscriptionData:
    """A subscription as the client's FilterAPI builds it."""
    kind, text = one.get("expressionType"), one.get("subString")
    tags: list[str] = []
    codes: frozenset[int] = frozenset()
    if not (text == "" and kind == "SQL92"):
        built = message_filter.SubscriptionData.build(one["topic"], text, kind)
        kind, text, codes = built.expression_type, built.sub_string, built.code_set
        tags = (split_tags(text) or []) if kind == TAG else []
    if one.get("codeSetOverride") is not None:
        codes = frozenset(one["codeSetOverride"])
    return SubscriptionData(
        topic=one["topic"],
        subString=text,
        tagsSet=frozenset(tags),
        codeSet=codes,
        subVersion=one["subVersion"],
        expressionType=kind,
        classFilterMode=bool(one.get("classFilterMode")),
    )


def _unregister(run: _Run, step: Step) -> None:
    told = unregister(run.broker, run.client(step), {"clientID": step["clientId"], "consumerGroup": step["group"]})
    step["result"] = {"code": told["code"]}


def _disconnect(run: _Run, step: Step) -> None:
    run.broker.consumers.do_channel_close_event(run.client(step), run.broker.now)
    run.opened[step["client"]] = run.opened.get(step["client"], 0) + 1
    run.broker.advance(run.broker.now + _DISCONNECT_MS)


def _filter_state(run: _Run, step: Step) -> None:
    data = run.broker.filters.get(step["topic"], step["group"])
    bloom = None if data is None else data.bloomFilterData
    step["result"] = data and {
        "expression": data.expression,
        "expressionType": data.expressionType,
        "clientVersion": data.clientVersion,
        "dead": is_dead(data),
        "bloom": bloom and {"bitPos": list(bloom.bitPos or ()), "bitNum": bloom.bitNum},
    }


def _group_state(run: _Run, step: Step) -> None:
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


def _pushed(run: _Run, step: Step) -> None:
    run.broker.advance(run.broker.now + _PUSHED_MS)
    groups = run.broker.pushed.get(run.client(step), [])
    step["result"] = [{"code": int(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED), "flag": 2, "ext": {"consumerGroup": one}} for one in groups]


# pulls and time -------------------------------------------------------------------------------------------------------------------------


def _request(run: _Run, step: Step) -> None:
    code = step.get("code", int(RequestCode.PULL_MESSAGE))
    if step["op"] == "request" and code != RequestCode.PULL_MESSAGE:
        told = request(run.broker, run.client(step), code, ext_of(step.get("ext")), step.get("body"))
        step["result"] = dict(UNSUPPORTED) if told is None else told | {"timing": "immediate"}
        step["opaqueEchoed"] = True
        return
    call = run.call(run.client(step), step.get("ext"), oneway=bool(step.get("oneway")))
    if step.get("id") is not None:
        run.calls[str(step["id"])] = call
        return
    longest = _PULL_WAIT_MS if step.get("noResponseMs") is None else step["noResponseMs"]
    run.wait(call, longest)
    step["result"] = _no_response(longest) if call.answered_at is None else _timed(call)
    if step["op"] == "request":
        step["opaqueEchoed"] = True


def _no_response(waited: int) -> dict[str, Any]:
    return {"noResponse": True, "waitedMs": waited, "connectionClosed": False}


def _timed(call: PullCall) -> dict[str, Any]:
    took = (call.answered_at or 0) - call.sent_at
    if took < _AT_ONCE_MS:
        return pull_answer(call) | {"timing": "immediate"}
    return pull_answer(call) | {"timing": "held", "heldSeconds": _seconds(took)}


def _seconds(ms: int) -> int:
    """Math.round of seconds."""
    return (ms + 500) // 1000


def _drain(run: _Run, step: Step) -> None:
    client, ext = run.client(step), dict(step["ext"])
    told: list[dict[str, Any]] = []
    for _ in range(_DRAINED_MAX):
        call = run.call(client, ext)
        run.wait(call, _DRAIN_WAIT_MS)
        if call.answered_at is None:
            break
        given = pull_answer(call)
        header = given["ext"] or {}
        following = header.get("nextBeginOffset")
        told.append(
            {
                "queueOffset": ext["queueOffset"],
                "code": given["code"],
                "codeName": given["codeName"],
                "nextBeginOffset": None if following is None else int(following),
                "suggestWhichBrokerId": header.get("suggestWhichBrokerId"),
                "bodyLength": given["bodyLength"],
                "messageOffsets": given.get("messageOffsets", []),
            }
        )
        if given["code"] == ResponseCode.PULL_NOT_FOUND or following is None:
            break
        ext["queueOffset"] = int(following)
    step["result"] = told


def _await(run: _Run, step: Step) -> None:
    call, began = run.calls[step["id"]], run.broker.now
    run.wait(call, _AWAIT_MS)
    if call.answered_at is None:
        step["result"] = _no_response(_AWAIT_MS)
        return
    took, after = call.answered_at - call.sent_at, call.answered_at - began
    told = pull_answer(call)
    if step.get("timingVolatile") is not None:
        told["timing"] = "held"
    elif took < _IMMEDIATE_MS:
        told["timing"] = "immediate"
    elif after <= _WOKEN_MS:
        told["timing"] = "woken"
    else:
        told |= {"timing": "tick", "heldSeconds": _seconds(took)}
    step["result"] = told


def _expect_no_response(run: _Run, step: Step) -> None:
    call = run.calls[step["id"]]
    run.wait(call, step["ms"])
    step["result"] = {"responded": call.answered_at is not None}


def _sleep(run: _Run, step: Step) -> None:
    run.broker.advance(run.broker.now + step["ms"])


def _sync_hold_tick(run: _Run, _step: Step) -> None:
    run.broker.sweep()
    run.broker.advance(run.broker.now + _SYNC_TICK_MS)


def _hold_count(run: _Run, step: Step) -> None:
    step["result"] = {"held": len(run.broker.held.get((step["topic"], step["queueId"]), ()))}


_OPS: Mapping[str, Callable[[_Run, Step], None]] = {
    "brokerConfig": _config,
    "storeConfig": _config,
    "topic": _topic,
    "group": _group,
    "groupConfig": _group_config,
    "topicConfig": _topic_config,
    "send": _send,
    "heartbeat": _heartbeat,
    "unregister": _unregister,
    "disconnect": _disconnect,
    "pull": _request,
    "request": _request,
    "drain": _drain,
    "await": _await,
    "expectNoResponse": _expect_no_response,
    "sleep": _sleep,
    "syncHoldTick": _sync_hold_tick,
    "holdCount": _hold_count,
    "minOffset": _min_offset,
    "storeReadable": _store_readable,
    "consumerOffset": _consumer_offset,
    "queueRange": _queue_range,
    "readStored": _read_stored,
    "filterState": _filter_state,
    "groupState": _group_state,
    "pushedRequests": _pushed,
    "deleteCommitLogHead": _delete_log_head,
    "deleteConsumeQueueHead": _delete_queue_head,
    "replicate": _replicate,
    "sendBack": _send_back,
    "findLast": _find_last,
}
