"""The checks of a pull in their order, and the steps after the store's answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from store_format.config.config_rows import SubscriptionGroupConfig, TopicConfig
from store_format.remoting.headers import PullMessageRequestHeader
from store_format.remoting.heartbeat import ConsumerData, HeartbeatSubscription
from store_format.store.lookup import ThrownError
from udfs.broker.consumer_manager import ConsumerManager
from udfs.broker.consumer_offset_manager import ConsumerOffsetManager
from udfs.broker.offset_moved_event import OffsetMovedEvent
from udfs.broker.pull_message_processor import Caller, GetMessageResult, PullBrokerConfig, PullMessageProcessor, PullResponse
from udfs.broker.subscription_group import SubscriptionGroupManager
from udfs.broker.topic_config import TopicConfigManager
from udfs.filters.bloom_filter import BloomFilter
from udfs.filters.consumer_filter_manager import ConsumerFilterManager
from udfs.filters.message_filter import ExpressionMessageFilter
from udfs.pull.codes import BrokerRole, GetMessageStatus
from udfs.pull.pull_request_hold import HeldRequest

VERSION = 7
PULL = PullMessageRequestHeader(
    consumerGroup="G",
    topic="T",
    queueId=0,
    queueOffset=5,
    maxMsgNums=32,
    sysFlag=0,
    commitOffset=3,
    suspendTimeoutMillis=1000,
    subVersion=VERSION,
)


NOTHING_NEW = GetMessageResult(
    status=GetMessageStatus.OFFSET_OVERFLOW_ONE,
    next_begin_offset=6,
    min_offset=0,
    max_offset=5,
    suggest_pulling_from_slave=False,
    messages=(),
)


@dataclass
class World:
    """A broker without a store: the state that its checks read, and a record of what it did."""

    config: PullBrokerConfig = field(
        default_factory=lambda: PullBrokerConfig(broker_name="b", broker_ip1="ip", broker_role=BrokerRole.ASYNC_MASTER)
    )
    result: GetMessageResult | None = NOTHING_NEW
    groups: SubscriptionGroupManager = field(default_factory=SubscriptionGroupManager)
    topics: TopicConfigManager = field(default_factory=TopicConfigManager)
    filters: ConsumerFilterManager = field(default_factory=lambda: ConsumerFilterManager(BloomFilter.create_by_fn(20, 32)))
    offsets: ConsumerOffsetManager = field(default_factory=ConsumerOffsetManager)
    held: list[HeldRequest[PullMessageRequestHeader]] = field(default_factory=list)
    events: list[OffsetMovedEvent] = field(default_factory=list)
    asked: list[ExpressionMessageFilter] = field(default_factory=list)
    answers: list[PullResponse] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.consumers = ConsumerManager(filters=self.filters, notify=lambda *_: None, notify_consumer_ids_changed_enable=lambda: True)

    def get_message(
        self, _topic: str, _queue_id: int, _offset: int, max_msg_nums: int, message_filter: ExpressionMessageFilter
    ) -> GetMessageResult | None:
        if max_msg_nums < 0:
            raise ThrownError("java.lang.IllegalArgumentException")
        self.asked.append(message_filter)
        return self.result

    def ask(self, header: PullMessageRequestHeader, *, first: bool = True) -> int | str | None:
        """The code of the answer, the class of the exception, or None if there is no answer now."""
        self.answers.clear()
        processor = PullMessageProcessor(
            config=self.config,
            now=1000,
            groups=self.groups,
            topics=self.topics,
            consumers=self.consumers,
            filters=self.filters,
            offsets=self.offsets,
            get_message=self.get_message,
            suspend=lambda _topic, _queue_id, held: self.held.append(held),
            offset_moved=self.events.append,
            committed=lambda: None,
            write=self.answers.append,
        )
        try:
            processor.process_request(
                header, Caller(address="client", channel="client"), broker_allow_suspend=first, answer=self.answers.append
            )
        except ThrownError as error:
            return error.java_class
        return int(self.answers[0].code) if self.answers else None

    def register(self, text: str, kind: str, version: int, model: str = "CLUSTERING", topic: str = "T") -> None:
        one = HeartbeatSubscription(
            topic=topic, subString=text, tagsSet=frozenset(), codeSet=frozenset(), subVersion=version, expressionType=kind
        )
        data = ConsumerData(
            groupName="G", consumeType="CONSUME_PASSIVELY", messageModel=model, consumeFromWhere=None, subscriptionDataSet=(one,)
        )
        self.consumers.register_consumer("G", "channel", "id", data, 1000, tell=True)


NULL_POINTER = "java.lang.NullPointerException"


def ready(**config: Any) -> World:
    """A broker that answers a pull."""
    world = World()
    world.config = replace(world.config, **config)
    world.groups.update_subscription_group_config(SubscriptionGroupConfig(groupName="G"))
    world.topics.update_topic_config(TopicConfig(topicName="T", readQueueNums=4))
    return world


def test_the_first_check_that_fails_decides() -> None:
    # everything is wrong at first; then one thing after the other is put right, in the order in which the broker looks
    world = World()
    world.config = replace(world.config, broker_permission=2, auto_create_subscription_group=False)
    header = replace(PULL, consumerGroup=None, sysFlag=None, suspendTimeoutMillis=None, topic=None, queueId=None, subVersion=None)

    def group(**fields: Any) -> None:
        world.groups.update_subscription_group_config(SubscriptionGroupConfig(groupName="G", **fields))

    def topic(perm: int) -> None:
        world.topics.update_topic_config(TopicConfig(topicName="T", readQueueNums=4, perm=perm))

    def set_config(**fields: Any) -> None:
        world.config = replace(world.config, **fields)

    def ask_with(**fields: Any) -> None:
        nonlocal header
        header = replace(header, **fields)

    puts_right: list[tuple[int | str | None, Callable[[], None]]] = [
        (16, lambda: set_config(broker_permission=6)),
        (NULL_POINTER, lambda: ask_with(consumerGroup="G")),
        (26, lambda: group(consumeEnable=False, consumeBroadcastEnable=False)),
        (16, lambda: group(consumeBroadcastEnable=False)),
        (NULL_POINTER, lambda: ask_with(sysFlag=2)),
        (NULL_POINTER, lambda: ask_with(suspendTimeoutMillis=0)),
        (NULL_POINTER, lambda: ask_with(topic="T")),
        (17, lambda: topic(perm=2)),
        (16, lambda: topic(perm=4)),
        (NULL_POINTER, lambda: ask_with(queueId=4)),
        (1, lambda: ask_with(queueId=3)),
        (24, lambda: world.register("a > ", "SQL92", 6, "BROADCASTING", topic="other")),
        (16, group),
        (24, lambda: world.register("a > ", "SQL92", 6)),
        (NULL_POINTER, lambda: ask_with(subVersion=VERSION)),
        (25, lambda: world.register("a > ", "SQL92", VERSION)),
        (27, lambda: world.register("a > 1", "SQL92", VERSION + 1)),
        (1, lambda: set_config(enable_property_filter=True)),
        (None, lambda: ask_with(sysFlag=0)),
        (19, lambda: None),
    ]
    assert world.asked == []
    for number, (code, put_right) in enumerate(puts_right):
        assert world.ask(header) == code, number
        put_right()


@pytest.mark.parametrize(
    ("kind", "text", "version", "code"),
    [
        ("TAG", "||", VERSION, 23),
        (None, "||", VERSION, 23),
        ("SQL92", "", VERSION, 23),
        ("SQL92", None, VERSION, 23),
        ("SQL92", "a > 1", None, 23),  # unboxing null is among what a parse failure covers
        ("SQL92", "a > 1", VERSION, 1),
        ("XPATH", "a", VERSION, 1),
        ("TAG", "a", None, 19),
        ("", "a", None, 19),
    ],
)
def test_a_subscription_of_the_pulls_own(kind: str | None, text: str | None, version: int | None, code: int) -> None:
    header = replace(PULL, sysFlag=4, subscription=text, expressionType=kind, subVersion=version)
    assert ready().ask(header) == code


def test_what_does_not_compile_filters_nothing_where_properties_count() -> None:
    world = ready(enable_property_filter=True)
    assert world.ask(replace(PULL, sysFlag=4, subscription="a >", expressionType="SQL92")) == 19
    assert world.asked[0].filter_data is None
    assert world.asked[0].is_matched_by_commit_log({"a": "0"})


def test_asking_is_enough_to_create_a_group() -> None:
    world = ready()
    assert world.ask(replace(PULL, consumerGroup="new", topic="none")) == 17
    assert world.groups.subscription_group_table["new"] == SubscriptionGroupConfig(groupName="new")


@pytest.mark.parametrize(("role", "commits"), [(BrokerRole.ASYNC_MASTER, True), (BrokerRole.SYNC_MASTER, True), (BrokerRole.SLAVE, False)])
def test_a_master_commits_with_a_pull_that_asks_for_it(role: BrokerRole, commits: bool) -> None:
    world = ready(broker_role=role)
    world.ask(replace(PULL, sysFlag=4 + 1))
    assert (world.offsets.query_offset("G", "T", 0) == 3) is commits


def test_it_commits_at_the_first_pass_only_also_where_the_store_answers_null() -> None:
    world = ready()
    world.ask(replace(PULL, sysFlag=4 + 1), first=False)
    assert world.offsets.query_offset("G", "T", 0) == -1
    world.result = None
    assert world.ask(replace(PULL, sysFlag=4 + 1, commitOffset=-9)) == 1
    assert world.offsets.query_offset("G", "T", 0) == -9


def test_a_pull_is_held_once_and_commits_when_it_is_held() -> None:
    world = ready()
    header = replace(PULL, sysFlag=4 + 2 + 1)
    assert world.ask(header) is None
    (held,) = world.held
    assert (held.timeout_millis, held.suspend_timestamp, held.pull_from_this_offset) == (1000, 1000, 5)
    assert world.offsets.query_offset("G", "T", 0) == 3
    assert world.ask(header, first=False) == 19


def test_short_polling_holds_for_the_brokers_time() -> None:
    world = ready(long_polling_enable=False, short_polling_time_mills=700)
    world.ask(replace(PULL, sysFlag=4 + 2))
    assert world.held[0].timeout_millis == 700


@pytest.mark.parametrize("status", [status for status in GetMessageStatus if "ONE" not in status.name and "NULL" not in status.name])
def test_only_what_was_not_found_is_held(status: GetMessageStatus) -> None:
    world = ready()
    world.result = replace(NOTHING_NEW, status=status)
    assert world.ask(replace(PULL, sysFlag=4 + 2)) is not None
    assert world.held == []


def test_what_was_done_before_the_broker_throws_stays_done() -> None:
    world = ready()
    assert world.ask(replace(PULL, sysFlag=4 + 2 + 1, commitOffset=None)) == NULL_POINTER
    assert len(world.held) == 1
    world.result = replace(NOTHING_NEW, status=GetMessageStatus.OFFSET_TOO_SMALL)
    assert world.ask(replace(PULL, sysFlag=4 + 1, commitOffset=None)) == NULL_POINTER
    assert len(world.events) == 1


def test_messages_by_zero_copy_leave_before_the_commit_throws() -> None:
    header = replace(PULL, sysFlag=4 + 1, commitOffset=None)
    for by_heap, answers in ((True, 0), (False, 1)):
        world = ready(transfer_msg_by_heap=by_heap)
        world.result = replace(NOTHING_NEW, status=GetMessageStatus.FOUND)
        assert (world.ask(header), len(world.answers)) == (NULL_POINTER, answers)


def test_the_fields_of_the_scan_are_needed_before_it() -> None:
    for name in ("queueOffset", "maxMsgNums"):
        assert ready().ask(replace(PULL, sysFlag=4 + 1, **{name: None})) == NULL_POINTER
    assert ready().ask(replace(PULL, sysFlag=4, maxMsgNums=-1)) == "java.lang.IllegalArgumentException"


def test_an_offset_that_moved_is_told_in_an_event() -> None:
    world = ready()
    world.result = replace(NOTHING_NEW, status=GetMessageStatus.OFFSET_OVERFLOW_BADLY, next_begin_offset=4)
    assert world.ask(replace(PULL, sysFlag=4)) == 21
    event = OffsetMovedEvent(consumerGroup="G", brokerName="b", topic="T", queueId=0, offsetRequest=5, offsetNew=4)
    assert world.events == [event]
    # as recorded, but for the names
    body = b'{"consumerGroup":"G","messageQueue":{"brokerName":"b","queueId":0,"topic":"T"},"offsetNew":4,"offsetRequest":5}'
    assert event.encode() == body


def test_a_slave_that_leaves_offsets_alone_names_the_groups_broker_and_stores_no_event() -> None:
    world = ready(broker_role=BrokerRole.SLAVE)
    world.groups.update_subscription_group_config(SubscriptionGroupConfig(groupName="G", brokerId=4))
    world.result = replace(NOTHING_NEW, status=GetMessageStatus.OFFSET_TOO_SMALL)
    assert world.ask(replace(PULL, sysFlag=4)) == 20
    assert (world.answers[0].suggest_which_broker_id, world.events) == (4, [])
    world.result = NOTHING_NEW
    world.ask(replace(PULL, sysFlag=4))
    assert world.answers[0].suggest_which_broker_id == 0


@pytest.mark.parametrize(("enabled", "slow", "suggested"), [(False, True, 0), (False, False, 0), (True, True, 9), (True, False, 4)])
def test_the_next_broker_depends_on_how_far_behind_the_pull_is(enabled: bool, slow: bool, suggested: int) -> None:
    world = ready(slave_read_enable=enabled)
    world.groups.update_subscription_group_config(SubscriptionGroupConfig(groupName="G", brokerId=4, whichBrokerWhenConsumeSlowly=9))
    world.result = replace(NOTHING_NEW, status=GetMessageStatus.FOUND, suggest_pulling_from_slave=slow)
    assert world.ask(replace(PULL, sysFlag=4)) == 0
    assert world.answers[0].suggest_which_broker_id == suggested
