"""The broker's processing of a sent message before it is stored, and of a message that a consumer sends back.

Broker source (4.9.3): SendMessageProcessor (asyncSendMessage, handleRetryAndDLQ, handlePutMessageResult, asyncConsumerSendMsgBack),
AbstractSendMessageProcessor.msgCheck, ScheduleMessageService.messageTimeup.
Rules: an unknown topic is created if autoCreateTopicEnable and the model topic allow it. The queue id must be below the larger of the
topic's numbers of read and write queues. The cluster's name is stored as a property. A message that is sent back goes to the group's
retry topic after a delay, or to its dead letter topic.
Surprises: a topic without write permission accepts messages. A broker without write permission refuses only messages to ordered topics. A
synchronous master without a slave stores a message and answers SLAVE_NOT_AVAILABLE. A message is stored without its
property WAIT. A message that is sent back gets WAIT, and keeps DELAY, REAL_TOPIC and REAL_QID when it is delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from store_format.config.config_rows import SubscriptionGroupConfig
from store_format.log import put_message as pm
from store_format.record.message import Message, decode_properties, encode_properties
from store_format.store.lookup import NULL_POINTER
from udfs.broker.broker_rules import DEFAULT_BROKER_RULES, BrokerRules
from udfs.broker.pull_message_processor import Refused
from udfs.broker.subscription_group import SubscriptionGroupManager
from udfs.broker.topic_config import DLQ_GROUP_TOPIC_PREFIX, HALF_TOPIC, TopicConfigManager, is_writeable
from udfs.broker.topic_validator import topic_fault
from udfs.filters.message_filter import PROPERTY_RETRY_TOPIC, RETRY_GROUP_TOPIC_PREFIX
from udfs.pull.codes import BrokerRole, ResponseCode
from udfs.pull.pull_result import MASTER_ID

PROPERTY_CLUSTER: Final = "CLUSTER"
PROPERTY_WAIT_STORE_MSG_OK: Final = "WAIT"
PROPERTY_ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
PROPERTY_UNIQ_KEY: Final = "UNIQ_KEY"
_POP_CK: Final = "POP_CK"  # of 5.x
PROPERTY_MSG_REGION: Final = "MSG_REGION"
PROPERTY_TRACE_SWITCH: Final = "TRACE_ON"
_UNIQ_KEY_CHARACTERS: Final = 56
DLQ_NUMS_PER_GROUP: Final = 1
V3_4_9: Final = 121  # MQVersion: from this version on a client sends maxReconsumeTimes
FIRST_DELAY_LEVEL: Final = 3
_TODO: Final = "See http://rocketmq.apache.org/docs/faq/ for further details."
_ILLEGAL = (
    "the message is illegal, maybe msg body or properties length not matched. msg body length limit 128k, msg properties length limit 32k."
)
_REFUSED: Final = {
    pm.PutMessageStatus.MESSAGE_ILLEGAL: (ResponseCode.MESSAGE_ILLEGAL, _ILLEGAL),
    pm.PutMessageStatus.PROPERTIES_SIZE_EXCEEDED: (ResponseCode.MESSAGE_ILLEGAL, _ILLEGAL),
    pm.PutMessageStatus.SERVICE_NOT_AVAILABLE: (ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now."),
    pm.PutMessageStatus.UNKNOWN_ERROR: (ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR"),
}


class SendRefused(Refused):
    """An answer other than SUCCESS to a sent message; the broker may have stored the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBrokerConfig:
    """The settings that sending depends on, under the broker's own names."""

    broker_cluster_name: str
    broker_ip1: str
    broker_permission: int = 6
    auto_create_topic_enable: bool = True
    auto_create_subscription_group: bool = True
    broker_id: int = MASTER_ID
    region_id: str = "DefaultRegion"
    trace_on: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessageRequest:
    """A request SEND_MESSAGE: the message with its properties as sent, and the other header fields.

    `default_topic` is the model for a topic that does not exist, which gets at most `default_topic_queue_nums` queues.
    `max_reconsume_times` counts for a message to a retry topic; None if the producer sent none.
    """

    message: pm.InnerMessage
    default_topic: str
    default_topic_queue_nums: int
    max_reconsume_times: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessageProcessor:
    """The processor of sent messages, with the tables and settings it reads.

    `new_uniq_key` makes the UNIQ_KEY of a message that has none; None if the broker adds only CLUSTER (4.9). `holds_lock` tells whether a
    client of a group holds a lock, `rejects` whether the broker refuses each message. `rules` are those of the broker's version.
    """

    config: SendBrokerConfig
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    new_uniq_key: Callable[[], str] | None = None
    holds_lock: Callable[[str], bool] = lambda _group: False
    rejects: bool = False
    rules: BrokerRules = DEFAULT_BROKER_RULES

    def accept(self, request: SendMessageRequest) -> pm.InnerMessage:
        """Return the message that the broker stores for a request.

        Raises:
            SendRefused: the broker refuses the message.
        """
        self.check_reject()
        message = request.message
        if self.rules.sends_need_bodies and not message.body:
            raise SendRefused(ResponseCode.SYSTEM_ERROR, NULL_POINTER)
        self._check(request)
        if message.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            message = self._to_dead_letters(request)
        properties = dict(message.properties) | {PROPERTY_CLUSTER: self.config.broker_cluster_name}
        if self.new_uniq_key is not None:
            return self._with_all_properties(message, properties)
        stored = {name: value for name, value in properties.items() if name != PROPERTY_WAIT_STORE_MSG_OK}
        # For a negative queue id the broker draws a queue at random; this takes queue 0.
        return replace(message, queue_id=max(message.queue_id, 0), properties=properties, properties_string=pm.properties_to_string(stored))

    def check_reject(self) -> None:
        """Raise SendRefused if the broker refuses each message."""
        if self.rejects:
            raise SendRefused(ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy, start flow control for a while")

    def _with_all_properties(self, message: pm.InnerMessage, properties: dict[str, str]) -> pm.InnerMessage:
        """Return the message as 5.5.0 stores it: with its property WAIT, and without POP_CK (clearReservedProperties)."""
        assert self.new_uniq_key is not None
        properties.pop(_POP_CK, None)
        # whatever the producer sent
        properties |= {PROPERTY_MSG_REGION: self.config.region_id, PROPERTY_TRACE_SWITCH: str(self.config.trace_on).lower()}
        if not properties.get(PROPERTY_UNIQ_KEY):
            properties[PROPERTY_UNIQ_KEY] = self.new_uniq_key()
        text = pm.properties_to_string(properties)
        return replace(message, queue_id=max(message.queue_id, 0), properties=properties, properties_string=text)

    def _check(self, request: SendMessageRequest) -> None:
        """Raise SendRefused if a check of AbstractSendMessageProcessor.msgCheck fails."""
        name, queue_id = request.message.topic, request.message.queue_id
        known = self.topics.topic_config_table.get(name)
        if not is_writeable(self.config.broker_permission) and known is not None and known.order:
            raise SendRefused(ResponseCode.NO_PERMISSION, f"the broker[{self.config.broker_ip1}] sending message is forbidden")
        bad = ResponseCode.INVALID_PARAMETER if self.rules.bad_sends_are_invalid_parameters else ResponseCode.SYSTEM_ERROR
        if fault := topic_fault(name, long_retry_topics=self.rules.retry_topics_may_be_long):
            raise SendRefused(bad, fault)
        if name in self.rules.closed_topics:
            raise SendRefused(ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden.")
        topic = self.topics.create_topic_in_send_message(
            name,
            request.default_topic,
            request.default_topic_queue_nums,
            auto_create_topic_enable=self.config.auto_create_topic_enable,
        )
        if topic is None and name.startswith(RETRY_GROUP_TOPIC_PREFIX):
            topic = self.topics.create_topic_in_send_message_back(name, 1)
        if topic is None:
            raise SendRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!\n{_TODO}")
        if queue_id >= max(topic.writeQueueNums, topic.readQueueNums):
            raise SendRefused(bad, f"request queueId[{queue_id}] is illegal, {name}")

    def _to_dead_letters(self, request: SendMessageRequest) -> pm.InnerMessage:
        """Return a message to a retry topic; its topic is the dead letter topic if it was tried too often: handleRetryAndDLQ."""
        message = request.message
        group_name = message.topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX)
        group = self.groups.find_subscription_group_config(group_name, auto_create=self.config.auto_create_subscription_group)
        if group is None:
            raise SendRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group_name} \n{_TODO}")
        most = group.retryMaxTimes if request.max_reconsume_times is None else request.max_reconsume_times
        later = self.rules.locks_make_dead_letters
        if message.reconsume_times < most + later and not (later and self.holds_lock(group_name)):
            return message
        dead = self.topics.create_topic_in_send_message_back(DLQ_GROUP_TOPIC_PREFIX + group_name, DLQ_NUMS_PER_GROUP)
        delay = {pm.PROPERTY_DELAY: "-1"} if later else {}
        return replace(message, topic=dead.topicName, queue_id=0, properties=dict(message.properties) | delay)


def uniq_key(number: int) -> str:
    """Return a UNIQ_KEY as long as a broker's with an IPv6 address (MessageClientIDSetter.createUniqID); with IPv4 it is 32 long."""
    return f"{number:0{_UNIQ_KEY_CHARACTERS}X}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBackRequest:
    """A request CONSUMER_SEND_MSG_BACK; `max_reconsume_times` is None if the client sent none, `version` is the client's version."""

    group: str
    delay_level: int
    max_reconsume_times: int | None
    version: int

    def most_tries(self, group: SubscriptionGroupConfig) -> int:
        """Return how often a message may be tried: the client's number from version V3_4_9 on, else retryMaxTimes of its group."""
        says = self.max_reconsume_times if self.version >= V3_4_9 else None
        return group.retryMaxTimes if says is None else says


def retry_level(delay_level: int, reconsume_times: int, most_tries: int) -> int | None:
    """Return the delay level of a message that is sent back, None if it becomes a dead letter.

    The client chooses `delay_level`: at 0 the broker chooses, below 0 the message becomes a dead letter. `reconsume_times` is how often the
    message was sent back before, `most_tries` is from `SendBackRequest.most_tries`.
    """
    if reconsume_times >= most_tries or delay_level < 0:
        return None
    return delay_level or FIRST_DELAY_LEVEL + reconsume_times


def send_back(processor: SendMessageProcessor, request: SendBackRequest, found: Message | None, draw: int = 0) -> pm.InnerMessage | None:
    """Return the message that the broker stores for a message sent back (asyncConsumerSendMsgBack).

    None if the group has no retry queues: the message is then lost. `found` is the message at the request's physical offset. `draw`, the
    broker's random number from 0 on, selects one of the group's retry queues.

    Raises:
        SendRefused: the broker refuses the request.
    """
    processor.check_reject()
    config, name = processor.config, request.group
    if processor.rules.masters_take_messages_back and config.broker_id != MASTER_ID:
        raise SendRefused(ResponseCode.SYSTEM_ERROR, f"no master available along with {config.broker_ip1}")
    group = processor.groups.find_subscription_group_config(name, auto_create=config.auto_create_subscription_group)
    if group is None:
        raise SendRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name} \n{_TODO}")
    if not is_writeable(config.broker_permission):
        raise SendRefused(ResponseCode.NO_PERMISSION, f"the broker[{config.broker_ip1}] sending message is forbidden")
    if group.retryQueueNums <= 0:
        return None
    topic = processor.topics.create_topic_in_send_message_back(RETRY_GROUP_TOPIC_PREFIX + name, group.retryQueueNums)
    if not is_writeable(topic.perm):
        raise SendRefused(ResponseCode.NO_PERMISSION, f"the topic[{topic.topicName}] sending message is forbidden")
    if found is None:
        raise SendRefused(ResponseCode.SYSTEM_ERROR, "look message by offset failed")
    queues, level = group.retryQueueNums, retry_level(request.delay_level, found.reconsume_times, request.most_tries(group))
    if level is None:
        queues = DLQ_NUMS_PER_GROUP
        topic = processor.topics.create_topic_in_send_message_back(DLQ_GROUP_TOPIC_PREFIX + name, queues)
    properties = found.properties_map()
    properties = {PROPERTY_RETRY_TOPIC: found.topic.decode()} | properties
    properties |= {PROPERTY_WAIT_STORE_MSG_OK: "false", pm.PROPERTY_DELAY: str(level or 0)}
    properties[PROPERTY_ORIGIN_MESSAGE_ID] = properties.get(PROPERTY_ORIGIN_MESSAGE_ID) or found.msg_id
    return stored_again(found, topic.topicName, draw % queues, properties, found.reconsume_times + 1)


def message_timeup(delayed: Message) -> pm.InnerMessage | None:
    """Return the message that the broker stores when a delayed message is due: ScheduleMessageService.messageTimeup.

    None for a half message, which the broker discards then.
    """
    properties = delayed.properties_map()
    if properties.get(pm.PROPERTY_REAL_TOPIC) == HALF_TOPIC:
        return None
    queue_id = int(properties.get(pm.PROPERTY_REAL_QUEUE_ID, "0"))
    inner = stored_again(delayed, properties.get(pm.PROPERTY_REAL_TOPIC, ""), queue_id, properties, delayed.reconsume_times)
    # the broker changes these two after it has made the text of the properties
    changed = {name: one for name, one in properties.items() if name != pm.PROPERTY_DELAY} | {PROPERTY_WAIT_STORE_MSG_OK: "false"}
    return replace(inner, properties=changed)


def stored_again(message: Message, topic: str, queue_id: int, properties: Mapping[str, str], reconsume_times: int) -> pm.InnerMessage:
    """Return a stored message to be stored again in another queue and with other properties."""
    return pm.InnerMessage(
        topic=topic,
        queue_id=queue_id,
        body=message.body,
        born_host=message.born_host,
        store_host=message.store_host,
        born_timestamp=message.born_timestamp,
        properties=properties,
        properties_string=pm.properties_to_string(properties),
        flag=message.flag,
        sys_flag=message.sys_flag,
        reconsume_times=reconsume_times,
    )


def put_refused(status: pm.PutMessageStatus) -> SendRefused:
    """Return the answer to a message that the store refused with a status: handlePutMessageResult."""
    code, remark = _REFUSED[status]
    return SendRefused(code, remark)


def put_back_refused(status: pm.PutMessageStatus) -> SendRefused:
    """Return the answer to a message that was sent back and that the store refused with a status: asyncConsumerSendMsgBack."""
    return SendRefused(ResponseCode.SYSTEM_ERROR, status.value)


def lacks_slave(broker_role: BrokerRole, properties: Mapping[str, str]) -> bool:
    """Return whether a stored message is answered with SLAVE_NOT_AVAILABLE when no slave is connected: CommitLog.submitReplicaRequest."""
    waits = (properties.get(PROPERTY_WAIT_STORE_MSG_OK) or "true").lower() == "true"
    return broker_role == BrokerRole.SYNC_MASTER and waits


def as_sent(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that reach the broker: a producer sends them as one text, which loses properties without a value."""
    return decode_properties(encode_properties(dict(properties)))
