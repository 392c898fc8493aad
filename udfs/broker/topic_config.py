"""The configurations of topics: the topics that a broker starts with, and when it creates another one.

Broker source (4.9.3): TopicConfigManager (constructor, selectTopicConfig, createTopicInSendMessageMethod,
createTopicInSendMessageBackMethod), LmqTopicConfigManager (selectTopicConfig, updateTopicConfig), PermName.
Rule: a pull never creates a topic. A message to an unknown topic creates it, as a copy of the model topic that the message names, if the
model topic has the permission INHERIT. A heartbeat and a message that is sent back create the group's retry topic.
Surprise: TBW102 exists only if autoCreateTopicEnable was set at the start. If it is switched off later, TBW102 stays but is no model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from store_format.config.config_rows import TopicConfig
from store_format.log.put_message import SCHEDULE_TOPIC
from store_format.store.lookup import NULL_POINTER, ThrownError
from store_format.store.multi_dispatch import is_light_queue

PERM_INHERIT: Final = 1
PERM_WRITE: Final = 2
PERM_READ: Final = 4
FLAG_UNIT_SUB: Final = 2  # TopicSysFlag

AUTO_CREATE_TOPIC_KEY_TOPIC: Final = "TBW102"
RMQ_SYS_SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
RMQ_SYS_BENCHMARK_TOPIC: Final = "BenchmarkTest"
RMQ_SYS_OFFSET_MOVED_EVENT: Final = "OFFSET_MOVED_EVENT"
REPLY_TOPIC_POSTFIX: Final = "REPLY_TOPIC"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
ROCKSDB_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_OP_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
DLQ_GROUP_TOPIC_PREFIX: Final = "%DLQ%"

_SCHEDULE_TOPIC_QUEUE_NUM: Final = 18
_BENCHMARK_QUEUES: Final = 1024
_TRANSACTION_TOPICS: Final = (HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC)
_WHEEL_TIMER: Final = "rmq_sys_wheel_timer"
_REVIVE_LOG: Final = "rmq_sys_REVIVE_LOG_"
_REVIVE_QUEUES: Final = 8


def is_readable(perm: int) -> bool:
    """Return whether a permission allows reading: PermName.isReadable."""
    return perm & PERM_READ == PERM_READ


def is_writeable(perm: int) -> bool:
    """Return whether a permission allows writing: PermName.isWriteable."""
    return perm & PERM_WRITE == PERM_WRITE


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemTopics:
    """The settings at the broker's start that its own topics depend on, under the broker's own names."""

    broker_name: str
    broker_cluster_name: str
    default_topic_queue_nums: int = 8
    auto_create_topic_enable: bool = True
    cluster_topic_enable: bool = True
    broker_topic_enable: bool = True
    trace_topic_enable: bool = False
    msg_trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"

    def configs(self) -> list[TopicConfig]:
        """Return the broker's own topics in the order of creation; if two have the same name, the later one counts."""
        read_write = PERM_READ | PERM_WRITE
        found = [_with_queues(RMQ_SYS_SELF_TEST_TOPIC, 1)]
        if self.auto_create_topic_enable:
            perm = PERM_INHERIT | read_write
            found.append(_with_queues(AUTO_CREATE_TOPIC_KEY_TOPIC, self.default_topic_queue_nums, perm))
        found += [
            _with_queues(RMQ_SYS_BENCHMARK_TOPIC, _BENCHMARK_QUEUES),
            TopicConfig(topicName=self.broker_cluster_name, perm=PERM_INHERIT | read_write * self.cluster_topic_enable),
            _with_queues(self.broker_name, 1, PERM_INHERIT | read_write * self.broker_topic_enable),
            _with_queues(RMQ_SYS_OFFSET_MOVED_EVENT, 1),
            _with_queues(SCHEDULE_TOPIC, _SCHEDULE_TOPIC_QUEUE_NUM),
        ]
        if self.trace_topic_enable:
            found.append(_with_queues(self.msg_trace_topic_name, 1))
        return [*found, _with_queues(f"{self.broker_cluster_name}_{REPLY_TOPIC_POSTFIX}", 1)]

    def later_configs(self) -> list[TopicConfig]:
        """Return the topics that a broker 5.5.0 makes at its start in addition to `configs`."""
        found = [_with_queues(name, 1) for name in _TRANSACTION_TOPICS]
        return [*found, _with_queues(_WHEEL_TIMER, 1), _with_queues(f"{_REVIVE_LOG}{self.broker_cluster_name}", _REVIVE_QUEUES)]


def _with_queues(name: str, queues: int, perm: int = PERM_READ | PERM_WRITE) -> TopicConfig:
    return TopicConfig(topicName=name, readQueueNums=queues, writeQueueNums=queues, perm=perm)


@dataclass(slots=True, kw_only=True)
class TopicConfigManager:
    """The configurations of topics by name.

    Attributes:
        topic_config_table: name -> configuration.
        updated: called with each configuration that is created or replaced.
        enable_lmq: enableLmq at the broker's start, with which each light message queue is a topic of one queue.
    """

    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    updated: Callable[[TopicConfig], None] = lambda _config: None
    enable_lmq: bool = False

    def start(self, topics: SystemTopics, *, later: bool = False) -> None:
        """Create the broker's own topics; with `later` also those that only 5.x makes at its start."""
        for config in topics.configs() + (topics.later_configs() if later else []):
            self.update_topic_config(config)

    def update_topic_config(self, config: TopicConfig) -> None:
        """Create or replace the configuration of a topic; ignored for a light message queue."""
        if is_light_queue(config.topicName, enable_lmq=self.enable_lmq):
            return
        self.topic_config_table[config.topicName] = config
        self.updated(config)

    def select_topic_config(self, topic: str | None) -> TopicConfig | None:
        """Return the configuration of a topic, None if the broker has none.

        Raises:
            ThrownError: the name is missing; the broker's map throws on null.
        """
        if topic is None:
            raise ThrownError(NULL_POINTER)
        if is_light_queue(topic, enable_lmq=self.enable_lmq):
            return _with_queues(topic, 1)
        return self.topic_config_table.get(topic)

    def create_topic_in_send_message(
        self, topic: str, default_topic: str, client_default_topic_queue_nums: int, *, auto_create_topic_enable: bool
    ) -> TopicConfig | None:
        """Return the topic of a sent message, created as a copy of `default_topic` if that topic exists and has the permission INHERIT."""
        known = self.select_topic_config(topic)
        model = self.topic_config_table.get(default_topic)
        if known is not None or model is None:
            return known
        if default_topic == AUTO_CREATE_TOPIC_KEY_TOPIC and not auto_create_topic_enable:
            model = replace(model, perm=PERM_READ | PERM_WRITE)
            self.update_topic_config(model)
        if not model.perm & PERM_INHERIT:
            return None
        queues = max(min(client_default_topic_queue_nums, model.writeQueueNums), 0)
        created = replace(_with_queues(topic, queues, model.perm & ~PERM_INHERIT), topicFilterType=model.topicFilterType)
        self.update_topic_config(created)
        return created

    def create_topic_in_send_message_back(
        self, topic: str, queues: int, perm: int = PERM_READ | PERM_WRITE, *, topic_sys_flag: int = 0
    ) -> TopicConfig:
        """Return the retry or dead letter topic of a group, created if it does not exist."""
        known = self.topic_config_table.get(topic)
        if known is None:
            known = replace(_with_queues(topic, queues, perm), topicSysFlag=topic_sys_flag)
            self.update_topic_config(known)
        return known
