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

_V3, _V8, _V5 = BrokerVersion.V4_9_3, BrokerVersion.V4_9_8, BrokerVersion.V5_5_0


def _since_5(term: str, before: str, after: str, source: str) -> Rule[bool]:
    """A rule that 5.5.0 has and 4.9 has not."""
    return Rule(
        term=term,
        variants=(
            Variant(since=_V3, value=False, meaning=before, source=source),
            Variant(since=_V5, value=True, meaning=after, source=source),
        ),
    )


BROKER_RULES: Final[Mapping[str, Rule[Any]]] = MappingProxyType(
    {
        "remoting_version": Rule(
            term="MQVersion.CURRENT_VERSION",
            variants=(
                Variant(since=_V3, value=399, meaning="answers have version 399", source="MQVersion"),
                Variant(since=_V8, value=409, meaning="answers have version 409 (that of 4.9.7)", source="MQVersion"),
                Variant(since=_V5, value=513, meaning="answers have version 513", source="MQVersion"),
            ),
        ),
        "answers_in_the_requests_form": Rule(
            term="serializeTypeCurrentRPC",
            variants=(
                Variant(since=_V3, value=False, meaning="answers are JSON", source="NettyRemotingAbstract.processRequestCommand"),
                Variant(
                    since=_V8,
                    value=True,
                    meaning="an answer to a ROCKETMQ request is ROCKETMQ",
                    source="NettyRemotingAbstract.processRequestCommand",
                ),
                Variant(since=_V5, value=False, meaning="answers are JSON", source="NettyRemotingAbstract.processRequestCommand"),
            ),
        ),
        "slave_refuses_first": _since_5(
            "rejectRequest",
            "a slave with slaveReadEnable=false answers pulls",
            "a slave with slaveReadEnable=false answers SYSTEM_BUSY to each pull, before any check",
            "PullMessageProcessor.rejectRequest",
        ),
        "answers_have_sys_flags": _since_5(
            "topicSysFlag, groupSysFlag",
            "the header has no such fields",
            "the header of each answer from the store has topicSysFlag and groupSysFlag",
            "PullMessageProcessor.processRequest",
        ),
        "refusals_have_forbidden_type": _since_5(
            "forbiddenType",
            "a refusal has an empty header",
            "NO_PERMISSION has forbiddenType: 1 broker, 2 group, 3 topic, 4 broadcasting",
            "PullMessageProcessor.processRequest, ForbiddenType",
        ),
        "bad_queue_is_invalid_parameter": _since_5(
            "queueId is illegal",
            "SYSTEM_ERROR",
            "INVALID_PARAMETER",
            "PullMessageProcessor.processRequest",
        ),
        "null_result_ends_the_pull": _since_5(
            "getMessage returns null",
            "the offset of the pull is committed all the same",
            "nothing is committed",
            "PullMessageProcessor.processRequest",
        ),
        "slaves_commit": _since_5(
            "storeOffsetEnable",
            "a slave commits no offset of a pull",
            "a slave commits it as a master does",
            "PullMessageProcessor.processRequest, tryCommitOffset",
        ),
        "files_deleted_at_once": Rule(
            term="deleteFileBatchMax",
            variants=(
                Variant(
                    since=_V3,
                    value=10,
                    meaning="CommitLog.deleteExpiredFile of four arguments deletes ten files at most",
                    source="MappedFileQueue.deleteExpiredFileByTime",
                ),
                Variant(
                    since=_V5,
                    value=1,
                    meaning="CommitLog.deleteExpiredFile of four arguments passes deleteFileBatchMax 0, so it deletes one file",
                    source="CommitLog.deleteExpiredFile, MappedFileQueue.deleteExpiredFileByTime",
                ),
            ),
        ),
        "missing_offset_gets_no_answer": _since_5(
            "commitOffset is missing",
            "SYSTEM_ERROR",
            "no answer: what runs after the store's answer is caught by nobody",
            "PullMessageProcessor.processRequest, thenAccept",
        ),
        "timeout_is_read_when_held": _since_5(
            "suspendTimeoutMillis",
            "a pull with the suspend bit and without it makes the processor throw",
            "it is read where the pull is held",
            "PullMessageProcessor.processRequest, DefaultPullMessageResultHandler.handle",
        ),
        "tells_of_moved_offsets": Rule(
            term="OFFSET_MOVED_EVENT",
            variants=(
                Variant(
                    since=_V3,
                    value=True,
                    meaning="a corrected offset stores an event",
                    source="PullMessageProcessor.generateOffsetMovedEvent",
                ),
                Variant(since=_V5, value=False, meaning="no event is stored", source="DefaultPullMessageResultHandler.handle"),
            ),
        ),
        "half_messages_are_pulled": _since_5(
            "RMQ_SYS_TRANS_HALF_TOPIC",
            "there is no such topic until a transaction begins",
            "the topic is made at the broker's start",
            "TopicConfigManager.init",
        ),
        "lite_pull_pulls": _since_5(
            "LITE_PULL_MESSAGE",
            "the code 361 is not known",
            "the code 361 pulls as 11 does",
            "BrokerController.registerProcessor",
        ),
        "pops": _since_5(
            "POP_MESSAGE, ACK_MESSAGE, CHANGE_MESSAGE_INVISIBLETIME",
            "the codes 200050 to 200052 are not known",
            "the codes 200050 to 200052 are known; without a header their processors throw",
            "BrokerController.registerProcessor, PopMessageProcessor.processRequest",
        ),
        "new_group_needs_messages": _since_5(
            "QUERY_CONSUMER_OFFSET without an offset",
            "0 where the queue begins at 0 and its first entry is not on disk",
            "0 where the queue begins at 0 and has messages, on disk or not",
            "ConsumerManageProcessor.queryConsumerOffset",
        ),
        "commits_of_known_groups_only": _since_5(
            "UPDATE_CONSUMER_OFFSET",
            "any group commits",
            "SUBSCRIPTION_GROUP_NOT_EXIST for a group that has no configuration",
            "ConsumerManageProcessor.updateConsumerOffset",
        ),
        "messages_get_properties": _since_5(
            "SendMessageProcessor",
            "a message keeps its properties",
            "a message gets UNIQ_KEY, CLUSTER, MSG_REGION and TRACE_ON where it lacks them",
            "SendMessageProcessor.sendMessage, preSend",
        ),
        "arrivals_wake_on_slaves": _since_5(
            "NotifyMessageArrivingListener",
            "an arrival wakes no held pull of a slave",
            "an arrival wakes held pulls of a slave too",
            "DefaultMessageStore.notifyMessageArriveIfNecessary",
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRules:
    """The values of BROKER_RULES in one version; each field has the name of its rule there."""

    remoting_version: int
    answers_in_the_requests_form: bool
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
    arrivals_wake_on_slaves: bool

    @classmethod
    def of(cls, version: BrokerVersion) -> BrokerRules:
        """Return the values of a version."""
        return cls(**values_of(BROKER_RULES, version))


DEFAULT_BROKER_RULES: Final = BrokerRules.of(DEFAULT_VERSION)
