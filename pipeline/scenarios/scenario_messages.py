"""The steps of a scenario that store messages, and those that read stored messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pipeline.scenarios.scenario_file import Step, sent_properties
from pipeline.scenarios.scenario_requests import answer
from pipeline.scenarios.scenario_run import Run
from store_format.log.put_message import InnerMessage, PutMessageError, PutMessageStatus, delay_level
from store_format.record.message import Message
from udfs.broker.memory_broker import BROKER_HOST, CLIENT_HOST, MemoryBroker
from udfs.broker.send_message import (
    SendBackRequest,
    SendMessageRequest,
    SendRefused,
    lacks_slave,
    put_back_refused,
    put_refused,
    send_back,
)
from udfs.broker.topic_config import AUTO_CREATE_TOPIC_KEY_TOPIC, RMQ_SYS_OFFSET_MOVED_EVENT
from udfs.broker.transactional_message import half_message, is_prepared
from udfs.pull.codes import ResponseCode

_STORED_MS = 50
_OFFSETS_LISTED_MAX = 12
_BORN_TIMESTAMP = 1_600_000_000_000
_VERSION = 399


def send_messages(run: Run, step: Step) -> None:
    """Send messages to a queue: step `send`; the result has their queue offsets, or why the broker refused them."""
    messages = step["messages"] if step.get("messages") is not None else [step["template"]] * step["count"]
    offsets: list[int] = []
    errors: list[dict[str, Any]] = []
    for message in messages:
        try:
            offsets.append(_send_one(run.broker, step["topic"], step["queueId"], message))
        except SendRefused as refused:
            errors.append({"code": int(refused.code), "remark": refused.remark})
    many = len(offsets) > _OFFSETS_LISTED_MAX
    step["result"] = {"firstOffset": offsets[0], "lastOffset": offsets[-1]} if many else {"queueOffsets": offsets}
    if errors:
        step["result"]["errors"] = errors


def _send_one(broker: MemoryBroker, topic: str, queue_id: int, message: Mapping[str, Any]) -> int:
    """Send a message and return its queue offset."""
    body = message.get("body")
    size = message.get("bodySize")
    inner = InnerMessage(
        topic=topic,
        queue_id=queue_id,
        body=bytes(4 if size is None else size) if body is None else body.encode(),
        born_host=CLIENT_HOST,
        store_host=BROKER_HOST,
        born_timestamp=_BORN_TIMESTAMP,
        properties=sent_properties(message),
        flag=message.get("flag") or 0,
        reconsume_times=message.get("reconsumeTimes") or 0,
    )
    request = SendMessageRequest(
        message=inner,
        default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
        default_topic_queue_nums=4,
        max_reconsume_times=message.get("maxReconsumeTimes"),
    )
    accepted = broker.sending().accept(request)
    if is_prepared(accepted.properties) and not (broker.settings.rules.retries_are_no_transactions and _is_delayed_retry(accepted)):
        accepted = _half_message(broker, accepted)
    stored = _put(broker, accepted, put_refused)
    if broker.settings.rules.sync_masters_need_slaves and lacks_slave(broker.role, accepted.properties):
        raise SendRefused(ResponseCode.SLAVE_NOT_AVAILABLE, None)
    return stored.queue_offset


def _half_message(broker: MemoryBroker, message: InnerMessage) -> InnerMessage:
    """Return what is stored for a message that is sent in a transaction."""
    if broker.settings.value("rejectTransactionMessage"):
        raise SendRefused(
            ResponseCode.NO_PERMISSION, f"the broker[{broker.settings.value('brokerIP1')}] sending transaction message is forbidden"
        )
    return half_message(message, has_id=broker.settings.rules.half_messages_have_ids)


def _is_delayed_retry(message: InnerMessage) -> bool:
    try:
        return message.reconsume_times > 0 and delay_level(message.properties) > 0
    except PutMessageError as error:
        raise SendRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error


def _put(broker: MemoryBroker, inner: InnerMessage, refused: Callable[[PutMessageStatus], SendRefused]) -> Message:
    try:
        stored = broker.put(inner)
    except PutMessageError as error:
        raise SendRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
    if isinstance(stored, PutMessageStatus):
        raise refused(stored)
    return stored


def send_message_back(run: Run, step: Step) -> None:
    """Send a message back, as a consumer that could not consume it does: step `sendBack`."""
    broker, topic, queue_id = run.broker, step["originTopic"], step["queueId"]
    offset = step.get("physicalOffset")
    if offset is None:
        entry = broker.store.queue(topic, queue_id).entry(step["queueOffset"])
        offset = entry[0] if entry else 0
    request = SendBackRequest(
        group=step["group"],
        delay_level=step["delayLevel"],
        max_reconsume_times=step.get("maxReconsumeTimes"),
        version=_VERSION if step.get("version") is None else step["version"],
    )
    try:
        inner = send_back(broker.sending(), request, broker.store.message_at(offset))
        if inner is not None:
            _put(broker, inner, put_back_refused)
        step["result"] = answer(ResponseCode.SUCCESS)
    except SendRefused as refused:
        step["result"] = answer(refused.code, refused.remark)


def replicate(run: Run, step: Step) -> None:
    """Append the last message of a queue again: step `replicate`; the result has its queue offset."""
    store, queue = run.broker.store, run.broker.store.queue(step["topic"], step["queueId"])
    last = next(store.last_messages(step["topic"], step["queueId"], 1), None)
    if last is not None:
        run.broker.dispatch(store.append(last, queue.max_offset))
    step["result"] = {"queueOffset": queue.max_offset - 1}


def read_stored(run: Run, step: Step) -> None:
    """Read the last stored messages of a queue: step `readStored`."""
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


def find_last(run: Run, step: Step) -> None:
    """Find the messages with a body in the queues of some topics: step `findLast`."""
    store = run.broker.store
    queues = sorted(key for key in store.queues if key[0] in step["topics"])
    in_order = [key for topic in step["topics"] for key in queues if key[0] == topic]
    found = [message for key in in_order for message in store.last_messages(*key, None)]
    step["result"] = [_shown(one) for one in found if one is not None and one.body == step["body"].encode()]


def delete_log_head(run: Run, step: Step) -> None:
    """Delete the first files of the commit log: step `deleteCommitLogHead`."""
    deleted = run.broker.delete_log_head()
    step["result"] = {"filesDeleted": deleted, "commitLogMinOffset": run.broker.store.log.start}


def delete_queue_head(run: Run, step: Step) -> None:
    """Delete the first file of a queue: step `deleteConsumeQueueHead`."""
    run.broker.store.queue(step["topic"], step["queueId"]).delete_first_file()


def min_offset(run: Run, step: Step) -> None:
    """Set the min offset of a queue: step `minOffset`."""
    run.broker.store.queue(step["topic"], step["queueId"]).min_offset = step["offset"]


def queue_range(run: Run, step: Step) -> None:
    """Read min and max offset of a queue: step `queueRange`."""
    queue = run.broker.store.queue(step["topic"], step["queueId"])
    step["result"] = {"min": queue.min_offset, "max": queue.max_offset}
