"""The broker's processing of a pull: the checks before the store is read, and the answer after it.

Broker source (4.9.3): PullMessageProcessor.processRequest.
Rules: the checks have a fixed order, and the first that fails decides. The answer of a failed check has an empty header; the pull is not
held and commits no offset. After the store's answer come the response code, then the hold or the OFFSET_MOVED event, then the commit of
the pull's offset.
Surprises: header fields are not checked, so a missing one makes the broker throw where it is first used. Earlier steps are not undone: a
pull may be held and answered SYSTEM_ERROR. An expression other than TAG without a subVersion is refused as if it did not parse.
A woken pull (second pass) is not held again and commits no offset, and gets no answer if the broker throws. Messages sent by zero copy
leave before the commit, even to a client that wants no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from store_format.config.config_rows import ConsumerFilterData, SubscriptionGroupConfig, with_extra
from store_format.record.message import Message
from store_format.remoting.headers import PullMessageRequestHeader, PullSysFlag
from store_format.store.lookup import NULL_POINTER, ThrownError
from udfs.broker.broker_rules import DEFAULT_BROKER_RULES, BrokerRules
from udfs.broker.consumer_manager import CONSUME_ACTIVELY, Channel, ConsumerManager
from udfs.broker.consumer_offset_manager import ConsumerOffsetManager
from udfs.broker.offset_moved_event import OffsetMovedEvent
from udfs.broker.subscription_group import SubscriptionGroupManager
from udfs.broker.system_groups import is_sys_consumer_group_pull_message
from udfs.broker.topic_config import TopicConfigManager, is_readable
from udfs.filters.consumer_filter_manager import ConsumerFilterManager, build, is_tag_type
from udfs.filters.message_filter import ExpressionMessageFilter, SubscriptionError, TopicSubscription, message_filter
from udfs.filters.retry_rules import DEFAULT_RETRY_RULES, RetryRules
from udfs.filters.tags import SubscriptionParseError
from udfs.pull import pull_result
from udfs.pull.codes import BrokerRole, GetMessageStatus, ResponseCode
from udfs.pull.pull_request_hold import HeldRequest, polling_time

SUGGEST = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."


@dataclass(frozen=True, slots=True, kw_only=True)
class PullBrokerConfig:
    """The settings that a pull depends on, without those of the store's scan, under the broker's own names."""

    broker_name: str
    broker_ip1: str
    broker_role: BrokerRole
    broker_permission: int = 6
    auto_create_subscription_group: bool = True
    enable_property_filter: bool = False
    filter_support_retry: bool = False
    slave_read_enable: bool = False
    offset_check_in_slave: bool = False
    long_polling_enable: bool = True
    short_polling_time_mills: int = 1000
    transfer_msg_by_heap: bool = True
    enable_lmq: bool = False
    lite_pull_message_enable: bool = True
    reject_pull_consumer_enable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who sends a pull: the client's address, for remarks; its connection; and whether the request is a LITE_PULL_MESSAGE (5.x)."""

    address: str
    channel: Channel
    is_lite: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMessageResult:
    """The store's answer to a pull; its messages are (queueOffset, size in bytes, message)."""

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    suggest_pulling_from_slave: bool
    messages: tuple[tuple[int, int, Message], ...]


# DefaultMessageStore.getMessage of (topic, queueId, offset, maxMsgNums, filter); None if the store answers null
GetMessage = Callable[[str, int, int, int, ExpressionMessageFilter], GetMessageResult | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PullResponse:
    """The answer to a pull.

    The store's answer `result`, and the brokerId to pull from next, are None if a check failed before the store was read. `fields` are
    further fields of the header, None if the answer has no header.
    """

    code: ResponseCode
    remark: str | None
    suggest_which_broker_id: int | None = None
    result: GetMessageResult | None = None
    fields: Mapping[str, object] | None = field(default_factory=dict)


class ForbiddenType(IntEnum):
    """Who forbids a pull (ForbiddenType of 5.5.0)."""

    BROKER_FORBIDDEN = 1
    GROUP_FORBIDDEN = 2
    TOPIC_FORBIDDEN = 3
    BROADCASTING_DISABLE_FORBIDDEN = 4
    SUBSCRIPTION_FORBIDDEN = 5


class Refused(Exception):  # noqa: N818 - an answer of the broker, not an error of ours
    """A check of a request failed; has the code and the remark of the answer, and who forbids the pull."""

    def __init__(self, code: ResponseCode, remark: str | None, forbidden: ForbiddenType | None = None) -> None:
        super().__init__(code, remark, forbidden)
        self.code = code
        self.remark = remark
        self.forbidden = forbidden


def _needed(value: int | None) -> int:
    """Return a header field that the broker unboxes here; raise its NullPointerException if the field is missing."""
    if value is None:
        raise ThrownError(NULL_POINTER)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class PullMessageProcessor:
    """The processor of pulls, with the tables it reads and the actions it takes; `now` is the broker's time, ms.

    `get_message` is the store's getMessage, `suspend` holds a pull, `offset_moved` stores an OFFSET_MOVED event, `committed` is called
    after the pull's offset was committed. `write` sends an answer to the client at once, without the steps that follow the processor.
    `rules` and `retry_rules` are those of the broker's version.
    """

    config: PullBrokerConfig
    rules: BrokerRules = DEFAULT_BROKER_RULES
    retry_rules: RetryRules = DEFAULT_RETRY_RULES
    now: int
    groups: SubscriptionGroupManager
    topics: TopicConfigManager
    consumers: ConsumerManager
    filters: ConsumerFilterManager
    offsets: ConsumerOffsetManager
    get_message: GetMessage
    suspend: Callable[[str, int, HeldRequest[PullMessageRequestHeader]], None]
    offset_moved: Callable[[OffsetMovedEvent], None]
    committed: Callable[[], None]
    write: Callable[[PullResponse], None]

    def process_request(
        self, header: PullMessageRequestHeader, caller: Caller, *, broker_allow_suspend: bool, answer: Callable[[PullResponse], None]
    ) -> None:
        """Process a pull, and call `answer` with the answer unless the pull is held.

        `broker_allow_suspend` is True on the first pass, False for a woken pull.

        Raises:
            ThrownError: the broker throws.
        """
        if broker_allow_suspend and self.rejects():
            answer(PullResponse(code=ResponseCode.SYSTEM_BUSY, remark="the slave does not serve reads", fields=None))
            return
        try:
            group, message_filter = self.check(header, caller)
        except Refused as refused:
            answer(PullResponse(code=refused.code, remark=refused.remark, fields=self._forbidden(refused)))
            return
        topic, queue_id, offset = header.topic or "", _needed(header.queueId), _needed(header.queueOffset)
        result = self.get_message(topic, queue_id, offset, _needed(header.maxMsgNums), message_filter)
        try:
            response = self._after_store(header, group, message_filter, result, broker_allow_suspend=broker_allow_suspend)
        except ThrownError:
            if self.rules.missing_offset_gets_no_answer:
                return
            raise
        if response is not None:
            answer(response)

    def rejects(self) -> bool:
        """Return whether the broker refuses each pull with SYSTEM_BUSY, before any check."""
        config = self.config
        return self.rules.slave_refuses_first and config.broker_role == BrokerRole.SLAVE and not config.slave_read_enable

    def _forbidden(self, refused: Refused) -> dict[str, int]:
        known = self.rules.refusals_have_forbidden_type and refused.forbidden is not None
        return {"forbiddenType": int(refused.forbidden)} if known and refused.forbidden is not None else {}

    def _after_store(
        self,
        header: PullMessageRequestHeader,
        group: SubscriptionGroupConfig,
        message_filter: ExpressionMessageFilter,
        result: GetMessageResult | None,
        *,
        broker_allow_suspend: bool,
    ) -> PullResponse | None:
        """Return the answer for the store's result, None for a pull that is held or whose answer was written; commit its offset.

        Raises:
            ThrownError: the broker throws.
        """
        topic, queue_id, offset = header.topic or "", _needed(header.queueId), _needed(header.queueOffset)
        response: PullResponse | None = PullResponse(code=ResponseCode.SYSTEM_ERROR, remark="store getMessage return null")
        if result is None and self.rules.null_result_ends_the_pull:
            return response
        if result is not None:
            response = self._respond(header, group, result)
            may_wait = broker_allow_suspend and header.has(PullSysFlag.SUSPEND)
            if response.code == ResponseCode.PULL_NOT_FOUND and may_wait:
                timeout = polling_time(
                    _needed(header.suspendTimeoutMillis),
                    long_polling_enable=self.config.long_polling_enable,
                    short_polling_time_mills=self.config.short_polling_time_mills,
                )
                held = HeldRequest(
                    request=header,
                    timeout_millis=timeout,
                    suspend_timestamp=self.now,
                    pull_from_this_offset=offset,
                    message_filter=message_filter,
                )
                self.suspend(topic, queue_id, held)
                response = None
            elif response.code == ResponseCode.SUCCESS and not self.config.transfer_msg_by_heap:
                self.write(response)
                response = None
        role = self.config.broker_role
        commits = role != BrokerRole.SLAVE or self.rules.slaves_commit
        if broker_allow_suspend and header.has(PullSysFlag.COMMIT_OFFSET) and commits:
            self.offsets.commit_offset(header.consumerGroup, topic, queue_id, header.commitOffset)
            self.committed()
        return response

    def check(self, header: PullMessageRequestHeader, caller: Caller) -> tuple[SubscriptionGroupConfig, ExpressionMessageFilter]:
        """Run the checks before the store is read; return the group's configuration and the pull's filter.

        Raises:
            Refused: a check fails.
            ThrownError: the broker throws, because a header field is missing.
        """
        if not is_readable(self.config.broker_permission):
            remark = f"the broker[{self.config.broker_ip1}] pulling message is forbidden"
            raise Refused(ResponseCode.NO_PERMISSION, remark, ForbiddenType.BROKER_FORBIDDEN)
        if caller.is_lite and not self.config.lite_pull_message_enable:
            remark = f"the broker[{self.config.broker_ip1}] for lite pull consumer is forbidden"
            raise Refused(ResponseCode.NO_PERMISSION, remark, ForbiddenType.BROKER_FORBIDDEN)
        group = self.groups.find_subscription_group_config(header.consumerGroup, auto_create=self.config.auto_create_subscription_group)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{header.consumerGroup}] does not exist, {SUGGEST}"
            )
        if not group.consumeEnable:
            remark = f"subscription group no permission, {header.consumerGroup}"
            raise Refused(ResponseCode.NO_PERMISSION, remark, ForbiddenType.GROUP_FORBIDDEN)
        if not self.rules.timeout_is_read_when_held:
            _needed(header.sysFlag)
            if header.has(PullSysFlag.SUSPEND):
                _needed(header.suspendTimeoutMillis)
        self._check_queue(header, caller.address)
        _needed(header.sysFlag)
        by_request = header.has(PullSysFlag.SUBSCRIPTION)
        subscription, filter_data = self._of_request(header) if by_request else self._of_registration(header, group)
        kind = subscription.expression_type
        if not is_tag_type(kind) and not self.config.enable_property_filter:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"The broker does not support consumer to filter message by {kind}")
        if self.config.reject_pull_consumer_enable:
            self._check_registered(header.consumerGroup or "", caller.channel)
        support_retry = self.config.filter_support_retry
        return group, message_filter(subscription, filter_data, self.filters, support_retry=support_retry, rules=self.retry_rules)

    def _check_queue(self, header: PullMessageRequestHeader, client: str) -> None:
        topic = self.topics.select_topic_config(header.topic)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please! {SUGGEST}")
        if not is_readable(topic.perm):
            remark = f"the topic[{header.topic}] pulling message is forbidden"
            raise Refused(ResponseCode.NO_PERMISSION, remark, ForbiddenType.TOPIC_FORBIDDEN)
        queue_id = _needed(header.queueId)
        if queue_id < 0 or queue_id >= topic.readQueueNums:
            queues = f"topicConfig.readQueueNums:[{topic.readQueueNums}]"
            remark = f"queueId[{queue_id}] is illegal, topic:[{header.topic}] {queues} consumer:[{client}]"
            is_parameter = self.rules.bad_queue_is_invalid_parameter
            raise Refused(ResponseCode.INVALID_PARAMETER if is_parameter else ResponseCode.SYSTEM_ERROR, remark)

    def _of_request(self, header: PullMessageRequestHeader) -> tuple[TopicSubscription, ConsumerFilterData | None]:
        """Return the subscription in the pull request, and its filter data."""
        failed = Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed")
        try:
            subscription = TopicSubscription.build(header.topic or "", header.subscription, header.expressionType)
        except (SubscriptionParseError, SubscriptionError):
            raise failed from None
        if is_tag_type(subscription.expression_type):
            return subscription, None
        if header.subVersion is None:
            raise failed
        group, version = header.consumerGroup or "", header.subVersion
        text_operators = self.filters.text_operators
        data = build(
            subscription.topic, group, header.subscription, header.expressionType, version, self.now, text_operators=text_operators
        )
        return subscription, data

    def _of_registration(
        self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig
    ) -> tuple[TopicSubscription, ConsumerFilterData | None]:
        """Return the subscription that the group's heartbeats registered, and its filter data."""
        name, topic = header.consumerGroup or "", header.topic or ""
        info = self.consumers.get_consumer_group_info(name)
        if info is None:
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{SUGGEST}")
        if not group.consumeBroadcastEnable and info.message_model == "BROADCASTING":
            remark = f"the consumer group[{name}] can not consume by broadcast way"
            raise Refused(ResponseCode.NO_PERMISSION, remark, ForbiddenType.BROADCASTING_DISABLE_FORBIDDEN)
        if self.groups.is_forbidden(name, topic):
            remark = f"the consumer group[{name}] is forbidden for topic[{topic}]"
            raise Refused(ResponseCode.NO_PERMISSION, remark, ForbiddenType.SUBSCRIPTION_FORBIDDEN)
        found = info.subscription_table.get(topic)
        if found is None:
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{SUGGEST}")
        wanted = _needed(header.subVersion)
        if (found.subVersion or 0) < wanted:
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        subscription = TopicSubscription(
            topic=topic,
            sub_string=found.subString or "",
            expression_type=found.expressionType,
            code_set=found.codeSet,
            sub_version=found.subVersion or 0,
            class_filter_mode=found.classFilterMode,
        )
        if is_tag_type(found.expressionType):
            return subscription, None
        data = self.filters.get(topic, name)
        if data is None:
            remark = "The broker's consumer filter data is not exist!Your expression may be wrong!"
            raise Refused(ResponseCode.FILTER_DATA_NOT_EXIST, remark)
        if data.clientVersion < wanted:
            raise Refused(ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest")
        return subscription, data

    def _check_registered(self, group: str, channel: Channel) -> None:
        """Refuse a pull whose group has no registered clients, or pulls of its own accord on a connection that is not registered."""
        info = self.consumers.get_consumer_group_info(group)
        is_known = info is not None and (info.consume_type != CONSUME_ACTIVELY or channel in info.channel_info_table)
        if not is_known and not is_sys_consumer_group_pull_message(group):
            remark = f"the consumer's group info not exist, or the pull consumer is rejected by server.{SUGGEST}"
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)

    def _respond(self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig, result: GetMessageResult) -> PullResponse:
        """Return the answer for the store's result; store the OFFSET_MOVED event if the offset is corrected."""
        config, offset = self.config, _needed(header.queueOffset)
        code = pull_result.response_code(result.status, offset, config.broker_role, config.offset_check_in_slave)
        if code == ResponseCode.PULL_OFFSET_MOVED and self.rules.tells_of_moved_offsets:
            event = OffsetMovedEvent(
                consumerGroup=header.consumerGroup or "",
                brokerName=config.broker_name,
                topic=header.topic or "",
                queueId=_needed(header.queueId),
                offsetRequest=offset,
                offsetNew=result.next_begin_offset,
            )
            self.offset_moved(event)
        where = pull_result.Suggestion(
            broker_role=config.broker_role,
            offset_check_in_slave=config.offset_check_in_slave,
            slave_read_enable=config.slave_read_enable,
            broker_id=group.brokerId,
            which_broker_when_consume_slowly=group.whichBrokerWhenConsumeSlowly,
        )
        suggested = pull_result.suggest_which_broker_id(result.status, offset, result.suggest_pulling_from_slave, where)
        fields = self._sys_flags(header, group) if self.rules.answers_have_sys_flags else {}
        return PullResponse(code=code, remark=result.status.name, suggest_which_broker_id=suggested, result=result, fields=fields)

    def _sys_flags(self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig) -> dict[str, object]:
        topic = self.topics.select_topic_config(header.topic)
        # groupSysFlag is a field of 5.x, whose default is 0
        return {
            "topicSysFlag": 0 if topic is None else topic.topicSysFlag,
            "groupSysFlag": with_extra({}, group.extra).get("groupSysFlag", 0),
        }
