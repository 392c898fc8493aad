"""`pullsim simulate --write-store`: write the messages of one run as the store of its broker at the end of the run.

The run is simulated once more, on the driver. The same scenario and seed give the same bytes.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass, field, replace

from pipeline.files.whole_folder import whole_folder
from pipeline.generate.generate import written_settings
from pipeline.generate.store_writer import WrittenStore, new_store, shut_down
from pipeline.generate.workload import DEFAULT_START, PRODUCER, STORE_HOST
from pipeline.generate.written_config import config_files
from pipeline.settings.rule_settings import send_broker_config, system_topics
from pipeline.settings.settings import BrokerSettings
from pipeline.simulation.plans import plan_of
from pipeline.simulation.scenario import BROKER_SETTINGS, GroupScenario, expected_messages
from pipeline.simulation.scenario_fields import ScenarioError
from store_format.config.config_rows import SubscriptionGroupConfig, TopicConfig
from store_format.errors import StoreError
from store_format.log.append import NO_BATCH, columns_of
from store_format.log.put_message import SCHEDULE_TOPIC, InnerMessage, PutMessageStatus, PutSettings
from store_format.record.message import Message
from store_format.store.store_settings import check_sizes
from udfs.broker.memory_store import MemoryStore
from udfs.broker.send_message import SendMessageProcessor
from udfs.broker.subscription_group import SubscriptionGroupManager
from udfs.broker.topic_config import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_TOPIC, TopicConfigManager
from udfs.broker.transactional_message import CONSUMER_GROUP
from udfs.filters.message_filter import RETRY_GROUP_TOPIC_PREFIX
from udfs.filters.tags import split_tags
from udfs.simulation import world as at
from udfs.simulation.appended import Appending, Ended, Surroundings
from udfs.simulation.group_engine import WrittenRows
from udfs.simulation.group_plan import GroupPlan
from udfs.simulation.lag_sample import CONSUMER_OFFSET
from udfs.simulation.outcome import Outcome, simulate

# each message is a Python object until the store is written
MOST_MESSAGES = 200_000
_AT_ONCE = 8192  # messages that are written at once
_RECORD_ROOM = 4096  # greatest number of bytes of a record without its body


@dataclass(frozen=True, slots=True)
class Written:
    """The written store: its folder, its number of messages, and the end of its commit log."""

    store: str
    messages: int
    log_end: int


def _broker(scenario: GroupScenario, settings: BrokerSettings) -> BrokerSettings:
    return BrokerSettings({**settings.given, **scenario.broker.given, "brokerName": scenario.messages.brokers[0]})


def check_writable(scenario: GroupScenario, store: str, where: str, settings: BrokerSettings) -> None:
    """Check that the messages of a scenario's run can be written as the store of a broker with these settings.

    Raises:
        ScenarioError: the scenario has features for which this is not supported.
        StoreError: the folder is not empty, or a broker cannot write with these settings.
    """
    messages = scenario.messages
    if messages.recorded:
        raise ScenarioError(f"{where}, messages, recorded", "a rate, for --write-store: recorded messages are in a store", "true")
    if len(messages.brokers) > 1:
        raise ScenarioError(f"{where}, messages, brokers", "one broker, for --write-store", repr(list(messages.brokers)))
    if scenario.listener.orderly:
        raise ScenarioError(f"{where}, listener, orderly", "a concurrent listener, for --write-store", "true")
    count = expected_messages(messages.rate, scenario.messages_end) + messages.backlog
    if count > MOST_MESSAGES:
        expected = f"{MOST_MESSAGES:,} messages at most with the backlog, for --write-store"
        raise ScenarioError(f"{where}, messages, rate", expected, f"{count:,.0f}")
    for name in BROKER_SETTINGS:
        if name in settings.given and settings.given[name] != scenario.broker.value(name):
            expected = f"{settings.given[name]!r} as in --set or --properties: the simulation uses this setting"
            raise ScenarioError(f"{where}, broker, {name}", expected, repr(scenario.broker.value(name)))
    sizes, put = written_settings(_broker(scenario, settings))
    check_sizes(sizes)
    most = min(put.max_message_size, sizes.commit_log_size) - _RECORD_ROOM
    if messages.body[1] > most:
        expected = f"{most:,} bytes at most, for --write-store"
        raise ScenarioError(f"{where}, messages, body", expected, str(messages.body[1]))
    if os.path.isdir(store) and os.listdir(store):
        raise StoreError(store, "an empty folder, or none", "files in it", hint="a store is never written over")


def write_run(store: str, scenario: GroupScenario, where: str, settings: BrokerSettings) -> Written:
    """Simulate the first run of a scenario, and write its messages as the store of a broker with these settings.

    Raises:
        ScenarioError: the broker's settings contradict the scenario.
        OutputError: the folder is not empty, or cannot be made.
        StoreError: the disk is full, or the broker does not take a message; no store is left.
    """
    plan = plan_of(scenario, scenario.seed, where)
    sent_back: list[tuple[int, int, int]] = []

    def note(told: WrittenRows) -> None:
        failed = told.consumed[told.consumed[:, at.C_RESULT] == at.RECONSUME_LATER]
        sent_back.extend(zip(*(failed[:, [at.C_ENDED, at.C_QUEUE, at.C_OFFSET]] - [plan.broker.network, 0, 0]).T.tolist(), strict=True))

    outcome = simulate(replace(plan, tells=not plan.broadcasts), note)
    broker = _broker(scenario, settings)
    sizes, put = written_settings(broker)
    with whole_folder(store, uuid.uuid4().hex) as folder:
        log = _Log(
            new_store(folder, sizes, put),
            put,
            MemoryStore(
                commit_log_file_size=sizes.commit_log_size, consume_queue_file_size=sizes.consume_queue_size, delays=plan.broker.delays
            ),
        )
        sender = _sender(broker, plan)
        wanted = split_tags(scenario.subscription)
        run = Appending(
            Ended(plan=plan, at=outcome.stopped_at, sent_back=sent_back),
            Surroundings(
                sender=sender,
                begins=DEFAULT_START,
                producer=PRODUCER,
                store_host=STORE_HOST,
                wanted=[one for one in scenario.messages.tags if wanted is None or one[0] in wanted],
                unwanted=[one for one in scenario.messages.tags if wanted is not None and one[0] not in wanted],
            ),
            log.put,
        )
        run.append_all()
        log.flush()
        shut_down(log.writer, _config(plan, outcome, run, sender, log))
    return Written(store, log.count, log.writer.log_end)


@dataclass(slots=True)
class _Log:
    """A store that takes messages one at a time and writes many at a time; `placed` calculates their offsets."""

    writer: WrittenStore
    settings: PutSettings
    placed: MemoryStore
    count: int = 0
    waiting: list[Message] = field(default_factory=list)

    def put(self, inner: InnerMessage, now: int) -> Message:
        """Store a message and return it with its offsets."""
        stored = self.placed.put(inner, now, self.settings)
        if isinstance(stored, PutMessageStatus):
            raise StoreError(inner.topic, "messages that the broker takes", stored.name)
        self.count += 1
        self.waiting.append(stored)
        if len(self.waiting) == _AT_ONCE:
            self.flush()
        return stored

    def flush(self) -> None:
        """Write the messages that are not written yet."""
        queues = [self.writer.queue_number(one.topic, one.queue_id) for one in self.waiting]
        self.writer.append(columns_of(self.waiting, queues, [NO_BATCH] * len(queues)))
        self.waiting.clear()


# config/ ----------------------------------------------------------------------------------------------------------------------------


def _sender(broker: BrokerSettings, plan: GroupPlan) -> SendMessageProcessor:
    """Return the broker's processor of sent messages, with the plan's topic and group."""
    topics, groups = TopicConfigManager(), SubscriptionGroupManager()
    topics.start(system_topics(broker))
    topics.update_topic_config(TopicConfig(topicName=plan.topic, readQueueNums=len(plan.queues), writeQueueNums=len(plan.queues)))
    groups.update_subscription_group_config(SubscriptionGroupConfig(groupName=plan.group))
    topics.create_topic_in_send_message_back(RETRY_GROUP_TOPIC_PREFIX + plan.group, plan.broker.retry_queue_nums)
    return SendMessageProcessor(config=send_broker_config(broker), topics=topics, groups=groups)


def _config(plan: GroupPlan, outcome: Outcome, run: Appending, sender: SendMessageProcessor, log: _Log) -> dict[str, bytes]:
    """Return the files under config/ at the end of the run, by name."""
    for topic in (HALF_TOPIC, OP_TOPIC, CHECK_MAX_TIME_TOPIC):
        if (topic, 0) in log.placed.topic_queue_table:
            sender.topics.create_topic_in_send_message_back(topic, 1)
    levels = sorted(queue_id + 1 for topic, queue_id in log.placed.topic_queue_table if topic == SCHEDULE_TOPIC)
    topics, groups = sender.topics.topic_config_table, sender.groups.subscription_group_table
    return config_files(
        topics=topics.values(),
        groups=groups.values(),
        offsets=_offsets(plan, outcome, run),
        delay_offsets={level: run.delivered[level] for level in levels},
        versions=(len(topics), len(groups)),
        timestamp=DEFAULT_START,
    )


def _offsets(plan: GroupPlan, outcome: Outcome, run: Appending) -> dict[str, dict[int, int]]:
    """Return the committed offsets of the group and of the broker's transaction check."""
    committed = [int(offset) for offset in outcome.lag[-1, :, CONSUMER_OFFSET]]
    parts = {plan.topic: committed[: len(plan.queues)], RETRY_GROUP_TOPIC_PREFIX + plan.group: committed[len(plan.queues) :]}
    table = {
        f"{topic}@{plan.group}": {number: offset for number, offset in enumerate(offsets) if offset >= 0}
        for topic, offsets in parts.items()
    }
    if run.transactions:
        table[f"{HALF_TOPIC}@{CONSUMER_GROUP}"] = {0: run.transactions.half_offset}
        table[f"{OP_TOPIC}@{CONSUMER_GROUP}"] = {0: run.transactions.op_offset}
    return {key: offsets for key, offsets in table.items() if offsets}
