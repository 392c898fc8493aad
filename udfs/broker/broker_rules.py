"""The rules of the broker around its store that differ between versions: a table of variants for each, and the values of one version.

Broker source: the processors of 4.9.3, 4.9.8 (4.9.7) and 5.5.0; each variant names its own place.
Surprise: 5.5.0 refuses pulls on a slave with slaveReadEnable=false before all other checks, and adds four properties to each message, so
sizes of messages differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from store_format.broker_version import DEFAULT_VERSION, BrokerVersion, Rule, Variant, values_of
from udfs.broker import topic_validator as tv

_V3, _V8, _V5 = BrokerVersion.V4_9_3, BrokerVersion.V4_9_8, BrokerVersion.V5_5_0


@dataclass(frozen=True, slots=True)
class Remoting:
    """The version number in a broker's answers, and whether an answer is encoded as its request was; if not, it is JSON."""

    version: int
    in_the_requests_form: bool


BROKER_RULES: Final[Mapping[str, Rule[Any]]] = MappingProxyType(
    {
        "remoting": Rule(
            term="MQVersion.CURRENT_VERSION, serializeTypeCurrentRPC",
            variants=(
                Variant(
                    _V3,
                    Remoting(399, in_the_requests_form=False),
                    "answers have version 399, and are JSON",
                    "MQVersion, NettyRemotingAbstract.processRequestCommand",
                ),
                Variant(
                    _V8,
                    Remoting(409, in_the_requests_form=True),
                    "answers have version 409 (that of 4.9.7); an answer to a ROCKETMQ request is ROCKETMQ",
                    "MQVersion, NettyRemotingAbstract.processRequestCommand",
                ),
                Variant(
                    _V5,
                    Remoting(513, in_the_requests_form=False),
                    "answers have version 513, and are JSON",
                    "MQVersion, NettyRemotingAbstract.processRequestCommand",
                ),
            ),
        ),
        "slave_refuses_first": Rule(
            term="rejectRequest",
            variants=(
                Variant(_V3, False, "a slave with slaveReadEnable=false answers pulls", "PullMessageProcessor.rejectRequest"),
                Variant(
                    _V5,
                    True,
                    "a slave with slaveReadEnable=false answers SYSTEM_BUSY to each pull, before any check",
                    "PullMessageProcessor.rejectRequest",
                ),
            ),
        ),
        "answers_have_sys_flags": Rule(
            term="topicSysFlag, groupSysFlag",
            variants=(
                Variant(_V3, False, "the header of an answer has neither field", "PullMessageProcessor.processRequest"),
                Variant(
                    _V5,
                    True,
                    "the header of each answer from the store has topicSysFlag and groupSysFlag",
                    "PullMessageProcessor.processRequest",
                ),
            ),
        ),
        "refusals_have_forbidden_type": Rule(
            term="forbiddenType",
            variants=(
                Variant(_V3, False, "a refusal has an empty header", "PullMessageProcessor.processRequest, ForbiddenType"),
                Variant(
                    _V5,
                    True,
                    "NO_PERMISSION has forbiddenType: 1 broker, 2 group, 3 topic, 4 broadcasting",
                    "PullMessageProcessor.processRequest, ForbiddenType",
                ),
            ),
        ),
        "bad_queue_is_invalid_parameter": Rule(
            term="queueId is illegal",
            variants=(
                Variant(_V3, False, "SYSTEM_ERROR", "PullMessageProcessor.processRequest"),
                Variant(_V5, True, "INVALID_PARAMETER", "PullMessageProcessor.processRequest"),
            ),
        ),
        "null_result_ends_the_pull": Rule(
            term="getMessage returns null",
            variants=(
                Variant(_V3, False, "the pull's offset is committed anyway", "PullMessageProcessor.processRequest"),
                Variant(_V5, True, "the pull's offset is not committed", "PullMessageProcessor.processRequest"),
            ),
        ),
        "slaves_commit": Rule(
            term="storeOffsetEnable",
            variants=(
                Variant(_V3, False, "a slave does not commit the offset of a pull", "PullMessageProcessor.processRequest, tryCommitOffset"),
                Variant(
                    _V5,
                    True,
                    "a slave commits the offset of a pull, as a master does",
                    "PullMessageProcessor.processRequest, tryCommitOffset",
                ),
            ),
        ),
        "files_deleted_at_once": Rule(
            term="deleteFileBatchMax",
            variants=(
                Variant(
                    _V3,
                    10,
                    "CommitLog.deleteExpiredFile of four arguments deletes ten files at most",
                    "MappedFileQueue.deleteExpiredFileByTime",
                ),
                Variant(
                    _V5,
                    1,
                    "CommitLog.deleteExpiredFile of four arguments passes deleteFileBatchMax 0, so it deletes one file",
                    "CommitLog.deleteExpiredFile, MappedFileQueue.deleteExpiredFileByTime",
                ),
            ),
        ),
        "missing_offset_gets_no_answer": Rule(
            term="commitOffset is missing",
            variants=(
                Variant(_V3, False, "SYSTEM_ERROR", "PullMessageProcessor.processRequest, thenAccept"),
                Variant(
                    _V5,
                    True,
                    "no answer, because nobody catches exceptions in the code after the store's answer",
                    "PullMessageProcessor.processRequest, thenAccept",
                ),
            ),
        ),
        "timeout_is_read_when_held": Rule(
            term="suspendTimeoutMillis, sysFlag",
            variants=(
                Variant(
                    _V3,
                    False,
                    "a pull without sysFlag, or with the suspend bit but without suspendTimeoutMillis, makes the processor throw before "
                    "it looks at topic and queue",
                    "PullMessageProcessor.processRequest, DefaultPullMessageResultHandler.handle",
                ),
                Variant(
                    _V5,
                    True,
                    "sysFlag is read after topic and queue, suspendTimeoutMillis only when the pull is held",
                    "PullMessageProcessor.processRequest, DefaultPullMessageResultHandler.handle",
                ),
            ),
        ),
        "tells_of_moved_offsets": Rule(
            term="OFFSET_MOVED_EVENT",
            variants=(
                Variant(
                    _V3, True, "the broker stores an event when it corrects an offset", "PullMessageProcessor.generateOffsetMovedEvent"
                ),
                Variant(_V5, False, "the broker stores no event", "DefaultPullMessageResultHandler.handle"),
            ),
        ),
        "half_messages_are_pulled": Rule(
            term="RMQ_SYS_TRANS_HALF_TOPIC",
            variants=(
                Variant(_V3, False, "the topic does not exist until a transaction begins", "TopicConfigManager.init"),
                Variant(_V5, True, "the broker creates the topic at its start", "TopicConfigManager.init"),
            ),
        ),
        "lite_pull_pulls": Rule(
            term="LITE_PULL_MESSAGE",
            variants=(
                Variant(_V3, False, "request code 361 is unknown", "BrokerController.registerProcessor"),
                Variant(_V5, True, "request code 361 pulls like code 11", "BrokerController.registerProcessor"),
            ),
        ),
        "pops": Rule(
            term="POP_MESSAGE, ACK_MESSAGE, CHANGE_MESSAGE_INVISIBLETIME",
            variants=(
                Variant(
                    _V3,
                    False,
                    "request codes 200050 to 200052 are unknown",
                    "BrokerController.registerProcessor, PopMessageProcessor.processRequest",
                ),
                Variant(
                    _V5,
                    True,
                    "request codes 200050 to 200052 are known; their processors throw if the request has no header",
                    "BrokerController.registerProcessor, PopMessageProcessor.processRequest",
                ),
            ),
        ),
        "new_group_needs_messages": Rule(
            term="QUERY_CONSUMER_OFFSET without an offset",
            variants=(
                Variant(
                    _V3,
                    False,
                    "the answer is 0 if the queue begins at 0 and its first entry is not on disk",
                    "ConsumerManageProcessor.queryConsumerOffset",
                ),
                Variant(
                    _V5,
                    True,
                    "the answer is 0 if the queue begins at 0 and has messages, on disk or not",
                    "ConsumerManageProcessor.queryConsumerOffset",
                ),
            ),
        ),
        "commits_of_known_groups_only": Rule(
            term="UPDATE_CONSUMER_OFFSET",
            variants=(
                Variant(_V3, False, "any group can commit", "ConsumerManageProcessor.updateConsumerOffset"),
                Variant(
                    _V5,
                    True,
                    "a group without configuration gets SUBSCRIPTION_GROUP_NOT_EXIST",
                    "ConsumerManageProcessor.updateConsumerOffset",
                ),
            ),
        ),
        "messages_get_properties": Rule(
            term="SendMessageProcessor",
            variants=(
                Variant(_V3, False, "a message keeps its properties", "SendMessageProcessor.sendMessage, preSend"),
                Variant(
                    _V5,
                    True,
                    "a message gets MSG_REGION and TRACE_ON, gets UNIQ_KEY if it has none, and keeps WAIT",
                    "SendMessageProcessor.sendMessage, preSend",
                ),
            ),
        ),
        "broadcasting_groups_are_notified": Rule(
            term="NOTIFY_CONSUMER_IDS_CHANGED",
            variants=(
                Variant(_V3, True, "clients of each group are told of changes", "ConsumerManager.registerConsumer, doChannelCloseEvent"),
                Variant(
                    _V5,
                    False,
                    "clients of a BROADCASTING group are not told of changes",
                    "ConsumerManager.registerConsumer, doChannelCloseEvent",
                ),
            ),
        ),
        "sync_masters_need_slaves": Rule(
            term="SLAVE_NOT_AVAILABLE",
            variants=(
                Variant(_V3, True, "a synchronous master without a slave answers SLAVE_NOT_AVAILABLE", "CommitLog.submitReplicaRequest"),
                Variant(_V5, False, "with inSyncReplicas at 1 a synchronous master needs no slave", "CommitLog.needHandleHA"),
            ),
        ),
        "locks_make_dead_letters": Rule(
            term="handleRetryAndDLQ",
            variants=(
                Variant(
                    _V3,
                    False,
                    "a message to a retry topic that was tried as often as allowed becomes a dead letter",
                    "SendMessageProcessor.handleRetryAndDLQ",
                ),
                Variant(
                    _V5,
                    True,
                    "a message to a retry topic that was tried more often than allowed, or whose group holds a lock, becomes a dead letter "
                    "with DELAY -1",
                    "SendMessageProcessor.handleRetryAndDLQ",
                ),
            ),
        ),
        "slaves_reject_sends": Rule(
            term="rejectRequest",
            variants=(
                Variant(_V3, False, "a slave answers SERVICE_NOT_AVAILABLE, after all checks", "DefaultMessageStore.checkStoreStatus"),
                Variant(
                    _V5,
                    True,
                    "a slave without enableSlaveActingMaster answers SYSTEM_BUSY first of all",
                    "SendMessageProcessor.rejectRequest",
                ),
            ),
        ),
        "sends_need_bodies": Rule(
            term="buildMsgContext",
            variants=(
                Variant(_V3, False, "a message may have no body", "AbstractSendMessageProcessor.buildMsgContext"),
                Variant(
                    _V5,
                    True,
                    "a message without a body gets SYSTEM_ERROR first of all",
                    "AbstractSendMessageProcessor.buildMsgContext",
                ),
            ),
        ),
        "bad_sends_are_invalid_parameters": Rule(
            term="msgCheck",
            variants=(
                Variant(_V3, False, "a topic or queue that cannot be gets SYSTEM_ERROR", "AbstractSendMessageProcessor.msgCheck"),
                Variant(_V5, True, "a topic or queue that cannot be gets INVALID_PARAMETER", "AbstractSendMessageProcessor.msgCheck"),
            ),
        ),
        "closed_topics": Rule(
            term="isNotAllowedSendTopic",
            variants=(
                Variant(_V3, tv.CLOSED_TOPICS_4_9_3, "clients may not send to SCHEDULE_TOPIC_XXXX", "TopicValidator.isNotAllowedSendTopic"),
                Variant(
                    _V8,
                    tv.CLOSED_TOPICS_4_9_8,
                    "nor to the topics of transactions, SELF_TEST_TOPIC and OFFSET_MOVED_EVENT",
                    "TopicValidator.isNotAllowedSendTopic",
                ),
                Variant(
                    _V5, tv.CLOSED_TOPICS_5_5_0, "nor to the topics of transactions in RocksDB", "TopicValidator.isNotAllowedSendTopic"
                ),
            ),
        ),
        "retries_are_no_transactions": Rule(
            term="TRAN_MSG",
            variants=(
                Variant(_V3, False, "a message with TRAN_MSG is a half message", "SendMessageProcessor.asyncSendMessage"),
                Variant(
                    _V5, True, "but not if it has a delay level and was sent before (reconsumeTimes)", "SendMessageProcessor.sendMessage"
                ),
            ),
        ),
        "half_messages_have_ids": Rule(
            term="parseHalfMessageInner",
            variants=(
                Variant(_V3, False, "a half message has the properties of its message", "TransactionalMessageBridge.parseHalfMessageInner"),
                Variant(
                    _V5, True, "its UNIQ_KEY is the property __transactionId__ too", "TransactionalMessageBridge.parseHalfMessageInner"
                ),
            ),
        ),
        "has_timer": Rule(
            term="checkIfTimerMessage",
            variants=(
                Variant(_V3, False, "TIMER_DELAY_SEC is a property as any other", "no TimerMessageStore"),
                Variant(
                    _V5,
                    True,
                    "a message with TIMER_DELAY_SEC goes to the timer",
                    "HookUtils.checkIfTimerMessage",
                ),
            ),
        ),
        "retry_topics_may_be_long": Rule(
            term="validateTopic",
            variants=(
                Variant(_V3, False, "a topic that gets messages has at most 127 characters", "TopicValidator.validateTopic"),
                Variant(_V5, True, "a topic for retries or dead letters has at most 255 characters", "TopicValidator.validateTopic"),
            ),
        ),
        "groups_need_valid_names": Rule(
            term="findSubscriptionGroupConfig",
            variants=(
                Variant(
                    _V3, False, "a group of any name is created at its first use", "SubscriptionGroupManager.findSubscriptionGroupConfig"
                ),
                Variant(
                    _V5,
                    True,
                    "only a group of at most 120 letters, digits and %-_| is created; pulls of other groups without a configuration get "
                    "SUBSCRIPTION_GROUP_NOT_EXIST",
                    "SubscriptionGroupManager.findSubscriptionGroupConfig, TopicValidator.validateGroup",
                ),
            ),
        ),
        "headers_have_more_fields": Rule(
            term="setZeroIfNotFound, maxMsgBytes, requestSource",
            variants=(
                Variant(_V3, False, "requests have no such fields", "QueryConsumerOffsetRequestHeader, PullMessageRequestHeader"),
                Variant(
                    _V5,
                    True,
                    "with setZeroIfNotFound=false a group without an offset gets QUERY_NOT_FOUND, whatever the queue has; a pull with "
                    "maxMsgBytes or requestSource that is no number gets SYSTEM_ERROR",
                    "ConsumerManageProcessor.queryConsumerOffset, PullMessageRequestHeader.decode",
                ),
            ),
        ),
        "groups_may_be_forbidden": Rule(
            term="forbiddenTable",
            variants=(
                Variant(_V3, False, "request code 353 is unknown", "BrokerController.registerProcessor"),
                Variant(
                    _V5,
                    True,
                    "request code 353 forbids the registered clients of a group to pull a topic: they get NO_PERMISSION",
                    "AdminBrokerProcessor.updateAndGetGroupForbidden, PullMessageProcessor.processRequest",
                ),
            ),
        ),
        "masters_take_messages_back": Rule(
            term="peekMasterBroker",
            variants=(
                Variant(_V3, False, "brokerId plays no part in CONSUMER_SEND_MSG_BACK", "SendMessageProcessor.asyncConsumerSendMsgBack"),
                Variant(
                    _V5,
                    True,
                    "only a broker with brokerId 0 takes a message back; others answer SYSTEM_ERROR before they look at the group",
                    "AbstractSendMessageProcessor.consumerSendMsgBack, BrokerController.peekMasterBroker",
                ),
            ),
        ),
        "heartbeats_have_fingerprints": Rule(
            term="heartBeatV2",
            variants=(
                Variant(_V3, False, "each heartbeat replaces the subscriptions of its groups", "ClientManageProcessor.heartBeat"),
                Variant(
                    _V5,
                    True,
                    "not one with a heartbeatFingerprint and withoutSub; the answer has IS_SUPPORT_HEART_BEAT_V2 and IS_SUB_CHANGE",
                    "ClientManageProcessor.heartBeatV2, ConsumerManager.registerConsumerWithoutSub",
                ),
            ),
        ),
        "heartbeats_of_known_groups_only": Rule(
            term="heartBeat",
            variants=(
                Variant(_V3, False, "a heartbeat registers the clients of any group", "ClientManageProcessor.heartBeat"),
                Variant(
                    _V5, True, "a heartbeat registers no client of a group that has no configuration", "ClientManageProcessor.heartBeat"
                ),
            ),
        ),
        "bad_numbers_throw": Rule(
            term="decodeCommandCustomHeader",
            variants=(
                Variant(
                    _V3,
                    False,
                    "a field of a pull that is no number counts as missing",
                    "RemotingCommand.decodeCommandCustomHeader",
                ),
                Variant(
                    _V8,
                    True,
                    "a field of a pull's header that is no number gets SYSTEM_ERROR, before any check",
                    "PullMessageRequestHeader.decode, a FastCodesHeader",
                ),
            ),
        ),
        "arrivals_wake_on_slaves": Rule(
            term="NotifyMessageArrivingListener",
            variants=(
                Variant(_V3, False, "an arrival wakes no held pull of a slave", "DefaultMessageStore.notifyMessageArriveIfNecessary"),
                Variant(_V5, True, "an arrival wakes held pulls of a slave too", "DefaultMessageStore.notifyMessageArriveIfNecessary"),
            ),
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRules:
    """The values of BROKER_RULES in one version; each field has the name of its rule there."""

    remoting: Remoting
    slave_refuses_first: bool
    answers_have_sys_flags: bool
    refusals_have_forbidden_type: bool
    bad_queue_is_invalid_parameter: bool
    null_result_ends_the_pull: bool
    slaves_commit: bool
    files_deleted_at_once: int
    missing_offset_gets_no_answer: bool
    timeout_is_read_when_held: bool
    tells_of_moved_offsets: bool
    half_messages_are_pulled: bool
    lite_pull_pulls: bool
    pops: bool
    new_group_needs_messages: bool
    commits_of_known_groups_only: bool
    messages_get_properties: bool
    broadcasting_groups_are_notified: bool
    sync_masters_need_slaves: bool
    locks_make_dead_letters: bool
    slaves_reject_sends: bool
    sends_need_bodies: bool
    bad_sends_are_invalid_parameters: bool
    closed_topics: frozenset[str]
    retries_are_no_transactions: bool
    half_messages_have_ids: bool
    has_timer: bool
    retry_topics_may_be_long: bool
    groups_need_valid_names: bool
    headers_have_more_fields: bool
    groups_may_be_forbidden: bool
    masters_take_messages_back: bool
    heartbeats_of_known_groups_only: bool
    heartbeats_have_fingerprints: bool
    bad_numbers_throw: bool
    arrivals_wake_on_slaves: bool

    @classmethod
    def of(cls, version: BrokerVersion) -> BrokerRules:
        """Return the values of a version."""
        return cls(**values_of(BROKER_RULES, version))


DEFAULT_BROKER_RULES: Final = BrokerRules.of(DEFAULT_VERSION)
