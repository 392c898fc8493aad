"""The broker's state beside its store: groups, topics, clients, offsets, locks; and the messages that it accepts."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from store_format.broker_version import BrokerVersion
from store_format.config.config_rows import SubscriptionGroupConfig, TopicConfig
from store_format.log.put_message import InnerMessage
from store_format.record.message import Host, Message
from store_format.remoting.heartbeat import ConsumerData, HeartbeatSubscription
from store_format.store.lookup import ThrownError
from udfs.broker.broker_rules import BrokerRules
from udfs.broker.consumer_manager import ConsumerManager
from udfs.broker.consumer_offset_manager import ConsumerOffsetManager, first_offset
from udfs.broker.message_queue import MessageQueue
from udfs.broker.rebalance_lock import RebalanceLockManager
from udfs.broker.send_message import (
    SendBackRequest,
    SendBrokerConfig,
    SendMessageProcessor,
    SendMessageRequest,
    SendRefused,
    lacks_slave,
    message_timeup,
    send_back,
)
from udfs.broker.subscription_group import SubscriptionGroupManager
from udfs.broker.system_groups import SYSTEM_GROUPS
from udfs.broker.topic_config import SystemTopics, TopicConfigManager
from udfs.broker.topic_validator import topic_fault
from udfs.filters.bloom_filter import BloomFilter
from udfs.filters.consumer_filter_manager import ConsumerFilterManager, is_dead
from udfs.pull.codes import BrokerRole

HOST = Host(address=bytes([127, 0, 0, 1]), port=10911)


# groups and topics --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "auto_create", "there"),
    [("g", True, True), ("g", False, False), ("CID_RMQ_SYS_x", False, True), ("TOOLS_CONSUMER", False, True)],
)
def test_a_group_is_created_when_it_is_asked_for(group: str, auto_create: bool, there: bool) -> None:
    manager = SubscriptionGroupManager()
    assert (manager.find_subscription_group_config(group, auto_create=auto_create) is not None) is there
    assert (group in manager.subscription_group_table) is there


# asked of the broker 5.5.0; 4.9.3 and 4.9.8 create each of them
NAMES_OF_GROUPS = {"a|b": True, "%RETRY%x": True, "g" * 120: True, "g" * 121: False, "a.b": False, "a b": False, "ü": False, "": False}


@pytest.mark.parametrize(("group", "valid"), [*NAMES_OF_GROUPS.items(), ("CID_RMQ_SYS_a.b", False), ("CID_RMQ_SYS_ab", True)])
def test_5_5_0_creates_groups_with_valid_names(group: str, valid: bool) -> None:
    manager = SubscriptionGroupManager(needs_valid_names=True)
    assert (manager.find_subscription_group_config(group, auto_create=True) is not None) is valid
    assert SubscriptionGroupManager().find_subscription_group_config(group, auto_create=True) is not None
    manager.update_subscription_group_config(SubscriptionGroupConfig(groupName=group))
    assert manager.find_subscription_group_config(group, auto_create=False) is not None


def test_no_name_is_no_key() -> None:
    with pytest.raises(ThrownError):
        SubscriptionGroupManager().find_subscription_group_config(None, auto_create=True)
    with pytest.raises(ThrownError):
        TopicConfigManager().select_topic_config(None)


def test_whoever_watches_is_told_of_each_change_once() -> None:
    told: list[str] = []
    manager = SubscriptionGroupManager(updated=lambda config: told.append(config.groupName))
    for _ in range(2):
        manager.find_subscription_group_config("g", auto_create=True)
    assert told == ["g"]
    assert len(SYSTEM_GROUPS) == 7


def test_the_broker_starts_with_its_own_topics() -> None:
    manager = TopicConfigManager()
    manager.start(SystemTopics(broker_name="broker-a", broker_cluster_name="DefaultCluster"))
    queues = {name: config.readQueueNums for name, config in manager.topic_config_table.items()}
    # as pulled from the real broker: the greatest queue of each that is legal
    assert queues == {
        "SELF_TEST_TOPIC": 1,
        "TBW102": 8,
        "BenchmarkTest": 1024,
        "DefaultCluster": 16,
        "broker-a": 1,
        "OFFSET_MOVED_EVENT": 1,
        "SCHEDULE_TOPIC_XXXX": 18,
        "DefaultCluster_REPLY_TOPIC": 1,
    }


@pytest.mark.parametrize(
    ("perm", "enabled", "queues", "made"),
    [(7, True, 4, 4), (7, True, 100, 8), (7, True, -1, 0), (6, True, 4, None), (7, False, 4, None)],
)
def test_a_message_makes_a_topic_after_a_model_that_can_be_inherited_from(perm: int, enabled: bool, queues: int, made: int | None) -> None:
    manager = TopicConfigManager()
    manager.update_topic_config(TopicConfig(topicName="TBW102", writeQueueNums=8, perm=perm))
    created = manager.create_topic_in_send_message("t", "TBW102", queues, auto_create_topic_enable=enabled)
    assert (created.readQueueNums, created.perm) == (made, 6) if created else made is None
    assert manager.create_topic_in_send_message("u", "no model", 4, auto_create_topic_enable=True) is None


@pytest.mark.parametrize(("topic", "wrong"), [("a-b_c%|9", False), ("", True), (" ", True), ("a b", True), ("ü", True), ("x" * 128, True)])
def test_names_of_topics(topic: str, wrong: bool) -> None:
    assert (topic_fault(topic, long_retry_topics=False) is not None) is wrong
    assert (topic_fault(topic, long_retry_topics=True) is not None) is wrong


# asked of the brokers: 5.5.0 takes a send to these, 4.9.3 and 4.9.8 do not
@pytest.mark.parametrize(
    ("topic", "wrong"), [("%RETRY%" + "x" * 121, False), ("%RETRY%" + "x" * 248, False), ("%RETRY%" + "x" * 249, True)]
)
def test_names_of_long_retry_topics(topic: str, wrong: bool) -> None:
    assert (topic_fault(topic, long_retry_topics=True) is not None) is wrong
    assert topic_fault(topic, long_retry_topics=False) is not None


# clients ------------------------------------------------------------------------------------------------------------------------------


class Clients:
    """A consumer manager, and the notifications that it sent."""

    def __init__(self, *, enabled: bool = True) -> None:
        self.told: list[str] = []
        self.filters = ConsumerFilterManager(BloomFilter.create_by_fn(20, 32))
        self.manager = ConsumerManager(
            filters=self.filters,
            notify=lambda channel, group: self.told.append(f"{channel}:{group}"),
            notify_consumer_ids_changed_enable=lambda: enabled,
        )

    def beat(self, channel: str, *topics: str, version: int = 1, tell: bool = True, text: str = "*", kind: str = "TAG") -> None:
        subscriptions = tuple(
            HeartbeatSubscription(
                topic=topic, subString=text, tagsSet=frozenset(), codeSet=frozenset(), subVersion=version, expressionType=kind
            )
            for topic in topics
        )
        data = ConsumerData(
            groupName="g", consumeType=None, messageModel="CLUSTERING", consumeFromWhere=None, subscriptionDataSet=subscriptions
        )
        self.manager.register_consumer("g", channel, f"id of {channel}", data, 100, tell=tell)

    @property
    def versions(self) -> dict[str | None, int | None]:
        info = self.manager.get_consumer_group_info("g")
        return {} if info is None else {topic: one.subVersion for topic, one in info.subscription_table.items()}


def test_the_last_heartbeat_says_what_a_group_subscribes_to() -> None:
    clients = Clients()
    clients.beat("a", "t", "u", version=5)
    clients.beat("b", "u", version=4)
    assert clients.versions == {"u": 5}
    clients.beat("a", "u", version=6)
    assert clients.versions == {"u": 6}


def test_members_are_told_of_connections_and_topics_but_not_of_versions() -> None:
    clients = Clients()
    clients.beat("a", "t")
    clients.beat("b", "t")
    clients.beat("b", "t", version=9)
    assert clients.told == ["a:g", "a:g", "b:g"]
    clients.beat("b", "t", "u")
    assert clients.told[3:] == ["a:g", "b:g"]


def test_a_group_or_a_broker_may_not_want_members_to_be_told_but_a_closed_connection_is_the_brokers_own() -> None:
    clients = Clients()
    clients.beat("a", "t", tell=False)
    clients.beat("b", "t", tell=False)
    clients.manager.unregister_consumer("g", "nobody", 100, tell=False)
    assert clients.told == []
    clients.manager.do_channel_close_event("b", 100)
    assert clients.told == ["a:g"]
    silent = Clients(enabled=False)
    silent.beat("a", "t")
    silent.beat("b", "t")
    silent.manager.do_channel_close_event("b", 100)
    assert silent.told == []


@pytest.mark.parametrize("leaves", ["unregister", "close"])
def test_a_group_goes_with_its_last_connection_and_its_filters_die(leaves: str) -> None:
    clients = Clients()
    clients.beat("a", "t", text="a > 1", kind="SQL92")
    clients.beat("b", "t", text="a > 1", kind="SQL92")
    for channel in "ab":
        data = clients.filters.get("t", "g")
        assert data is not None
        assert not is_dead(data)
        assert clients.manager.get_consumer_group_info("g") is not None
        if leaves == "close":
            clients.manager.do_channel_close_event(channel, 200)
        else:
            clients.manager.unregister_consumer("g", channel, 200, tell=True)
    data = clients.filters.get("t", "g")
    assert data is not None
    assert is_dead(data)
    assert clients.manager.get_consumer_group_info("g") is None


# offsets and locks --------------------------------------------------------------------------------------------------------------------


def test_any_offset_is_stored_and_a_missing_name_is_a_text() -> None:
    offsets = ConsumerOffsetManager()
    for offset in (5, -3, 2**62):
        offsets.commit_offset("g", "t", 0, offset)
        assert offsets.query_offset("g", "t", 0) == offset
    offsets.commit_offset(None, None, 0, 7)
    assert offsets.query_offset("null", "null", 0) == 7
    assert offsets.query_offset("g", "t", 1) == -1


@pytest.mark.parametrize(("queue_id", "offset"), [(None, 1), (1, None)])
def test_an_offset_without_queue_or_number_throws(queue_id: int | None, offset: int | None) -> None:
    with pytest.raises(ThrownError):
        ConsumerOffsetManager().commit_offset("g", "t", queue_id, offset)


@pytest.mark.parametrize(
    ("committed", "min_offset", "in_disk", "begins"),
    [(4, 9, True, 4), (0, 9, True, 0), (-1, 0, False, 0), (-1, -1, False, 0), (-1, 0, True, None), (-1, 1, False, None), (-3, 0, False, 0)],
)
def test_where_a_group_begins(committed: int, min_offset: int, in_disk: bool, begins: int | None) -> None:
    assert first_offset(committed, min_offset, lambda: in_disk) == begins


def test_a_lock_is_held_until_it_is_given_up_or_grows_old() -> None:
    locks, queue, other = RebalanceLockManager(), MessageQueue("t", "b", 0), MessageQueue("t", "b", 1)
    assert locks.try_lock_batch("g", [queue], "A", 0) == [queue]
    assert locks.try_lock_batch("g", [queue, other], "B", 10) == [other]
    assert locks.try_lock_batch("h", [queue], "B", 10) == [queue]
    locks.unlock_batch("g", [queue], "B")
    assert locks.try_lock_batch("g", [queue], "B", 60_000) == []
    assert locks.try_lock_batch("g", [queue], "A", 60_000) == [queue]
    assert locks.try_lock_batch("g", [queue], "B", 120_000) == []
    assert locks.try_lock_batch("g", [queue], "B", 120_001) == [queue]
    locks.unlock_batch("g", [queue], "B")
    assert locks.try_lock_batch("g", [queue], "A", 120_002) == [queue]


# messages -----------------------------------------------------------------------------------------------------------------------------


def sending(version: BrokerVersion = BrokerVersion.V4_9_3, **config: Any) -> SendMessageProcessor:
    topics = TopicConfigManager()
    topics.update_topic_config(TopicConfig(topicName="t", readQueueNums=4, writeQueueNums=2, perm=0))
    topics.update_topic_config(TopicConfig(topicName="ordered", order=True))
    settings = SendBrokerConfig(broker_cluster_name="C", broker_ip1="ip", **config)
    return SendMessageProcessor(config=settings, topics=topics, groups=SubscriptionGroupManager(), rules=BrokerRules.of(version))


def asked(topic: str = "t", queue_id: int = 0, reconsume_times: int = 0, **properties: str) -> SendMessageRequest:
    message = InnerMessage(
        topic=topic,
        queue_id=queue_id,
        body=b"x",
        born_host=HOST,
        store_host=HOST,
        born_timestamp=1,
        properties=properties,
        reconsume_times=reconsume_times,
    )
    return SendMessageRequest(message=message, default_topic="TBW102", default_topic_queue_nums=4, max_reconsume_times=None)


# asked of the three brokers: the codes of a send to queue 0
@pytest.mark.parametrize(
    ("topic", "codes"),
    [
        *((name, (None, 16, 16)) for name in ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC")),
        *((name, (None, 16, 16)) for name in ("SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT")),
        ("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", (None, None, 16)),
        *((name, (None, None, None)) for name in ("RMQ_SYS_TRACE_TOPIC", "rmq_sys_wheel_timer", "TBW102", "BenchmarkTest")),
        ("SCHEDULE_TOPIC_XXXX", (16, 16, 16)),
    ],
)
def test_clients_may_not_send_to_topics_of_the_broker(topic: str, codes: tuple[int | None, ...]) -> None:
    for version, code in zip(BrokerVersion, codes, strict=True):
        processor = sending(version)
        processor.topics.start(SystemTopics(broker_name="b", broker_cluster_name="C"))
        with nullcontext() if code is None else pytest.raises(SendRefused) as raised:
            processor.accept(asked(topic))
        assert raised is None or raised.value.code == code


@pytest.mark.parametrize(
    ("request_", "config", "code"),
    [
        (asked("t", 3), {}, None),
        (asked("t", 4), {}, 1),
        (asked("t", -1), {}, None),
        (asked("none"), {}, 17),
        (asked("a b"), {}, 1),
        (asked("SCHEDULE_TOPIC_XXXX"), {}, 16),
        (asked("t"), {"broker_permission": 4}, None),
        (asked("ordered"), {"broker_permission": 4}, 16),
        (asked("%RETRY%g"), {}, None),
        (asked("%RETRY%g"), {"auto_create_subscription_group": False}, 26),
    ],
)
def test_which_messages_the_broker_takes(request_: SendMessageRequest, config: dict[str, Any], code: int | None) -> None:
    if code is None:
        assert sending(**config).accept(request_).queue_id == max(request_.message.queue_id, 0)
        return
    with pytest.raises(SendRefused) as raised:
        sending(**config).accept(request_)
    assert raised.value.code == code


def test_the_cluster_becomes_a_property_and_wait_is_not_stored() -> None:
    accepted = sending().accept(asked(WAIT="true", TAGS="a"))
    assert accepted.properties == {"WAIT": "true", "TAGS": "a", "CLUSTER": "C"}
    assert "WAIT" not in (accepted.properties_string or "")
    assert "CLUSTER\x01C" in (accepted.properties_string or "")


@pytest.mark.parametrize(("times", "topic"), [(15, "%RETRY%g"), (16, "%DLQ%g")])
def test_a_message_that_was_tried_too_often_is_dead(times: int, topic: str) -> None:
    assert sending().accept(asked("%RETRY%g", reconsume_times=times)).topic == topic


@pytest.mark.parametrize(
    ("role", "properties", "lacks"),
    [
        (BrokerRole.SYNC_MASTER, {}, True),
        (BrokerRole.SYNC_MASTER, {"WAIT": ""}, True),
        (BrokerRole.SYNC_MASTER, {"WAIT": "false"}, False),
        (BrokerRole.ASYNC_MASTER, {}, False),
    ],
)
def test_a_synchronous_master_wants_a_slave(role: BrokerRole, properties: dict[str, str], lacks: bool) -> None:
    assert lacks_slave(role, properties) is lacks


def stored(reconsume_times: int = 0, properties: bytes = b"TAGS\x01a") -> Message:
    return Message(
        queue_id=0,
        queue_offset=0,
        physic_offset=4711,
        born_timestamp=1,
        born_host=HOST,
        store_timestamp=2,
        store_host=HOST,
        body=b"x",
        topic=b"t",
        properties=properties,
        reconsume_times=reconsume_times,
    )


@pytest.mark.parametrize(
    ("level", "times", "most", "version", "topic", "delay"),
    [
        (0, 0, None, 395, "%RETRY%g", "3"),
        (0, 2, None, 395, "%RETRY%g", "5"),
        (7, 2, None, 395, "%RETRY%g", "7"),
        (-1, 0, None, 395, "%DLQ%g", "0"),
        (0, 16, None, 395, "%DLQ%g", "0"),
        (0, 2, 2, 395, "%DLQ%g", "0"),
        (0, 2, 2, 120, "%RETRY%g", "5"),
    ],
)
def test_a_message_that_is_sent_back(level: int, times: int, most: int | None, version: int, topic: str, delay: str) -> None:
    asked_back = SendBackRequest(group="g", delay_level=level, max_reconsume_times=most, version=version)
    inner = send_back(sending(), asked_back, stored(times))
    assert inner is not None
    assert (inner.topic, inner.properties["DELAY"], inner.reconsume_times) == (topic, delay, times + 1)
    assert (inner.properties["RETRY_TOPIC"], inner.properties["WAIT"]) == ("t", "false")
    assert inner.properties["ORIGIN_MESSAGE_ID"] == stored().msg_id


def test_a_group_without_retry_queues_loses_what_is_sent_back() -> None:
    processor = sending()
    processor.groups.update_subscription_group_config(SubscriptionGroupConfig(groupName="g", retryQueueNums=0))
    assert send_back(processor, SendBackRequest(group="g", delay_level=0, max_reconsume_times=None, version=395), stored()) is None


def test_a_delayed_message_that_is_due_keeps_the_text_of_its_delay() -> None:
    properties = b"DELAY\x013\x02REAL_TOPIC\x01u\x02REAL_QID\x012\x02TAGS\x01a"
    inner = message_timeup(stored(properties=properties))
    assert inner is not None
    assert (inner.topic, inner.queue_id) == ("u", 2)
    assert "DELAY" not in inner.properties
    assert "DELAY\x013" in (inner.properties_string or "")
