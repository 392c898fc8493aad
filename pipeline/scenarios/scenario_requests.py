"""The answers of a scenario's broker to requests other than pulls and messages, in the form of the recorded answers.

Broker source (4.9.3): ConsumerManageProcessor, ClientManageProcessor, AdminBrokerProcessor; NettyRemotingAbstract.processRequestCommand for
a processor that throws; ResponseCode.
Rule: header fields are not checked, as in a pull; a missing field makes the processor throw where it is used. An exception of a processor
is answered with SYSTEM_ERROR and no header.
Surprise: an unknown request code is answered too, by AdminBrokerProcessor.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from store_format.remoting.errors import FrameError
from store_format.remoting.headers import RequestCode, java_number
from store_format.remoting.heartbeat import ConsumerData, HeartbeatData, decode_heartbeat
from store_format.store.lookup import NULL_POINTER, ThrownError
from store_format.store.lookup_by_time import Boundary, offset_by_time
from udfs.broker.client_config import check_subscription
from udfs.broker.consumer_manager import CONSUME_ACTIVELY
from udfs.broker.consumer_offset_manager import first_offset
from udfs.broker.memory_broker import MemoryBroker, PullCall
from udfs.broker.message_queue import MessageQueue
from udfs.broker.topic_config import FLAG_UNIT_SUB
from udfs.filters.message_filter import RETRY_GROUP_TOPIC_PREFIX
from udfs.java.texts import boolean_value_of
from udfs.pull.codes import ResponseCode

Answer = dict[str, Any]
Ext = Mapping[str, str | None]
CHECK_CLIENT_CONFIG = 46
GET_EARLIEST_MSG_STORETIME = 32
# request codes that the broker answers and this module does not
_UNANSWERED = frozenset(
    {10, 12, 17, 21, 25, 26, 28, 33, 36, 37, 43, 45, *range(50, 55), *range(200, 205), 207, 208, 215, 222, 223, 300, 301, 303}
    | {305, 306, 307, 308, 309, 310, 314, 315, 316, 317, 320, 321, 323, 324, 325}
)
# POP_MESSAGE, ACK_MESSAGE, CHANGE_MESSAGE_INVISIBLETIME
_POP_CODES = frozenset({200_050, 200_051, 200_052})
_UPDATE_AND_GET_GROUP_FORBIDDEN: Final = 353
_JSON_EXCEPTION = "com.alibaba.fastjson.JSONException"
MESSAGES_SHOWN_MAX = 40


def answer(
    code: int, remark: str | None = None, ext: Mapping[str, object] | None = None, body: str | None = None, body_length: int | None = None
) -> Answer:
    """Return an answer; `ext` is None if the command has no header."""
    told: Answer = {
        "code": int(code),
        "codeName": ResponseCode(code).name,
        "flag": 1,
        "serializeType": "JSON",
        "language": "JAVA",
        "version": 399,
        "remark": remark,
        "ext": None if ext is None else {name: str(ext[name]) for name in sorted(ext)},
        "bodyLength": len((body or "").encode()) if body_length is None else body_length,
    }
    if body is not None and ext is None:
        told["bodyText"] = body
    return told


def thrown(java_class: str) -> Answer:
    """Return the answer of a processor that throws an exception of a Java class."""
    return answer(ResponseCode.SYSTEM_ERROR, java_class)


def pull_answer(call: PullCall) -> Answer:
    """Return the answer to an answered pull."""
    response = call.response
    if response is None:
        return thrown(call.thrown or NULL_POINTER)
    result = response.result
    if result is None:
        return answer(response.code, response.remark, response.fields)
    ext = {
        **(response.fields or {}),
        "maxOffset": result.max_offset,
        "minOffset": result.min_offset,
        "nextBeginOffset": result.next_begin_offset,
        "suggestWhichBrokerId": response.suggest_which_broker_id,
    }
    if response.code != ResponseCode.SUCCESS:
        return answer(response.code, response.remark, ext)
    assert result is not None
    messages = [
        {
            "queueOffset": one.queue_offset,
            "tags": one.properties_map().get("TAGS"),
            "storeSize": size,
            "reconsumeTimes": one.reconsume_times,
        }
        for _, size, one in result.messages
    ]
    told = answer(response.code, response.remark, ext, body_length=sum(size for _, size, _ in result.messages))
    told["messageOffsets"] = [message["queueOffset"] for message in messages]
    if len(messages) <= MESSAGES_SHOWN_MAX:
        told["messages"] = messages
    return told


def request(broker: MemoryBroker, client: str, code: int, ext: Ext | None, body: str | None) -> Answer | None:
    """Return the answer to a request other than a pull; None if the broker answers it and this module does not."""
    rules = broker.settings.rules
    if code in _UNANSWERED or (rules.pops and code in _POP_CODES):
        # without a header these processors throw
        return thrown(NULL_POINTER) if code not in _UNANSWERED and not ext else None
    handler = None if code == _UPDATE_AND_GET_GROUP_FORBIDDEN and not rules.groups_may_be_forbidden else _HANDLERS.get(code)
    if handler is None:
        return answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {code} not supported")
    try:
        return handler(broker, client, ext or {}, body)
    except ThrownError as error:
        return thrown(error.java_class)


def heartbeat(broker: MemoryBroker, client: str, data: HeartbeatData) -> Answer:
    """Register the groups of a client's HEART_BEAT and return the answer."""
    if not broker.settings.rules.heartbeats_have_fingerprints:
        data = replace(data, heartbeatFingerprint=0)
    changed = not data.heartbeatFingerprint
    rejects = broker.settings.value("rejectPullConsumerEnable")
    for one in data.consumerDataSet:
        if rejects and one.consumeType == CONSUME_ACTIVELY:
            continue
        last = broker.heartbeat_fingerprints.get(one.groupName, data.heartbeatFingerprint)
        changed |= last != data.heartbeatFingerprint
        broker.heartbeat_fingerprints[one.groupName] = data.heartbeatFingerprint
        _register(broker, client, data, one)
    if not broker.settings.rules.heartbeats_have_fingerprints:
        return answer(ResponseCode.SUCCESS)
    return answer(ResponseCode.SUCCESS, ext={"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": str(changed).lower()})


def _register(broker: MemoryBroker, client: str, data: HeartbeatData, consumer: ConsumerData) -> None:
    """Register a group of a heartbeat; 5.5.0 registers none without a configuration."""
    auto_create = broker.settings.value("autoCreateSubscriptionGroup")
    group = broker.groups.find_subscription_group_config(consumer.groupName, auto_create=auto_create)
    name = consumer.groupName or ""
    if group is None and broker.settings.rules.heartbeats_of_known_groups_only:
        return
    if group is not None:
        flag = FLAG_UNIT_SUB if consumer.unitMode else 0
        broker.topics.create_topic_in_send_message_back(RETRY_GROUP_TOPIC_PREFIX + name, group.retryQueueNums, topic_sys_flag=flag)
    tell, keeps = group is None or group.notifyConsumerIdsChangedEnable, data.keeps_subscriptions
    broker.consumers.register_consumer(name, client, data.clientID, consumer, broker.now, tell=tell, keeps_subscriptions=keeps)
    for one in () if keeps else consumer.subscriptionDataSet:
        row = {"topic": one.topic, "subString": one.subString, "expressionType": one.expressionType, "subVersion": one.subVersion}
        broker.note(broker.now, "registration", {"consumerGroup": name, "clientId": data.clientID, **row})


def _heartbeat(broker: MemoryBroker, client: str, _ext: Ext, body: str | None) -> Answer:
    try:
        data = decode_heartbeat(None if body is None else body.encode())
    except FrameError as error:
        raise ThrownError(error.exception) from error
    return heartbeat(broker, client, data)


def unregister(broker: MemoryBroker, client: str, ext: Ext, _body: str | None = None) -> Answer:
    """Process UNREGISTER_CLIENT and return the answer."""
    group = ext.get("consumerGroup")
    if group is not None:
        auto_create = broker.settings.value("autoCreateSubscriptionGroup")
        config = broker.groups.find_subscription_group_config(group, auto_create=auto_create)
        tell = config is None or config.notifyConsumerIdsChangedEnable
        broker.consumers.unregister_consumer(group, client, broker.now, tell=tell)
        broker.note(broker.now, "unregistration", {"consumerGroup": group, "clientId": ext.get("clientID")})
    return answer(ResponseCode.SUCCESS, ext={})


def _queue_of(ext: Ext) -> tuple[str | None, int | None]:
    return ext.get("topic"), java_number(ext.get("queueId"), 32)


def _query_consumer_offset(broker: MemoryBroker, _client: str, ext: Ext, _body: str | None) -> Answer:
    topic, queue_id = _queue_of(ext)
    committed = broker.offsets.query_offset(ext.get("consumerGroup"), topic, queue_id)
    if committed >= 0:
        return answer(ResponseCode.SUCCESS, ext={"offset": committed})
    sets_zero = ext.get("setZeroIfNotFound")
    if broker.settings.rules.headers_have_more_fields and sets_zero is not None and not boolean_value_of(sets_zero):
        return answer(ResponseCode.QUERY_NOT_FOUND, "Not found, do not set to zero, maybe this group boot first", {})
    queue, settings = broker.store.queue(topic, queue_id), broker.settings.scan()

    def is_in_disk() -> bool:
        if broker.settings.rules.new_group_needs_messages:
            return not queue.max_offset
        return broker.store.is_in_disk(topic or "", queue_id or 0, 0, settings)

    offset = first_offset(committed, queue.min_offset, is_in_disk)
    if offset is None:
        return answer(ResponseCode.QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first", {})
    return answer(ResponseCode.SUCCESS, ext={"offset": offset})


def _update_consumer_offset(broker: MemoryBroker, _client: str, ext: Ext, _body: str | None) -> Answer:
    topic, queue_id = _queue_of(ext)
    group, offset = ext.get("consumerGroup"), java_number(ext.get("commitOffset"), 64)
    if broker.settings.rules.commits_of_known_groups_only and (refused := _refused_commit(broker, group, topic, queue_id, offset)):
        return refused
    broker.offsets.commit_offset(group, topic, queue_id, offset)
    broker.note_offset(group, topic, queue_id, offset)
    return answer(ResponseCode.SUCCESS, ext={})


def _refused_commit(broker: MemoryBroker, group: str | None, topic: str | None, queue_id: int | None, offset: int | None) -> Answer | None:
    """Return the answer to a commit that 5.5.0 refuses, None for any other commit.

    Raises:
        ThrownError: the topic is missing, which the broker looks up first of all.
    """
    if topic is None:
        raise ThrownError(NULL_POINTER)
    if not broker.groups.contains_subscription_group(group):
        return answer(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {'null' if group is None else group} not exist!", {})
    if broker.topics.select_topic_config(topic) is None:
        return answer(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!", {})
    if queue_id is None or offset is None:
        return answer(ResponseCode.INVALID_PARAMETER, f"{'QueueId' if queue_id is None else 'Offset'} is null, topic is {topic}", {})
    return None


def _max_offset(broker: MemoryBroker, _client: str, ext: Ext, _body: str | None) -> Answer:
    return answer(ResponseCode.SUCCESS, ext={"offset": broker.store.queue(*_queue_of(ext)).max_offset})


def _min_offset(broker: MemoryBroker, _client: str, ext: Ext, _body: str | None) -> Answer:
    return answer(ResponseCode.SUCCESS, ext={"offset": broker.store.queue(*_queue_of(ext)).min_offset})


def _search_offset(broker: MemoryBroker, _client: str, ext: Ext, _body: str | None) -> Answer:
    queue, timestamp = broker.store.queue(*_queue_of(ext)), java_number(ext.get("timestamp"), 64)
    if timestamp is None:
        raise ThrownError(NULL_POINTER)
    lookup, log = queue.lookup(), broker.store.commit_log()
    boundary = Boundary.UPPER if str(ext.get("boundaryType")).upper() == Boundary.UPPER.value else Boundary.LOWER
    by_boundary = broker.settings.by_boundary
    offset = offset_by_time(lookup, timestamp, log, boundary) if by_boundary else lookup.offset_by_time(timestamp, log)
    return answer(ResponseCode.SUCCESS, ext={"offset": offset})


def _earliest_time(broker: MemoryBroker, _client: str, ext: Ext, _body: str | None) -> Answer:
    queue = broker.store.queue(*_queue_of(ext))
    return answer(ResponseCode.SUCCESS, ext={"timestamp": queue.lookup().earliest_message_time(broker.store.commit_log())})


def _consumer_list(broker: MemoryBroker, _client: str, ext: Ext, _body: str | None) -> Answer:
    group = ext.get("consumerGroup")
    if group is None:
        raise ThrownError(NULL_POINTER)
    info = broker.consumers.get_consumer_group_info(group)
    if info is None:
        return answer(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}", {})
    body = _json({"consumerIdList": list(info.channel_info_table.values())})
    return answer(ResponseCode.SUCCESS, ext={}, body=body)


def _check_client_config(broker: MemoryBroker, _client: str, _ext: Ext, body: str | None) -> Answer:
    subscription = _object(body).get("subscriptionData")
    if not isinstance(subscription, dict):
        return answer(ResponseCode.SUCCESS)
    code, remark = check_subscription(
        subscription.get("expressionType", "TAG"),
        subscription.get("subString"),
        enable_property_filter=broker.settings.value("enablePropertyFilter"),
        text_operators=broker.settings.text_operators,
    )
    return answer(code, remark)


def _lock_batch(broker: MemoryBroker, _client: str, _ext: Ext, body: str | None) -> Answer:
    fields = _object(body)
    locked = broker.locks.try_lock_batch(fields.get("consumerGroup"), _queues(fields), fields.get("clientId"), broker.now)
    queues = [{"brokerName": one.brokerName, "queueId": one.queueId, "topic": one.topic} for one in locked]
    return answer(ResponseCode.SUCCESS, body=_json({"lockOKMQSet": queues}))


def _unlock_batch(broker: MemoryBroker, _client: str, _ext: Ext, body: str | None) -> Answer:
    fields = _object(body)
    broker.locks.unlock_batch(fields.get("consumerGroup"), _queues(fields), fields.get("clientId"))
    return answer(ResponseCode.SUCCESS)


def _queues(fields: dict[str, Any]) -> list[MessageQueue]:
    return [MessageQueue(one.get("topic"), one.get("brokerName"), int(one.get("queueId", 0))) for one in fields.get("mqSet") or []]


def _object(body: str | None) -> dict[str, Any]:
    if body is None:
        raise ThrownError(NULL_POINTER)
    try:
        found = json.loads(body)
    except ValueError as error:
        raise ThrownError(_JSON_EXCEPTION) from error
    if not isinstance(found, dict):
        raise ThrownError(_JSON_EXCEPTION)
    return found


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _forbid(broker: MemoryBroker, _client: str, ext: Ext, _body: str | None) -> Answer:
    """Forbid a group to pull a topic, or allow it: AdminBrokerProcessor.updateAndGetGroupForbidden (5.5.0)."""
    group, topic, readable = ext.get("group"), ext.get("topic"), ext.get("readable")
    if group is None or (topic is None and readable is not None):
        raise ThrownError(NULL_POINTER)
    if topic is None:
        return answer(ResponseCode.SUCCESS, "", body=_json({"group": group, "readable": True}))
    if readable is not None:
        broker.groups.update_forbidden(group, topic, readable=boolean_value_of(readable))
    told = {"group": group, "readable": not broker.groups.is_forbidden(group, topic), "topic": topic}
    return answer(ResponseCode.SUCCESS, "", body=_json(told))


_HANDLERS: Mapping[int, Callable[[MemoryBroker, str, Ext, str | None], Answer]] = {
    RequestCode.QUERY_CONSUMER_OFFSET: _query_consumer_offset,
    RequestCode.UPDATE_CONSUMER_OFFSET: _update_consumer_offset,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _search_offset,
    RequestCode.GET_MAX_OFFSET: _max_offset,
    RequestCode.GET_MIN_OFFSET: _min_offset,
    GET_EARLIEST_MSG_STORETIME: _earliest_time,
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.UNREGISTER_CLIENT: unregister,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _consumer_list,
    RequestCode.LOCK_BATCH_MQ: _lock_batch,
    RequestCode.UNLOCK_BATCH_MQ: _unlock_batch,
    CHECK_CLIENT_CONFIG: _check_client_config,
    _UPDATE_AND_GET_GROUP_FORBIDDEN: _forbid,
}
