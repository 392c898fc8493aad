"""Other differences between versions of the broker: settings with another meaning, and state that an older version loses.

Nothing here is simulated; `pullsim upgrade` reports it. Each fact names its places in the sources of both versions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from store_format.broker_version import BrokerVersion

_V5: Final = BrokerVersion.V5_5_0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedMeaning:
    """A setting that a later version reads in another way, or under another name.

    Attributes:
        name: the setting.
        since: the first known version that differs.
        before: what it does in earlier versions.
        after: what holds from `since` on.
        source_before: class and method in earlier versions.
        source_after: class and method from `since` on.
        matters: returns whether a broker behaves differently, from its brokerRole and its value of the setting (None: the default).
    """

    name: str
    since: BrokerVersion
    before: str
    after: str
    source_before: str
    source_after: str
    matters: Callable[[str, Any], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class LostState:
    """State that a version keeps, and that an earlier version does not understand.

    Attributes:
        what: what is lost, as a sentence without a full stop.
        since: the first known version that keeps the state.
        topic: topic with the messages that hold the state, or the beginning of its name; empty if no message holds it.
        source_before: class and method of the earlier version.
        source_after: class and method that keeps the state.
    """

    what: str
    since: BrokerVersion
    topic: str
    source_before: str
    source_after: str


# Files and folders that a version makes beside those of the message store, by the first known version that makes them. A real 5.5.0 broker
# left these on default settings, and 4.9.3 loaded its store without a change to any file: the live store of golden5, load-4.9.3.json.
OWN_FILES: Final[Mapping[BrokerVersion, tuple[str, ...]]] = MappingProxyType(
    {
        _V5: (
            *("timerwheel", "timerlog", "config/timercheck", "config/timermetrics", "config/transactionMetrics"),
            *("config/consumerOrderInfo.json", "rocksdbstore", "compaction"),
        )
    }
)

CHANGED_MEANINGS: Final = (
    ChangedMeaning(
        name="slaveReadEnable",
        since=_V5,
        before="false: a master suggests no slave; a slave serves pulls all the same",
        after="false: a slave also refuses every pull with SYSTEM_BUSY",
        source_before="PullMessageProcessor.rejectRequest, processRequest",
        source_after="PullMessageProcessor.rejectRequest",
        matters=lambda role, given: role == "SLAVE" and not given,  # it is false by default
    ),
    ChangedMeaning(
        name="haSlaveFallbehindMax",
        since=_V5,
        before="bytes that a slave may lack and still count as in sync",
        after="the setting haMaxGapNotInSync has this meaning",
        source_before="HAService.isSlaveOK",
        source_after="DefaultHAService.isSlaveOK, isInSyncSlave",
        matters=lambda _role, given: given is not None,
    ),
)

LOST_STATES: Final = (
    LostState(
        what="timer messages that are not due yet stay in their topic and are never delivered",
        since=_V5,
        topic="rmq_sys_wheel_timer",
        source_before="no TimerMessageStore",
        source_after="TimerMessageStore.enqueue, HookUtils.handleScheduleMessage",
    ),
    LostState(
        what="popped messages that are not acknowledged do not come again: nothing reads their check points, here and in the timer",
        since=_V5,
        topic="rmq_sys_REVIVE_LOG_",
        source_before="no PopReviveService",
        source_after="PopReviveService.run, PopMessageProcessor",
    ),
    LostState(
        what="an op message of a transaction that lists offsets is read as the offset -1: transactions that it ended are checked again",
        since=_V5,
        topic="",
        source_before="TransactionalMessageServiceImpl.fillOpRemoveMap, getLong",
        source_after="TransactionalMessageServiceImpl.deletePrepareMessage, getOpMessage",
    ),
    LostState(
        what="pullOffsetTable is dropped when consumerOffset.json is next written; committed offsets stay",
        since=_V5,
        topic="",
        source_before="ConsumerOffsetManager.decode, encode",
        source_after="ConsumerOffsetManager.commitPullOffset",
    ),
    LostState(
        what="attributes of topics and groups are dropped when topics.json and subscriptionGroup.json are next written",
        since=_V5,
        topic="",
        source_before="TopicConfig, SubscriptionGroupConfig",
        source_after="TopicConfig.attributes, SubscriptionGroupConfig.attributes",
    ),
    LostState(
        what="the order of POP in consumerOrderInfo.json is not read",
        since=_V5,
        topic="",
        source_before="no ConsumerOrderInfoManager",
        source_after="ConsumerOrderInfoManager",
    ),
    LostState(
        what="retry topics of POP may have more than 127 bytes: a recovery that comes to a message of such a topic cuts the log there",
        since=_V5,
        topic="",
        source_before="CommitLog.checkMessageAndReturnSize, recoverNormally",
        source_after="CommitLog.asyncPutMessage with autoMessageVersionOnTopicLen, TopicValidator.validateTopic",
    ),
)
